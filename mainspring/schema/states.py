"""The words of jobs and runs, each defined once: outcomes, states, lanes, policies, topics.

Values that reach Postgres as text are the enums' own values, and a CHECK in the table repeats them; a test
compares the two. Outcomes reach Postgres as one byte per run inside a claim, so their codes are part of the
stored format: never renumber one, only add.
"""

from __future__ import annotations

import re
from enum import IntEnum, StrEnum

from mainspring.schema.errors import InvalidInput

MAXIMUM_ATTEMPT = 32_767  # `attempt` is a smallint
LOWEST_PRIORITY = 0
HIGHEST_PRIORITY = 9
DEFAULT_PRIORITY = 5


class Outcome(IntEnum):
    """How a run ended: the byte at its position in `claims.outcomes`."""

    PENDING = 0  # not yet: the run is `running`
    SUCCEEDED = 1
    FAILED = 2  # a next attempt exists
    DEAD = 3  # no attempt is left; a dead letter exists
    CANCELLED = 4
    LOST = 5  # its worker died
    SKIPPED = 6  # never executed: another run of the job was under way
    RECALLED = 7  # never executed: the job was paused or deleted
    MISSED = 8  # never executed: too late, by the job's policy
    VOID = 9  # this position was not won: another claim holds the run, this one has no row in `runs`

    @property
    def word(self) -> str:
        """The name people see, in the API and in `run_history`."""
        return "running" if self is Outcome.PENDING else self.name.lower()


BORN_FINAL = frozenset({Outcome.SKIPPED, Outcome.RECALLED, Outcome.MISSED})


class State(StrEnum):
    """Where a run is before it has an outcome."""

    SCHEDULED = "scheduled"
    WAITING = "waiting"
    QUEUED = "queued"
    RUNNING = "running"


class JobKind(StrEnum):
    """What decides when a job is due."""

    CRON = "cron"
    EVERY = "every"
    AT = "at"
    AFTER = "after"


RECURRING = frozenset({JobKind.CRON, JobKind.EVERY})  # the kinds that have a cadence


class JobStatus(StrEnum):
    """Whether a job fires."""

    ACTIVE = "active"
    PAUSED = "paused"
    COMPLETED = "completed"  # a one-off that has run; collected later
    DELETED = "deleted"  # a tombstone: kept until its topic's retention has passed


class TimerCause(StrEnum):
    """Why a one-time due instant exists."""

    ONE_OFF = "one_off"
    RETRY = "retry"
    TRIGGER = "trigger"
    DEPENDENCY = "dependency"
    BACKFILL = "backfill"
    REDRIVE = "redrive"
    DEFERRED = "deferred"  # the same attempt, later: over a limit, handler not here, topic not writable


class MissedPolicy(StrEnum):
    """What happens to an occurrence later than the job's grace."""

    SKIP = "SKIP"
    RUN_ONCE = "RUN_ONCE"
    RUN_ALL = "RUN_ALL"


class Overlap(StrEnum):
    """What happens to a run while an earlier one of the same job is still running."""

    ALLOW = "allow"
    SKIP = "skip"
    QUEUE_ONE = "queue_one"
    CANCEL_RUNNING = "cancel_running"


class Backoff(StrEnum):
    """How the wait before the next attempt grows."""

    EXPONENTIAL = "exponential"
    LINEAR = "linear"
    FIXED = "fixed"
    NONE = "none"


class OnFailure(StrEnum):
    """What a dependent does when a parent did not succeed."""

    SKIP = "skip"
    RUN = "run"


class DeadReason(StrEnum):
    """Why a message became a dead letter."""

    EXHAUSTED = "exhausted"  # it failed, and no retry is left
    KILLED_WORKERS = "killed_workers"  # every worker that took it died
    UNKNOWN_HANDLER = "unknown_handler"
    TOO_LARGE = "too_large"
    UNREADABLE = "unreadable"
    EXPIRED = "expired"  # older than runs are kept: nobody can say whether it was executed


class LogLevel(StrEnum):
    """How a run's log line is meant; `progress` replaces what was said before."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    PROGRESS = "progress"


class Lane(StrEnum):
    """Urgency inside a pool; each lane is one Kafka topic."""

    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"
    CATCHUP = "catchup"  # late work, whatever its priority


# 0–3 low, 4–6 normal, 7–9 high: a lookup, because the leader asks once per member it loads.
_LANE_OF_PRIORITY = (Lane.LOW,) * 4 + (Lane.NORMAL,) * 3 + (Lane.HIGH,) * 3

# Kafka allows [a-zA-Z0-9._-] up to 249 characters. Dots and underscores are left out because Kafka's metrics
# confuse them with each other and because the dot separates the parts here; capitals because names that
# differ only in case are mistaken for one another.
_POOL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)


def lane_of(priority: int) -> Lane:
    """The lane on which a job of this priority travels when it is on time."""
    if not LOWEST_PRIORITY <= priority <= HIGHEST_PRIORITY:
        raise InvalidInput("priority", f"{priority} is not in {LOWEST_PRIORITY}–{HIGHEST_PRIORITY}")
    return _LANE_OF_PRIORITY[priority]


def check_pool(pool: str) -> str:
    """The pool's name, if a topic can be named after it."""
    if not _POOL.fullmatch(pool):
        rule = "is not 1–63 lower-case letters, digits or hyphens that start and end with a letter or digit"
        raise InvalidInput("pool", f"{pool!r} {rule}")
    return pool


def topic_of(pool: str, lane: Lane) -> str:
    """The topic that carries one lane of one pool."""
    return f"mainspring.{check_pool(pool)}.{lane}"


def dead_topic_of(pool: str) -> str:
    """The topic that receives a copy of each of the pool's dead letters."""
    return f"mainspring.{check_pool(pool)}.dead"
