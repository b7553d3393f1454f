"""A database with a clock of its own, and a process that asks it for the time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from mainspring.clock import ManualClock
from mainspring.scheduler.database_clock import DatabaseClock

START = datetime(2026, 1, 1, tzinfo=UTC)


class World:
    """Both clocks, from outside. `drift` is how much faster the database's runs: 1e-6 is a millionth."""

    def __init__(self, *, ahead: float = 0.0) -> None:
        self.machine = ManualClock(START)
        self.clock = DatabaseClock(self.machine)
        self.truth = START.timestamp() + ahead
        self.drift = 0.0

    def step(self, by: float) -> None:
        """An operator sets the database's clock."""
        self.truth += by

    def wait(self, seconds: float) -> None:
        self.machine.advance(timedelta(seconds=seconds))
        self.truth += seconds * (1 + self.drift)

    def ask(self, there: float = 0.0, back: float = 0.0, *, held_up: float = 0.0) -> None:
        """A question that takes these seconds there and back, and waits to be taken note of."""
        asked = self.machine.monotonic()
        self.wait(there)
        database = datetime.fromtimestamp(self.truth, UTC)
        self.wait(back)
        answered = self.machine.monotonic()
        self.wait(held_up)
        self.clock.add(asked=asked, answered=answered, database=database)

    @property
    def error(self) -> float:
        """How far the answer is from the truth; above zero it would fire early."""
        return self.clock.now() - self.truth
