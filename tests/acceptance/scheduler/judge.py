"""The judge: compares what was recorded with what the schedules say, after the fact.

For a time through which every mark has moved, and jobs that nobody changed:

    lost         an occurrence that is due by then and was never published
    early        a message made before its second had come; both clocks are this machine's
    foreign      a message for an instant at which its job was never due
    repeated     a run that was published more than once; whether a fault explains it, each test says
    unordered    in one partition, a message of a shard behind one of a later epoch
    overtaken    in one partition and term, a message behind one that was due later
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

from mainspring.schedule import Schedule
from mainspring.schema.ids import to_microseconds
from tests.acceptance.scheduler.recorder import Record, Run, by_run


class Tracked(NamedTuple):
    """A job that the judge knows."""

    job_id: int
    shard: int
    cadence_id: int
    schedule: Schedule

    def runs(self, after: datetime, through: datetime) -> list[Run]:
        """Its first attempts, by nominal instant."""
        seconds = int((through - after).total_seconds()) + 2
        return [
            Run(self.job_id, to_microseconds(moment), 1)
            for moment in self.schedule.between(after, through, limit=max(seconds, 0))
        ]

    def runs_since_valid(self, through: datetime) -> list[Run]:
        assert self.schedule.valid_from is not None
        return self.runs(self.schedule.valid_from, through)


@dataclass(slots=True)
class Verdict:
    """What the judge found; see the page above."""

    runs: int = 0
    messages: int = 0
    lost: list[Run] = field(default_factory=list)
    early: list[Record] = field(default_factory=list)
    foreign: list[Record] = field(default_factory=list)
    repeated: dict[Run, list[Record]] = field(default_factory=dict)
    unordered: list[Record] = field(default_factory=list)
    overtaken: list[Record] = field(default_factory=list)

    def unexplained(self, explains: Callable[[list[Record]], bool]) -> dict[Run, list[Record]]:
        """The repeated runs whose messages no fault explains."""
        return {run: records for run, records in self.repeated.items() if not explains(records)}

    def assert_sound(self) -> None:
        """What holds under every fault there is."""
        assert self.runs > 0, "nothing was expected: the test itself is broken"
        assert not self.lost, f"{len(self.lost)} of {self.runs} lost, e.g. {_readable(self.lost)}"
        assert not self.early, f"{len(self.early)} early, e.g. {self.early[:3]}"
        assert not self.foreign, f"{len(self.foreign)} foreign, e.g. {self.foreign[:3]}"

    def figures(self) -> str:
        return f"{self.runs} runs, {self.messages} messages, {len(self.repeated)} runs published again"


def judge(records: Iterable[Record], jobs: Iterable[Tracked], through: float) -> Verdict:
    """Judge jobs that nobody changed, through a second that every mark has passed."""
    records = list(records)
    end = datetime.fromtimestamp(through, UTC)
    published = by_run(records)
    expected: set[Run] = set()
    for job in jobs:
        expected.update(job.runs_since_valid(end))
    verdict = Verdict(runs=len(expected), messages=len(records))
    verdict.lost = sorted(expected - published.keys())
    verdict.early = [record for record in records if record.published_at < record.second]
    known = {job.job_id: job for job in jobs}
    verdict.foreign = [
        record
        for run, copies in published.items()
        for record in copies
        if run not in expected and not _is_later(run, known, through)
    ]
    verdict.repeated = {run: copies for run, copies in published.items() if len(copies) > 1}
    verdict.unordered, verdict.overtaken = _out_of_order(records)
    return verdict


def after_the_mark(marks: Mapping[tuple[int, int], int]) -> Callable[[list[Record]], bool]:
    """Explains what a successor published again: the term before was cut off with that mark or a later one.

    `marks` are by shard and epoch, of the terms that were cut off, read when nothing could move them any more
    but what was already under way.
    """

    def explains(records: list[Record]) -> bool:
        epochs = sorted({record.epoch for record in records})
        if len(epochs) < len(records):  # one term has published it twice
            return False
        shard, second = records[0].shard, records[0].second
        return all((shard, epoch) in marks and second > marks[shard, epoch] for epoch in epochs[:-1])

    return explains


def _is_later(run: Run, jobs: Mapping[int, Tracked], through: float) -> bool:
    """Whether it is an occurrence of a job after what is judged."""
    job = jobs.get(run.job_id)
    if job is None or run.scheduled_at <= through * 1_000_000:
        return False
    moment = datetime.fromtimestamp(run.scheduled_at / 1_000_000, UTC)
    return run in job.runs(datetime.fromtimestamp(through, UTC), moment)


def _out_of_order(records: Iterable[Record]) -> tuple[list[Record], list[Record]]:
    newest: dict[tuple[str, int, int], int] = {}
    latest: dict[tuple[str, int, int, int], int] = {}
    unordered, overtaken = [], []
    for record in sorted(records, key=lambda each: each.offset):
        place = (record.lane, record.partition, record.shard)
        if record.epoch < newest.get(place, record.epoch):
            unordered.append(record)
        newest[place] = max(record.epoch, newest.get(place, record.epoch))
        term = (*place, record.epoch)
        if record.second < latest.get(term, record.second):
            overtaken.append(record)
        latest[term] = max(record.second, latest.get(term, record.second))
    return unordered, overtaken


def _readable(runs: Iterable[Run]) -> list[str]:
    return [
        f"{run.job_id} at {datetime.fromtimestamp(run.scheduled_at / 1_000_000, UTC).isoformat()}"
        for run in list(runs)[:5]
    ]
