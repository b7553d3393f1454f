"""A leader of one shard, from outside: what is loaded, what the feed brings, and what leaves each second."""

from __future__ import annotations

from collections.abc import Iterable

from mainspring.schedule import Cadence
from mainspring.scheduler.expansion import Bucket
from mainspring.scheduler.rosters import JobRow
from mainspring.scheduler.terms import Term
from tests.unit.scheduler.rows import (
    CADENCE_ID,
    EPOCH,
    EVERY_MINUTE,
    MIDNIGHT,
    SHARD,
    Message,
    at,
    messages,
)

WINDOW = 600


class Leader:
    """Loads like the loader and fires like firing; seconds are counted from midnight."""

    def __init__(self, *, mark: int = 0, now: int | None = None, gap_to: int | None = None) -> None:
        self.term = Term(
            SHARD, EPOCH, mark=MIDNIGHT + mark, gap_to=None if gap_to is None else MIDNIGHT + gap_to
        )
        self.now = mark if now is None else now
        self.term.horizon = self.term.loaded_through = MIDNIGHT + self.now + WINDOW

    def load(
        self,
        *rows: JobRow,
        cadence: Cadence = EVERY_MINUTE,
        cadence_id: int = CADENCE_ID,
        max_jitter: int | None = None,
        owed: Iterable[JobRow] = (),
        since: int | None = None,
    ) -> Leader:
        """Bring a cadence with these members, as a snapshot has them."""
        self.term.begin_loading(cadence_id, cadence)
        for row in rows:
            self.term.load_member(row)
        self.term.adopt(
            cadence_id,
            max_jitter=max((row.jitter_seconds for row in rows), default=0)
            if max_jitter is None
            else max_jitter,
            owed=owed,
            since=self.term.fired if since is None else MIDNIGHT + since,
        )
        return self

    def begin(self) -> Leader:
        """The first load is over: what comes now is news."""
        self.term.ready = True
        return self

    def extend(self, through: int) -> None:
        """The window moves on; nothing new is found in it."""
        self.term.horizon = self.term.loaded_through = MIDNIGHT + through

    def owes(self) -> bool:
        """Whether something leaves with the next bucket although its second has passed."""
        return self.term.has_owed

    def expand(self, through: int, *, now: float | None = None) -> list[Message]:
        """What is due through this second is handed out, and on its way."""
        bucket = Bucket()
        moment = at(MIDNIGHT + (through if now is None else now), self.term.gap_to)
        self.term.expand(bucket, moment, MIDNIGHT + through)
        self.last = bucket
        return messages(bucket.parcels)

    def fire(self, through: int, *, now: float | None = None) -> list[tuple[int, int]]:
        """The same, and acknowledged: the runs as (job, instant), sorted."""
        found = self.expand(through, now=now)
        self.term.fired = MIDNIGHT + through
        return runs(found)


def runs(found: Iterable[Message]) -> list[tuple[int, int]]:
    return sorted((message.job_id, message.scheduled - MIDNIGHT) for message in found)


def of(job_id: int, *instants: int) -> list[tuple[int, int]]:
    return [(job_id, instant) for instant in instants]
