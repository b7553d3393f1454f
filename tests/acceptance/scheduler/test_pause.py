"""SIGSTOP for longer than the lease, then SIGCONT: the woken process looks before it publishes."""

from __future__ import annotations

import time

from tests.acceptance.processes import Event, MainspringProcess
from tests.acceptance.reports import Report
from tests.acceptance.scheduler.cluster import Cluster
from tests.acceptance.scheduler.judge import after_the_mark
from tests.acceptance.scheduler.locks import locked, waits
from tests.acceptance.waiting import turn_of_a_second, until


async def test_a_woken_process_publishes_nothing_under_its_old_terms_and_takes_part_again(
    cluster: Cluster, report: Report
) -> None:
    jobs = await cluster.register(300)
    sleeper, _ = await cluster.start(2)
    led = cluster.observer.led_by(sleeper.identity)
    busy = {job.shard for job in jobs} & led.keys()
    slept_at = await turn_of_a_second(0.01)
    sleeper.pause()
    marks = await cluster.observer.marks_of(led)
    await until(
        lambda: all(
            cluster.recorder.reached(shard, int(slept_at) + 1, above_epoch=led[shard].epoch) for shard in busy
        ),
        "others publish for the shards of the sleeper",
    )
    woken_at = time.time()
    sleeper.resume()
    await until(
        lambda: _stepped_down(sleeper, woken_at) >= led.keys(), "the woken process ends its old terms"
    )
    looked_at = max(event.at for event in _ends(sleeper, woken_at))
    await cluster.even()
    verdict = await cluster.verdict(jobs)
    report(
        f"stopped for {woken_at - slept_at:.1f} s, {verdict.figures()}; "
        f"stepped down {looked_at - woken_at:.3f} s after waking, for {_reasons(sleeper, woken_at)}",
    )
    old = [each for each in cluster.recorder.records if (each.shard, each.epoch) in marks]
    assert not [each for each in old if each.published_at > looked_at]
    assert not [each for each in old if each.second > slept_at], "it published before it looked"
    assert not verdict.unexplained(after_the_mark(marks))


async def test_a_process_stopped_inside_the_transaction_of_its_marks_holds_no_shard(
    cluster: Cluster, report: Report
) -> None:
    """Its backend has the rows of its shards locked, and waits for the next statement of a stopped client."""
    jobs = await cluster.register(100)
    sleeper, _ = await cluster.start(2)
    led = cluster.observer.led_by(sleeper.identity)
    busy = {job.shard for job in jobs} & led.keys()
    async with locked(cluster, "LOCK TABLE ledger IN SHARE MODE"):  # what comes after the marks
        await until(lambda: waits(cluster, f"marks {sleeper.identity}"), "its marks have moved, uncommitted")
        slept_at = time.time()
        sleeper.pause()
    await until(
        lambda: all(
            cluster.recorder.reached(shard, int(slept_at) + 1, above_epoch=led[shard].epoch) for shard in busy
        ),
        "others publish for the shards of the sleeper",
    )
    woken_at = time.time()
    sleeper.resume()
    await until(
        lambda: _stepped_down(sleeper, woken_at) >= led.keys(), "the woken process ends its old terms"
    )
    await cluster.even()
    report(f"its shards were led by others {woken_at - slept_at:.1f} s after it was stopped")
    assert not (await cluster.verdict(jobs)).unordered


def _ends(process: MainspringProcess, since: float) -> list[Event]:
    return [event for event in process.events("terms_ended") if event.at >= since]


def _stepped_down(process: MainspringProcess, since: float) -> set[int]:
    return {shard for event in _ends(process, since) for shard in event.data["shards"]}


def _reasons(process: MainspringProcess, since: float) -> list[str]:
    return sorted(
        {event.data["reason"] for event in _ends(process, since) if event.data["reason"] != "resigned"}
    )
