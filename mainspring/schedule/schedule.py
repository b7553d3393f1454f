"""A job's schedule: a cadence, the part of it that the job owns, and what happens to what was missed.

A cadence is shared and endless. A job owns the occurrences that are

    after `valid_from`              set by create, by an edit of the schedule and by resume, so that nothing
                                    fires for a time when the job did not exist, was different, or was paused
    from `starts_at` on, inclusive  and before `ends_at`, exclusive: two jobs that take turns do not overlap

`valid_from` does not bind an `at`: its one instant may lie in the past on purpose, and then fires at once
or not at all, as the missed-window policy says.

**Missed windows.** After a time in which nothing could be published, `missed` says what to do with a job's
occurrences in `(after, through]`. Each is judged by the rule of `mainspring.schedule.lateness`, so the
worker will agree: what is still within `grace` runs; of the late ones, `SKIP` runs none, `RUN_ONCE` the
newest unless an even newer one is due, `RUN_ALL` all. `RUN_ALL` is capped: of more than `max_missed` late
occurrences the *newest* are kept, since whoever catches up wants the state of today more than that of the
first day of an outage. The rest is counted, not listed: nobody should walk a year of seconds to be told
that it is a lot.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from mainspring.schedule.cadence import Cadence, Kind
from mainspring.schedule.jitter import check_jitter, jitter_offset
from mainspring.schedule.lateness import DEFAULT_GRACE, Verdict, decide, is_late
from mainspring.schema.errors import InvalidInput
from mainspring.schema.states import MissedPolicy

DEFAULT_MAX_MISSED = 100
LARGEST_MAX_MISSED = 10_000
COUNTED = 10_000
"""How far dropped occurrences are counted."""

_TICK = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Backlog:
    """What a gap left behind: the occurrences to run, oldest first, and how many were given up.

    `dropped` is exact up to COUNTED; a larger number of them is reported as COUNTED with `more` set.
    """

    run: tuple[datetime, ...]
    dropped: int
    more: bool = False


@dataclass(frozen=True, slots=True)
class Schedule:
    """When one job is due, and what it wants when that could not be kept."""

    cadence: Cadence
    valid_from: datetime | None = None
    starts_at: datetime | None = None
    ends_at: datetime | None = None
    jitter: timedelta = timedelta(0)
    missed_policy: MissedPolicy = MissedPolicy.RUN_ONCE
    grace: timedelta = DEFAULT_GRACE
    max_missed: int = DEFAULT_MAX_MISSED

    def __post_init__(self) -> None:
        for field in ("valid_from", "starts_at", "ends_at"):
            moment = getattr(self, field)
            if moment is not None and moment.utcoffset() is None:
                raise InvalidInput(field, "needs an offset or Z")
        if self.starts_at is not None and self.ends_at is not None and self.ends_at <= self.starts_at:
            raise InvalidInput("ends_at", "is not after starts_at")
        if self.grace < timedelta(0):
            raise InvalidInput("grace", "is negative")
        if not 1 <= self.max_missed <= LARGEST_MAX_MISSED:
            raise InvalidInput("max_missed", f"{self.max_missed} is not in 1–{LARGEST_MAX_MISSED}")
        check_jitter(self.jitter)

    def next_after(self, instant: datetime) -> datetime | None:
        """The job's first own occurrence strictly after this instant; None when it has no more."""
        return self.own_following(self.cadence.next_after(self._not_before(instant)))

    def own_following(self, following: datetime | None) -> datetime | None:
        """A later occurrence of the cadence, if the job still owns it: None from `ends_at` on."""
        if following is None or (self.ends_at is not None and following >= self.ends_at):
            return None
        return following

    def between(self, after: datetime, through: datetime, limit: int) -> list[datetime]:
        """The job's own occurrences in (after, through], oldest first, at most `limit`."""
        return self.cadence.between(self._not_before(after), self._not_after(through), limit)

    def due(self, job_id: int, scheduled_at: datetime) -> datetime:
        """When this occurrence is to start: its nominal instant and the job's jitter."""
        if not self.jitter:
            return scheduled_at
        following = self.cadence.next_after(scheduled_at)
        return scheduled_at + jitter_offset(job_id, self.jitter, scheduled_at, following)

    def missed(self, job_id: int, after: datetime, through: datetime, now: datetime) -> Backlog:
        """Decide, at `now`, about the job's own occurrences in (after, through] that were not published."""
        start, end = self._not_before(after), self._not_after(through)
        # Up to `edge` everything is late whatever its jitter; the rest is short, and judged one by one.
        edge = max(start, min(end, now - self.grace - self.jitter - timedelta(seconds=1)))
        recent = self.cadence.between(edge, end, limit=_seconds(edge, end))
        late = [moment for moment in recent if is_late(self.due(job_id, moment), now, self.grace)]
        on_time = recent[len(late) :]  # due times keep the order of occurrences, so the late ones come first
        newest = [*self.cadence.newest(start, edge, self._most_late_runs), *late][-self._most_late_runs :]
        run = [moment for moment in newest if self._verdict(job_id, moment, now) is Verdict.RUN]
        counted = self.cadence.count(start, edge, COUNTED + len(run) + 1)
        dropped = counted + len(late) - len(run)
        return Backlog((*run, *on_time), min(dropped, COUNTED), more=dropped > COUNTED)

    @property
    def _most_late_runs(self) -> int:
        return self.max_missed if self.missed_policy is MissedPolicy.RUN_ALL else 1

    def _verdict(self, job_id: int, scheduled_at: datetime, now: datetime) -> Verdict:
        return decide(
            due=self.due(job_id, scheduled_at),
            now=now,
            grace=self.grace,
            policy=self.missed_policy,
            following=self.next_after(scheduled_at),
        )

    def _not_before(self, instant: datetime) -> datetime:
        """The exclusive lower bound that ownership leaves of `instant`."""
        bounds = [instant]
        if self.valid_from is not None and self.cadence.kind is not Kind.AT:
            bounds.append(self.valid_from)
        if self.starts_at is not None:
            bounds.append(self.starts_at - _TICK)
        return max(bounds)

    def _not_after(self, instant: datetime) -> datetime:
        """The inclusive upper bound that ownership leaves of `instant`."""
        return instant if self.ends_at is None else min(instant, self.ends_at - _TICK)


def _seconds(after: datetime, through: datetime) -> int:
    """No more occurrences than this fit into (after, through]."""
    return max(0, -((after - through) // timedelta(seconds=1))) + 1
