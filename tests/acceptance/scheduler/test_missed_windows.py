"""Nobody led for hours: every missed-window policy decides as specified, also when the successor dies midway.

The hours are simulated: the marks are put back before the first scheduler starts, and the jobs are made to
have existed before them. What each job is owed is computed by `Schedule.missed` at the end of the gap, which
the takeover wrote into `shards.gap_to`.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from mainspring.schedule import is_late
from mainspring.schema.ids import to_microseconds
from mainspring.schema.states import Lane
from tests.acceptance.reports import Report
from tests.acceptance.scheduler.cluster import EVERY_SECOND, Cluster
from tests.acceptance.scheduler.judge import Tracked, after_the_mark
from tests.acceptance.scheduler.recorder import Record, Run, by_run
from tests.acceptance.waiting import until

HOURS = timedelta(hours=3)
EVERY_MINUTE = "* * * * *"


class Outcome(NamedTuple):
    """What a gap means for one job."""

    runs: dict[Run, Lane]
    given_up: int


class Gap(NamedTuple):
    """Where the marks stood, and where each shard's gap ends."""

    mark: datetime
    ends: dict[int, int]

    def end(self, job: Tracked) -> datetime:
        return datetime.fromtimestamp(self.ends[job.shard], UTC)


async def test_three_hours_without_a_leader_and_a_successor_that_dies_midway(
    cluster: Cluster, report: Report
) -> None:
    mark = datetime.now(UTC).replace(microsecond=0) - HOURS
    jobs = await _jobs_of_all_policies(cluster, mark)
    once = await cluster.register_one_off(mark + HOURS / 2)
    await cluster.put_marks_back(mark)
    first = cluster.launch()
    third = (mark + HOURS / 3).timestamp()
    await until(lambda: cluster.observer.least_mark > third, "the first leader has caught up with an hour")
    led = dict(cluster.observer.shards)
    await first.kill()
    marks = await cluster.observer.marks_of(led)
    gap = Gap(mark, {shard: min(ends) for shard, ends in cluster.observer.gaps.items()})
    unfinished = [shard for (shard, _), reached in marks.items() if reached < gap.ends[shard]]
    assert unfinished, "the first leader was too fast: nothing is proved about the second"
    await cluster.start()
    through = await cluster.end()

    assert all(cluster.observer.gaps[shard] == {gap.ends[shard]} for shard in unfinished)
    outcomes = {job: _outcome(job, gap, through) for job in jobs}
    _assert_lanes(cluster, outcomes, once, through)
    _assert_explained(cluster, after_the_mark(marks), once)
    assert await _missed(cluster, mark) == _expected_missed(outcomes, gap)
    assert any(process.events("run_all_capped") for process in cluster.processes)
    published = by_run(cluster.recorder.records)
    report(
        f"3 h missed: {len(published)} runs, {sum(len(each) > 1 for each in published.values())} of them "
        f"published by both leaders, {sum(each.given_up for each in outcomes.values())} given up",
    )


async def test_more_than_a_day_without_a_leader(cluster: Cluster, report: Report) -> None:
    """Longer than the wheel reaches: what became due after its day is fired all the same, and only once."""
    mark = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=27)
    seldom = mark + timedelta(hours=26)
    monthly = f"{seldom.second} {seldom.minute} {seldom.hour} {seldom.day} * *"
    jobs = [*await cluster.register(20, schedule=monthly), *await cluster.register(20, schedule="@daily")]
    jobs = await cluster.made_valid(jobs, mark - timedelta(hours=1))
    once = await cluster.register_one_off(seldom + timedelta(minutes=30))
    await cluster.put_marks_back(mark)
    began = time.monotonic()
    await cluster.start()
    report(f"27 h missed: caught up {time.monotonic() - began:.1f} s after the start of the process")
    through = await cluster.end()
    gap = Gap(mark, {shard: min(ends) for shard, ends in cluster.observer.gaps.items()})
    _assert_lanes(cluster, {job: _outcome(job, gap, through) for job in jobs}, once, through)
    assert all(len(copies) == 1 for copies in by_run(cluster.recorder.records).values())


def _assert_lanes(cluster: Cluster, outcomes: dict[Tracked, Outcome], once: Run, through: int) -> None:
    """Exactly what the policies say is published, late work in the lane of late work."""
    expected = {run: lane for outcome in outcomes.values() for run, lane in outcome.runs.items()}
    expected[once] = Lane.CATCHUP
    records = [record for record in cluster.recorder.records if record.second <= through]
    assert {record.run: record.lane for record in records} == expected
    assert len({(record.run, record.lane) for record in records}) == len(expected)


