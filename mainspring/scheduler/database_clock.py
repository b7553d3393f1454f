"""The clock of the database, as far as this process can know it.

Postgres's clock decides what is due, because it is the one clock that all leaders share. A sample is a
question with two readings of the own monotonic clock around it:

    asked  ──────  the database read its clock: D  ──────  answered

When the answer is here, the database's clock shows D or later; when the question was sent, it showed D or
earlier. So at any later moment m of the monotonic clock

    D + (m - answered)  ≤  database time  ≤  D + (m - asked)

and `now()` answers the *lower* bound: a slow round trip makes us late by its length, never early. A midpoint
would be off by half a round trip, which under a saturated CPU was measured at 133 ms.

Several samples narrow the interval: the highest lower bound and the lowest upper bound hold together as
long as both clocks run. Where they cross, one of the clocks was stepped, and the older samples are
forgotten. Samples age: one older than `_MEMORY` counts no more unless nothing newer exists, when Postgres
is away; then the monotonic clock carries on alone, with a drift allowance.

The own wall clock plays no part in this. The *offset* to it is only watched: an interval wholly beyond
250 ms is an alarm, beyond 1 s this process refuses to lead, because a machine whose clock is that wrong
writes logs and traces that mislead, and its other clocks deserve no trust either.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from mainspring.clock import Clock

ALARM = timedelta(milliseconds=250)
REFUSAL = timedelta(seconds=1)

_MEMORY = 30.0
_DRIFT = 200e-6
_SAMPLES = 64


@dataclass(frozen=True, slots=True)
class Offset:
    """Database time minus our wall clock, in seconds: somewhere in this interval."""

    low: float
    high: float

    def beyond(self, limit: timedelta) -> bool:
        """Whether the whole interval lies further away than this."""
        bound = limit.total_seconds()
        return self.low > bound or self.high < -bound


@dataclass(frozen=True, slots=True)
class _Sample:
    asked: float
    answered: float
    database: float  # seconds since 1970

    def low(self, moment: float) -> float:
        age = moment - self.answered
        return self.database + age - age * _DRIFT

    def high(self, moment: float) -> float:
        age = moment - self.asked
        return self.database + age + age * _DRIFT


class DatabaseClock:
    """An interval that contains the database's time; `now` is its lower end."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._samples: deque[_Sample] = deque(maxlen=_SAMPLES)

    def add(self, *, asked: float, answered: float, database: datetime) -> None:
        """Learn from one question: both readings are of the injected clock's `monotonic`."""
        sample = _Sample(asked, answered, database.timestamp())
        moment = sample.answered
        kept = [old for old in self._samples if moment - old.answered <= _MEMORY]
        # Bounds that cross cannot both be true: a clock was stepped, and only the newest sample knows to
        # where.
        if any(
            old.low(moment) > sample.high(moment) or old.high(moment) < sample.low(moment) for old in kept
        ):
            kept = []
        self._samples = deque([*kept, sample], maxlen=_SAMPLES)

    def monotonic(self) -> float:
        """The clock that durations are measured by."""
        return self._clock.monotonic()

    @property
    def known(self) -> bool:
        """Whether there has been an answer at all."""
        return bool(self._samples)

    def now(self) -> float:
        """The lower bound of the database's time, in seconds since 1970."""
        return self._low(self._clock.monotonic())

    def utc(self) -> datetime:
        """The same as an aware datetime."""
        return datetime.fromtimestamp(self.now(), UTC)

    def uncertainty(self) -> float:
        """The width of the interval, in seconds."""
        moment = self._clock.monotonic()
        return self._high(moment) - self._low(moment)

    def offset(self) -> Offset:
        """Where the database's clock stands relative to our wall clock, now.

        The wall clock is read between two readings of the monotonic one: a process that is held up between
        them, or between an answer and this question, sees a wider interval and not a wrong one.
        """
        before = self._clock.monotonic()
        wall = self._clock.now().timestamp()
        after = self._clock.monotonic()
        return Offset(self._low(before) - wall, self._high(after) - wall)

    def _low(self, moment: float) -> float:
        return max(sample.low(moment) for sample in self._samples)

    def _high(self, moment: float) -> float:
        return min(sample.high(moment) for sample in self._samples)
