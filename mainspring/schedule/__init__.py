"""When jobs are due. Pure: no clock, no input or output, nothing but values and functions.

    Cadence      a shared rule: `cron`, `every` or `at`, a time zone, a DST policy, a phase
    Schedule     one job's view of a cadence: what it owns, its jitter, what it wants of missed windows
    decide       the one rule about lateness, for leader and worker alike
    retry_delay  how long a failed run waits for its next attempt

Whoever needs to know when something happens asks `next_after`; there is no second way. Answers are always
UTC and always strictly after the question, so iterating from any point gives what iterating from the
beginning gives:

    Cadence.parse("30 2 * * *", "America/New_York").next_after(datetime(2026, 3, 8, tzinfo=UTC))
    # 2026-03-08T07:00:00Z: 02:30 does not exist on that day, so the first instant after the gap

Where to read: `fields` (the grammar), `wall` (gaps and repeats), `cron` (policy and evaluation),
`durations` and `instants` (`every`, `at`), `zones` (the pinned tz database), `lateness`, `jitter`,
`schedule` (missed windows), `backoff`, `words`.
"""

from __future__ import annotations

from mainspring.schedule.backoff import retry_delay
from mainspring.schedule.cadence import Cadence, Kind
from mainspring.schedule.dst import DstPolicy, Gap, Repeat
from mainspring.schedule.instants import format_instant, parse_instant
from mainspring.schedule.jitter import jitter_hash, jitter_offset
from mainspring.schedule.lateness import DEFAULT_GRACE, Verdict, decide, is_late
from mainspring.schedule.schedule import DEFAULT_MAX_MISSED, Backlog, Schedule
from mainspring.schedule.words import describe
from mainspring.schedule.zones import load_zone, tzdata_version
from mainspring.schema.states import MissedPolicy

__all__ = [
    "DEFAULT_GRACE",
    "DEFAULT_MAX_MISSED",
    "Backlog",
    "Cadence",
    "DstPolicy",
    "Gap",
    "Kind",
    "MissedPolicy",
    "Repeat",
    "Schedule",
    "Verdict",
    "decide",
    "describe",
    "format_instant",
    "is_late",
    "jitter_hash",
    "jitter_offset",
    "load_zone",
    "parse_instant",
    "retry_delay",
    "tzdata_version",
]
