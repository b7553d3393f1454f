"""Schedulers join and leave in turn: the shards stay shared evenly, and nothing is lost or published twice.

Nobody dies here. A shard is handed over after its bucket has been finished and its mark has moved, so there
is nothing that a successor would have to publish again.
"""

from __future__ import annotations

from tests.acceptance.scheduler.cluster import Cluster
from tests.acceptance.scheduler.reports import Report


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
