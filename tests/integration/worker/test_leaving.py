"""A reader that left its group and joined it again reads again what was read and claimed by nobody."""

from __future__ import annotations

import asyncio

from mainspring.schema.states import Lane
from mainspring.worker.intake import LaneReader
from tests.integration.worker.bench import PATIENCE, Bench

MESSAGES = 10


async def fill(reader: LaneReader) -> None:
    """Read until all messages are kept."""
    async with asyncio.timeout(PATIENCE):
        while reader.waiting < MESSAGES:
            await reader.read()


async def test_what_was_dropped_at_leaving_is_read_again(bench: Bench) -> None:
    job = await bench.job()
    await bench.make_topic()
    await bench.publish(*[await bench.raw(job, second) for second in range(MESSAGES)])
    reader = LaneReader(bench.kafka, bench.name, Lane.NORMAL, "leaver")
    try:
        for _ in range(3):
            await reader.join()
            await fill(reader)
            await reader.leave()
            assert reader.waiting == 0
        await reader.join()
        await fill(reader)
        assert {record.offset for record in reader.take(2 * MESSAGES)} == set(range(MESSAGES))
    finally:
        await reader.close()
