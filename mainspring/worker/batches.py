"""What a worker holds of the runs it has claimed: plain data, touched by the event loop alone.

A `Batch` is one claim. Its bytes are the truth about its runs until they are flushed: an outcome is set
once, and never taken back. `Ending` says how a run ended; what a plain success needs is one byte and two
numbers, so only what is more than that gets an `Ending` of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from mainspring.schema.messages import Message
from mainspring.schema.states import DeadReason, Lane, Outcome
from mainspring.worker.context import Context, LogLine


class Record(NamedTuple):
    """A message as it lies in Kafka."""

    lane: Lane
    partition: int
    offset: int
    value: bytes
    appended_ms: int


class Ending(NamedTuple):
    """How a run ended, where it is more than a success without a word."""

    outcome: Outcome
    error: str = ""
    traceback: str | None = None
    after: timedelta | None = None  # when a next attempt is due; None: there is none
    spends: bool = True  # whether that attempt spends a retry
    reason: DeadReason = DeadReason.EXHAUSTED
    result: bytes | None = None
    lines: Sequence[LogLine] = ()


SUCCESS = Ending(Outcome.SUCCEEDED)


class Why(StrEnum):
    """Why a run was asked to stop."""

    TIMEOUT = "timeout"
    CANCELLED = "cancelled"  # somebody asked for it
    HANDED_BACK = "handed_back"  # the worker stops
    LOST = "lost"  # the worker was taken for dead: the run is somebody else's


class Stop(NamedTuple):
    """A request to stop, and when it was made (monotonic)."""

    why: Why
    reason: str
    at: float


class Run:
    """One claimed run, until its ending is flushed."""

    __slots__ = ("batch", "began", "context", "deadline", "message", "position", "stop", "task")

    def __init__(self, batch: Batch, position: int, message: Message) -> None:
        self.batch = batch
        self.position = position
        self.message = message
        self.began = self.deadline = 0.0
        self.stop: Stop | None = None
        self.context: Context | None = None
        self.task: asyncio.Task[None] | None = None

    @property
    def is_open(self) -> bool:
        """Whether it has no outcome yet."""
        return not self.batch.outcomes[self.position]


class News(NamedTuple):
    """A line that a run has logged and that nobody can read yet."""

    run: Run
    number: int
    line: LogLine


class Batch:
    """One claim: its runs, and what is known of each."""

    __slots__ = (
        "claimed_at",
        "claimed_monotonic",
        "claimed_unix",
        "ended_ms",
        "endings",
        "flushed",
        "flushed_at",
        "id",
        "is_ours",
        "open",
        "outcomes",
        "runs",
        "started_ms",
    )

    def __init__(
        self, claim_id: int, claimed_at: datetime, claimed_monotonic: float, outcomes: bytes
    ) -> None:
        self.id = claim_id
        self.claimed_at = claimed_at
        self.claimed_unix = claimed_at.timestamp()
        self.claimed_monotonic = claimed_monotonic
        self.outcomes = bytearray(outcomes)
        self.started_ms: list[int | None] = [None] * len(outcomes)
        self.ended_ms: list[int | None] = [None] * len(outcomes)
        self.open = outcomes.count(Outcome.PENDING)
        self.runs: list[Run] = []
        self.endings: list[tuple[Run, Ending]] = []
        """Ended and not flushed, but for plain successes."""
        self.flushed = self.open
        """How many were open at the last flush."""
        self.flushed_at = claimed_monotonic
        self.is_ours = True

    def begin(self, position: int, monotonic: float) -> None:
        """Note when a run began."""
        self.started_ms[position] = int((monotonic - self.claimed_monotonic) * 1000)

    def instant(self, milliseconds: int | None) -> datetime | None:
        """The same as a time of day."""
        return None if milliseconds is None else self.claimed_at + timedelta(milliseconds=milliseconds)

    def end(self, run: Run, ending: Ending, monotonic: float) -> None:
        """Set a run's outcome; the first one stands."""
        if self.outcomes[run.position]:
            return
        self.outcomes[run.position] = ending.outcome
        self.ended_ms[run.position] = int((monotonic - self.claimed_monotonic) * 1000)
        self.open -= 1
        self.endings.append((run, ending))

    @property
    def is_dirty(self) -> bool:
        return self.open < self.flushed
