"""The injected clock: wall time for the wire and the database, monotonic time for deadlines."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """What a service may ask about time. Deadlines use `monotonic`; `now` is only ever shown or stored."""

    def now(self) -> datetime:
        """The wall clock, aware, in UTC."""

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back."""


class SystemClock:
    """The machine's own clocks."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()


class ManualClock:
    """A clock that moves only when told to; the wall may be stepped apart from the monotonic one."""

    def __init__(self, start: datetime) -> None:
        if start.tzinfo is None:
            raise ValueError("start must be an aware datetime")
        self._now = start.astimezone(UTC)
        self._monotonic = 0.0

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, by: timedelta) -> None:
        """Let time pass: both clocks move."""
        if by < timedelta(0):
            raise ValueError("time does not pass backwards; use step_wall to move the wall clock back")
        self._now += by
        self._monotonic += by.total_seconds()

    def step_wall(self, by: timedelta) -> None:
        """Step the wall clock alone, as an operator or NTP does."""
        self._now += by
