"""Schedulers join and leave in turn: the shards stay shared evenly, and nothing is lost or published twice.

Nobody dies here. A shard is handed over after its bucket has been finished and its mark has moved, so there
is nothing that a successor would have to publish again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress

from tests.acceptance.reports import Report
from tests.acceptance.scheduler.cluster import Cluster
from tests.acceptance.scheduler.locks import locked, waits
from tests.acceptance.waiting import until

PATIENCE_SECONDS = 1.0
"""Less than a leader's patience with a statement that moves marks."""


async def test_three_schedulers_join_and_leave_in_turn(cluster: Cluster, report: Report) -> None:
    jobs = await cluster.register(200)
    for _ in range(3):
        await cluster.start()
    for _ in range(3):
        leaving = cluster.alive[0]
        assert await leaving.terminate() == 0
        await cluster.even()
        assert not cluster.observer.led_by(leaving.identity)
        await cluster.start()
    while len(cluster.alive) > 1:
        assert await cluster.alive[0].terminate() == 0
        await cluster.even()
    verdict = await cluster.verdict(jobs)
    latest = max(record.published_at - record.second for record in cluster.recorder.records)
    report(f"{len(cluster.processes)} joined and left, {verdict.figures()}; latest by {latest:.2f} s")
    assert not verdict.unordered
    assert not verdict.repeated


async def test_a_shard_changes_hands_only_after_its_mark_has_moved(cluster: Cluster) -> None:
    """While no mark can move, nothing is handed over; so what was published is not published again."""
    jobs = await cluster.register(200)
    [leader] = await cluster.start()
    async with locked(cluster, "LOCK TABLE cluster"):  # the first thing that a process reads
        newcomer = cluster.launch()
        await until(lambda: waits(cluster), "the newcomer waits")
        async with AsyncExitStack() as marks_stand:
            await marks_stand.enter_async_context(locked(cluster, "SELECT FROM shards FOR UPDATE"))
            await cluster.observer.fresh()
            last = cluster.observer.least_mark
            await until(lambda: cluster.recorder.reached(jobs[0].shard, last + 1), "a bucket has no mark yet")
            release = marks_stand.pop_all()
    async with release:
        await newcomer.introduced()
        await _give_time_to(lambda: bool(leader.events("terms_ended")))
        assert not leader.events("terms_ended")
    await cluster.even()
    verdict = await cluster.verdict(jobs)
    assert leader.events("terms_ended")[0].data["reason"] == "handed_back"
    assert not verdict.repeated


async def _give_time_to(fact: Callable[[], bool]) -> None:
    """Wait a while for what must not happen."""
    with suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE_SECONDS):
            await until(fact, "it happens")