def _assert_explained(cluster: Cluster, explains: Callable[[list[Record]], bool], once: Run) -> None:
    """Only what lay after the first leader's mark is published twice, or a timer that still stood."""
    for run, copies in by_run(cluster.recorder.records).items():
        assert len(copies) == 1 or run == once or explains(copies), copies


async def _jobs_of_all_policies(cluster: Cluster, mark: datetime) -> list[Tracked]:
    """Jobs that have existed for longer than the gap, except one."""
    middle, end = (mark + HOURS / 3).isoformat(), (mark + HOURS * 2 / 3).isoformat()
    fields: list[dict[str, Any]] = [
        {"schedule": schedule, "missed_window": policy}
        for schedule in (EVERY_MINUTE, "0 * * * *", "every 90s", "0 0 29 2 *")
        for policy in ("SKIP", "RUN_ONCE", "RUN_ALL")
    ]
    fields += [
        {"schedule": EVERY_MINUTE, "missed_window": "RUN_ALL", "max_missed": 10},
        {"schedule": EVERY_MINUTE, "missed_window": "RUN_ALL", "max_missed": 1000},
        {"schedule": EVERY_MINUTE, "missed_window": "SKIP", "grace_seconds": 7200},
        {"schedule": EVERY_MINUTE, "missed_window": "RUN_ALL", "grace_seconds": 30, "max_missed": 3},
        {"schedule": EVERY_MINUTE, "missed_window": "RUN_ALL", "jitter_seconds": 45},
        {"schedule": EVERY_MINUTE, "missed_window": "RUN_ONCE", "jitter_seconds": 45},
        {"schedule": EVERY_MINUTE, "missed_window": "RUN_ONCE", "ends_at": end},
        {"schedule": EVERY_MINUTE, "missed_window": "RUN_ALL", "starts_at": middle, "ends_at": end},
        {"schedule": EVERY_SECOND, "missed_window": "RUN_ONCE"},
        {"schedule": EVERY_SECOND, "missed_window": "SKIP"},
    ]
    old = [job for each in fields for job in await cluster.register(3, **each)]
    young = await cluster.register(3, schedule=EVERY_MINUTE, missed_window="RUN_ALL", max_missed=1000)
    return [
        *await cluster.made_valid(old, mark - timedelta(hours=1)),
        *await cluster.made_valid(young, mark + HOURS / 2),
    ]


def _outcome(job: Tracked, gap: Gap, through: int) -> Outcome:
    """By the gap's end what lies in the gap, and everything after it on time."""
    schedule, after, gap_to = job.schedule, _unpublished_since(job, gap.mark), gap.end(job)
    backlog = schedule.missed(job.job_id, after, gap_to, gap_to)
    runs = {}
    for moment in backlog.run:
        late = is_late(schedule.due(job.job_id, moment), gap_to, schedule.grace)
        runs[Run(job.job_id, to_microseconds(moment), 1)] = Lane.CATCHUP if late else Lane.NORMAL
    end = datetime.fromtimestamp(through, UTC)
    for moment in schedule.between(gap_to, end, limit=10_000):
        runs[Run(job.job_id, to_microseconds(moment), 1)] = Lane.NORMAL
    for moment in schedule.between(end - schedule.jitter, end, limit=10_000):  # not due yet, by its jitter
        if schedule.due(job.job_id, moment) > end:
            runs.pop(Run(job.job_id, to_microseconds(moment), 1), None)
    return Outcome(runs, len(schedule.between(after, gap_to, limit=20_000)) - len(backlog.run))


def _unpublished_since(job: Tracked, mark: datetime) -> datetime:
    """The mark, or just before an occurrence that its jitter had moved beyond the mark."""
    for moment in job.schedule.between(mark - job.schedule.jitter, mark, limit=10_000):
        if job.schedule.due(job.job_id, moment) > mark:
            return moment - timedelta(seconds=1)
    return mark


def _expected_missed(outcomes: dict[Tracked, Outcome], gap: Gap) -> dict[tuple[int, int], int]:
    """By cadence and end of the gap: one row each."""
    expected: Counter[tuple[int, int]] = Counter()
    for job, outcome in outcomes.items():
        expected[job.cadence_id, gap.ends[job.shard]] += outcome.given_up
    return {key: count for key, count in expected.items() if count}


async def _missed(cluster: Cluster, mark: datetime) -> dict[tuple[int, int], int]:
    rows = await cluster.database.fetch(
        "SELECT cadence_id, gap_from, extract(epoch FROM gap_to)::bigint AS gap_to, skipped FROM missed"
    )
    assert all(row["gap_from"] >= mark for row in rows)
    return {(row["cadence_id"], row["gap_to"]): row["skipped"] for row in rows}
