"""Lanes share a worker by weight: none of them stands still."""

from __future__ import annotations

import asyncio

from mainspring.schema.states import Lane
from mainspring.worker import Context
from tests.integration.worker.apps import app_of
from tests.integration.worker.bench import Bench


async def test_low_goes_on_under_a_flood_of_high(bench: Bench) -> None:
    """One slot, and small claims: by the time `low` is through, much of `high` still waits."""
    executed: list[int | None] = []
    enough, go_on = asyncio.Event(), asyncio.Event()

    async def work(context: Context) -> None:
        if not executed:
            await go_on.wait()
        await asyncio.sleep(0.01)  # or one claim would be for all of them
        executed.append(context.payload)
        if executed.count(1) == 5:
            enough.set()

    high, low = await bench.job(priority="high", payload=9), await bench.job(priority="low", payload=1)
    first = await bench.job(priority="low", payload=0)
    for lane in (Lane.HIGH, Lane.LOW):
        await bench.make_topic(lane)
    async with bench.living(app_of(work), concurrency=1, lanes=(Lane.HIGH, Lane.LOW)) as living:
        await bench.publish(await bench.raw(first), lane=Lane.LOW)
        await bench.until_status(first, "running")
        await bench.publish(*[await bench.raw(high, n) for n in range(300)], lane=Lane.HIGH)
        await bench.publish(*[await bench.raw(low, n) for n in range(5)], lane=Lane.LOW)

        async def all_wait() -> bool:
            living.life.show()
            return sum(living.metrics.lanes["lane_waiting"].values()) == 305

        await bench.until(all_wait)
        go_on.set()
        async with asyncio.timeout(60):
            await enough.wait()
        assert executed.count(9) < 300
