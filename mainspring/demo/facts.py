"""What the judge may know: the window, the run history, the dead letters, the journal, the takeover."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

SUCCEEDED = "succeeded"
RUNNING = "running"


@dataclass(frozen=True, slots=True)
class Attempt:
    """One run, as the API shows it."""

    run_id: str
    job: str
    scheduled_at: datetime
    attempt: int
    status: str
    started_at: datetime | None = None
    finished_at: datetime | None = None

    @property
    def lateness(self) -> float | None:
        """From due to started, in seconds; of a first attempt, since a retry is due later."""
        if self.started_at is None or self.attempt > 1:
            return None
        return (self.started_at - self.scheduled_at).total_seconds()


@dataclass(frozen=True, slots=True)
class Call:
    """A line of the journal: a handler was called."""

    job: str
    scheduled_at: datetime
    attempt: int


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter."""

    job: str
    scheduled_at: datetime
    attempt: int


@dataclass(frozen=True, kw_only=True)
class Takeover:
    """What became of the shards of a scheduler that was killed."""

    killed: str
    killed_at: datetime
    shards: int
    taken_by: Mapping[str, int] = field(default_factory=dict)
    taken_seconds: float | None = None
    resumed_seconds: float | None = None
    """From the kill to the start of the first run that was due after it, on a shard of the killed one."""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Occurrences in (after, through] are judged; `takeover` is None when nobody was killed."""

    after: datetime
    through: datetime
    attempts: Sequence[Attempt]
    calls: Sequence[Call]
    letters: Sequence[Letter]
    progress: Mapping[str, str | None]
    """Of each run that marches: the newest that its history has."""
    takeover: Takeover | None

    def of(self, job: str) -> dict[datetime, list[Attempt]]:
        """A job's attempts by occurrence."""
        found: dict[datetime, list[Attempt]] = {}
        for attempt in self.attempts:
            if attempt.job == job:
                found.setdefault(attempt.scheduled_at, []).append(attempt)
        return found

    def calls_of(self, job: str) -> Counter[datetime]:
        return Counter(call.scheduled_at for call in self.calls if call.job == job)


def read_journal(lines: Iterable[str]) -> list[Call]:
    """The journal's lines; one that is still being written has no end yet."""
    whole = [line.split() for line in lines if line.endswith("\n")]
    return [Call(job, datetime.fromisoformat(at), int(attempt)) for job, at, attempt in whole]
