"""The model: which occurrences must have run, which may have, and when each was due.

A job's *era* is a time in which it was active under one schedule: the versions that share `valid_from`. What
an era owned is known exactly. Whether it was published depends on what its leader knew, and that can be
read off the shard, whose mark says how far it has fired, and whose `seen` says which changes it had applied:

    must    the era never ended; or the mark was seen to pass the due time, by a leader that knew the era,
            before the era ended. Unless it came so late that its policy may have given it up
    may     due before the shard had seen the end of the era
    else    not at all

A timer that was committed must become a run, unless its job was paused or deleted in the end. There is no
constant in here for how fast anybody hears of a change.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import accumulate

from mainspring.schedule import Cadence, Schedule
from tests.robustness.faults import Fault
from tests.robustness.history import History, Key, Occurrence, Version
from tests.robustness.watch import Look

RECURRING = ("cron", "every")
STOPPED = ("paused", "deleted")
CERTAIN_GRACE = 3600
"""Whatever is lost from a topic is found within it."""
_DISTURBS_KAFKA = ("broker", "records")
_CERTAIN_LATE_SECONDS = 90  # so far RUN_ALL keeps every occurrence of a second
_UNREAD_SECONDS = 150  # what a deletion of records may have reached


class Shard:
    """When a shard was first seen to have come so far."""

    def __init__(self, looks: Sequence[Look]) -> None:
        self._times = [look.at for look in looks]
        self._marks = list(accumulate((look.mark for look in looks), max))
        self._seen = list(accumulate((look.seen for look in looks), max))

    def passed(self, second: float) -> float:
        """The mark: everything due up to then has been published."""
        return self._at(bisect_left(self._marks, second))

    def knew(self, xid: int) -> float:
        """The leader: it had applied what this transaction changed."""
        return self._at(bisect_right(self._seen, xid))

    def _at(self, place: int) -> float:
        return self._times[place] if place < len(self._times) else math.inf


@dataclass(slots=True)
class Model:
    """What is expected."""

    must: set[Occurrence] = field(default_factory=set)
    may: set[Occurrence] = field(default_factory=set)
    """Those of `must` too."""
    due: dict[Key, float] = field(default_factory=dict)
    """The earliest at which an attempt may start."""
    timers: set[Key] = field(default_factory=set)
    """Which must have become runs."""
    versions: dict[int, list[Version]] = field(default_factory=dict)
    """Of each job, in order."""


def build(history: History) -> Model:
    """The model of a history."""
    model = Model(versions=_by_job(history.versions))
    shards = {shard: Shard(looks) for shard, looks in history.looks.items()}
    for versions in model.versions.values():
        for era, following in _eras(versions):
            _expect(model, history, shards[era[0].shard], era, following)
    _expect_timers(model, history)
    return model


def _by_job(versions: Sequence[Version]) -> dict[int, list[Version]]:
    found: defaultdict[int, list[Version]] = defaultdict(list)
    for version in versions:
        found[version.job_id].append(version)
    return dict(found)


def _eras(versions: Sequence[Version]) -> Iterator[tuple[list[Version], Version | None]]:
    """Stretches of versions under one schedule, and the version that ended each."""
    era: list[Version] = []
    for version in versions:
        if era and _rule(version) != _rule(era[0]):
            yield era, version
            era = []
        if version.status == "active" and version.kind in RECURRING:
            era.append(version)
    if era:
        yield era, None


def _rule(version: Version) -> tuple[object, ...]:
    return (
        version.status,
        version.kind,
        version.schedule,
        version.timezone,
        version.valid_from,
        version.jitter,
    )


def _expect(
    model: Model, history: History, shard: Shard, era: list[Version], following: Version | None
) -> None:
    """What one era owes."""
    first, last = era[0], era[-1]
    began = shard.knew(first.xid)
    forgotten = math.inf if following is None else shard.knew(following.xid)
    closing = next((version for version in era if version.ends_at is not None), None)
    ends_at = math.inf if closing is None or closing.ends_at is None else closing.ends_at
    closed = math.inf if closing is None else ends_at if closing is first else shard.knew(closing.xid)
    for scheduled, due in _owned(first, min(forgotten, history.closes_at + 60)):
        if due > forgotten or (scheduled >= ends_at and due > closed):
            continue
        occurrence = first.job_id, round(scheduled * 1_000_000)
        key = (*occurrence, 1)
        model.may.add(occurrence)
        model.due[key] = min(due, model.due.get(key, math.inf))
        published = max(shard.passed(due), began)
        if scheduled < ends_at and _is_sure(history.faults, last, following, due, published):
            model.must.add(occurrence)


def _owned(version: Version, through: float) -> Iterator[tuple[float, float]]:
    """The nominal instants of an era, whatever its end, and when each is due."""
    schedule = Schedule(
        _cadence(version.schedule, version.timezone),
        valid_from=version.valid_from,
        jitter=timedelta(seconds=version.jitter),
    )
    start, end = version.valid_from, datetime.fromtimestamp(through, UTC)
    for moment in schedule.between(start, end, limit=1_000_000):
        yield moment.timestamp(), schedule.due(version.job_id, moment).timestamp()


@lru_cache(maxsize=1000)
def _cadence(schedule: str, timezone: str) -> Cadence:
    return Cadence.parse(schedule, timezone)


def _is_sure(
    faults: Sequence[Fault], last: Version, following: Version | None, due: float, published: float
) -> bool:
    """Whether nothing can have kept it from having a run."""
    if following is not None:
        put_off = last.overlap in ("queue_one", "cancel_running") or _disturbed(faults, due, published)
        if put_off or published >= following.committed_at:
            return False
    if any(
        fault.kind == "records.delete" and fault.begin - _UNREAD_SECONDS <= due <= fault.end
        for fault in faults
    ):
        return last.missed_window == "RUN_ALL" or last.grace >= CERTAIN_GRACE
    late = published - due
    return late <= last.grace or (last.missed_window == "RUN_ALL" and late <= _CERTAIN_LATE_SECONDS)


def _disturbed(faults: Sequence[Fault], due: float, published: float) -> bool:
    """A topic that takes nothing has its messages put off as timers, which a pause or a delete takes away."""
    return any(
        fault.part in _DISTURBS_KAFKA and fault.begin <= published and fault.end >= due - 5
        for fault in faults
    )


def _expect_timers(model: Model, history: History) -> None:
    lost = [fault for fault in history.faults if fault.kind == "records.delete"]
    for timer in history.timers:
        job_id, scheduled_at, _ = timer.key
        if timer.cause != "deferred":
            model.may.add((job_id, scheduled_at))
        model.due[timer.key] = min(timer.due_at, model.due.get(timer.key, math.inf))
        newest = model.versions[job_id][-1]
        was_moved = newest.run_at != scheduled_at and timer.cause not in ("trigger", "dependency")
        if newest.status in STOPPED or (newest.kind == "at" and was_moved):
            continue
        if any(fault.begin - _UNREAD_SECONDS <= timer.due_at <= fault.end for fault in lost):
            continue
        model.timers.add(timer.key)
