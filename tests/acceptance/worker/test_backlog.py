"""Two hundred thousand messages wait for a slow worker: it takes what it can start, and keeps its size."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime
from pathlib import Path

from confluent_kafka import Producer

from mainspring.schema.ids import to_microseconds
from mainspring.schema.messages import encode_prefix
from mainspring.schema.states import Lane, topic_of
from tests.acceptance.processes import MainspringProcess
from tests.acceptance.reports import Report
from tests.acceptance.waiting import until
from tests.acceptance.worker.fleet import Fleet

MESSAGES = 200_000
PAYLOAD = 1000
CONCURRENCY = 10
ENDED = 100
MOST_CLAIMED = 10 * CONCURRENCY
MOST_GROWTH = 150_000_000
"""Bytes: less than the messages are."""


async def test_a_worker_with_a_large_backlog_takes_what_it_can_start_and_keeps_its_size(
    fleet: Fleet, report: Report
) -> None:
    worker = await fleet.start(concurrency=CONCURRENCY)
    warm = await fleet.register(20, payload={"seconds": 0.1})
    (await fleet.verdict(warm)).assert_all_succeeded()
    before = _peak_memory(worker.pid)
    await _publish(fleet)
    most_claimed = 0

    async def look() -> bool:
        nonlocal most_claimed
        claimed: int = await fleet.database.fetchval("SELECT count(*) FROM runs")
        ended = len(fleet.journal.of("end"))
        most_claimed = max(most_claimed, claimed - ended)
        return ended >= ENDED

    await until(look, "some of them have been executed", pause=0.1)
    grown = _peak_memory(worker.pid) - before
    report(
        f"at most {most_claimed} claimed and not ended; {before / 1e6:.0f} MB, and {grown / 1e6:.0f} MB more"
    )
    assert CONCURRENCY <= most_claimed <= MOST_CLAIMED
    assert grown < MOST_GROWTH < MESSAGES * PAYLOAD

    second = await fleet.start(concurrency=CONCURRENCY)
    await until(lambda: _works(fleet, second), "a second worker gets its share while the first is full")
    fleet.assert_sound()


def _works(fleet: Fleet, worker: MainspringProcess) -> bool:
    return worker.pid in {line.pid for line in fleet.journal.of("start")}


async def _publish(fleet: Fleet) -> None:
    """Messages of one job, all due now, as a leader would write them."""
    payload = {"seconds": 0.5, "padding": "x" * PAYLOAD}
    [occurrence] = await fleet.register(payload=payload, schedule="2099-01-01T00:00:00Z")
    body: bytes = await fleet.database.fetchval("SELECT body FROM jobs WHERE id = $1", occurrence.job_id)
    position: int = await fleet.database.fetchval("SELECT pg_current_xact_id()::text::bigint")
    now = to_microseconds(datetime.now(UTC))
    producer = Producer(fleet.kafka | {"queue.buffering.max.messages": MESSAGES})
    topic = topic_of(fleet.pool, Lane.NORMAL)
    for number in range(MESSAGES):
        prefix = encode_prefix(
            attempt=1,
            shard=0,
            second=now // 1_000_000,
            scheduled_at=now + number,
            following=now + 86_400_000_000,
            epoch=1,
            position=position,
        )
        producer.produce(topic, prefix + body)
    assert await asyncio.to_thread(producer.flush, 60) == 0


def _peak_memory(pid: int) -> int:
    """The most that the process ever had resident, in bytes."""
    [kilobytes] = re.findall(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(kilobytes) * 1024
