"""What is to become of a batch of messages, decided before it is written: pure.

Every message ends in exactly one of these:

    a run to be executed           a position with the byte 0
    a run that is born final       a position with its outcome, and a row in `failures`
    a timer                        the same attempt, later: over a limit, no handler here, behind another run
    a dead letter                  nobody could read it

Each is counted by shard and second, so that the bookkeeper can compare it with what was published; what
nobody could read cannot be counted, and is therefore looked for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

from mainspring.registry.letters import Letter
from mainspring.schedule import Verdict, decide
from mainspring.schema.ids import from_microseconds
from mainspring.schema.messages import Message
from mainspring.schema.states import Outcome, TimerCause

Key = tuple[int, int, int]
"""A run: job, scheduled_at, attempt."""


class NewTimer(NamedTuple):
    """A row of `timers` to be written."""

    shard: int
    due_at: datetime
    job_id: int
    scheduled_at: int
    attempt: int
    retries: int
    losses: int
    cause: TimerCause


class Final(NamedTuple):
    """A run that is over before it began."""

    position: int
    outcome: Outcome
    error: str


@dataclass(slots=True)
class Plan:
    """One claim to be written."""

    runs: list[Message] = field(default_factory=list)
    outcomes: bytearray = field(default_factory=bytearray)
    finals: list[Final] = field(default_factory=list)
    timers: list[NewTimer] = field(default_factory=list)
    letters: list[Letter] = field(default_factory=list)
    forgotten: list[Message] = field(default_factory=list)  # whose deferral is over
    tally: Counter[tuple[int, int]] = field(default_factory=Counter)

    def execute(self, message: Message) -> None:
        self.runs.append(message)
        self.outcomes.append(Outcome.PENDING)
        self.tally[message.shard, message.second] += 1

    def finish(self, message: Message, outcome: Outcome, error: str) -> None:
        self.finals.append(Final(len(self.runs), outcome, error))
        self.runs.append(message)
        self.outcomes.append(outcome)
        self.tally[message.shard, message.second] += 1

    def put_off(self, message: Message, now: datetime, delay: timedelta) -> None:
        """The same attempt, later."""
        self.timers.append(
            NewTimer(
                message.shard,
                now + delay,
                message.job.job_id,
                message.scheduled_at,
                message.attempt,
                message.retries,
                message.losses,
                TimerCause.DEFERRED,
            )
        )
        self.tally[message.shard, message.second] += 1

    def void(self, positions: Iterable[int]) -> None:
        """These runs are somebody else's: the messages were copies."""
        for position in positions:
            self.outcomes[position] = Outcome.VOID
            self.tally[self.runs[position].shard, self.runs[position].second] -= 1
        self.finals = [each for each in self.finals if self.outcomes[each.position] != Outcome.VOID]
        if self.letters:
            ours = {key_of(self.runs[each.position]) for each in self.finals}
            self.letters = [
                each for each in self.letters if (each.job_id, each.scheduled_at, each.attempt) in ours
            ]

    @property
    def bytes(self) -> bytes:
        """The claim's outcomes; a claim of nothing but timers has a void position."""
        return bytes(self.outcomes) or bytes([Outcome.VOID])

    @property
    def is_finished(self) -> bool:
        return Outcome.PENDING not in self.outcomes

    def tallies(self) -> tuple[list[int], list[datetime], list[int]]:
        """Shards, seconds and counts side by side."""
        counted = sorted((key, count) for key, count in self.tally.items() if count > 0)
        return (
            [shard for (shard, _), _ in counted],
            [from_microseconds(second * 1_000_000) for (_, second), _ in counted],
            [count for _, count in counted],
        )


def key_of(message: Message) -> Key:
    return message.job.job_id, message.scheduled_at, message.attempt


def is_missed(message: Message, now: datetime) -> bool:
    """Whether it comes too late, by the job's policy; whole seconds, as grace is."""
    job = message.job
    verdict = decide(
        due=from_microseconds(message.second * 1_000_000),
        now=now.replace(microsecond=0),
        grace=timedelta(seconds=job.grace_seconds),
        policy=job.missed_window,
        following=from_microseconds(message.following) if message.following else None,
    )
    return verdict is Verdict.MISSED
