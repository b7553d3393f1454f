"""SIGKILL of leaders under load: nothing is lost, and only what lay after the mark is published twice.

MAINSPRING_TEST_KILLS sets how often a leader is killed (default 3).
"""

from __future__ import annotations

import os
from functools import partial
from statistics import median

from tests.acceptance.reports import Report
from tests.acceptance.scheduler.cluster import Cluster
from tests.acceptance.scheduler.judge import after_the_mark
from tests.acceptance.waiting import turn_of_a_second, until

KILLS = int(os.environ.get("MAINSPRING_TEST_KILLS", "3"))
JOBS = 500
PHASES = (0.01, 0.02, 0.04, 0.005, 0.08, 0.5)
"""When the kills come, in seconds after a whole one: bucket under way, without its mark, after it."""


async def test_leaders_killed_again_and_again_lose_nothing(cluster: Cluster, report: Report) -> None:
    jobs = await cluster.register(JOBS)
    shards = {job.shard for job in jobs}
    await cluster.start(2)
    marks: dict[tuple[int, int], int] = {}
    first: list[float] = []
    whole: list[float] = []
    for number in range(KILLS):
        victim = cluster.alive[0]
        led = cluster.observer.led_by(victim.identity)
        killed_at = await turn_of_a_second(PHASES[number % len(PHASES)])
        await victim.kill()
        marks |= await cluster.observer.marks_of(led)
        busy = {shard: led[shard].epoch for shard in led.keys() & shards}
        await until(partial(_all_go_on, cluster, busy, killed_at), "the successor publishes for every shard")
        delays = [_first_after(cluster, shard, epoch) - killed_at for shard, epoch in busy.items()]
        first.append(min(delays))
        whole.append(max(delays))
        await cluster.start()
    verdict = await cluster.verdict(jobs)
    report(
        f"{KILLS} kills, {verdict.figures()}; {_spread(first)} to the first publication, "
        f"{_spread(whole)} until every shard publishes",
    )
    assert not verdict.unordered
    assert not verdict.unexplained(after_the_mark(marks))


def _all_go_on(cluster: Cluster, busy: dict[int, int], since: float) -> bool:
    """Whether these shards publish under an epoch above the given one what became due after that time."""
    return all(
        cluster.recorder.reached(shard, int(since) + 1, above_epoch=epoch) for shard, epoch in busy.items()
    )


def _first_after(cluster: Cluster, shard: int, epoch: int) -> float:
    """When a shard first published under a later epoch."""
    terms = cluster.recorder.terms.items()
    return min(trace.first_at for (of, later), trace in terms if of == shard and later > epoch)


def _spread(seconds: list[float]) -> str:
    ordered = sorted(seconds)
    p99 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    return f"p50 {median(ordered):.2f} s, p99 {p99:.2f} s"
