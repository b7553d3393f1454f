"""The change feed: what others committed since the last look, applied within half a second.

The cursor is a Postgres snapshot. A poll reads what the cursor could not see: rows changed by
transactions from its `xmax` on, and by those that were in progress then. So a transaction that commits an
hour late is read when it commits, and nothing is read twice because somebody else's transaction is open.
Applying is idempotent.

Loads run beside the feed, and a load is older than what the feed has learnt when it ends. Therefore every
load *records*: the batches that the feed applies meanwhile are applied again to what was loaded, except
for rows that the load's own snapshot has seen. Only then is anything of it armed.

`applied` is what a mark may claim to have seen: the newest position whose every row has been applied,
including those that had to wait for a load.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

import asyncpg
import structlog

from mainspring.scheduler.expansion import Timer
from mainspring.scheduler.reading import Position, TimerRow, read
from mainspring.scheduler.rosters import JobRow
from mainspring.scheduler.terms import Term
from mainspring.schema.errors import MainspringError
from mainspring.schema.snapshot import Snapshot

log = structlog.get_logger()


class WorldChanged(MainspringError):
    """The cursor was counted in other transaction ids than there are now: every term must be taken anew."""


@dataclass(slots=True)
class Batch:
    """What one poll brought."""

    position: Position
    jobs: list[JobRow] = field(default_factory=list)
    timers: list[TimerRow] = field(default_factory=list)
    timers_of: dict[int, list[Timer]] = field(default_factory=dict)

    def unseen_by(self, snapshot: Snapshot) -> Batch:
        """Only what that snapshot could not see."""
        jobs = [row for row in self.jobs if not snapshot.sees(row.changed)]
        ids = {row.job_id for row in jobs}
        return Batch(
            self.position,
            jobs,
            [row for row in self.timers if not snapshot.sees(row.changed)],
            {job_id: timers for job_id, timers in self.timers_of.items() if job_id in ids},
        )


class LoadsCadences(Protocol):
    """Who brings the members of cadences that a change made due."""

    def request(self, rows: Collection[JobRow], done: Callable[[], None]) -> None:
        """Load these jobs' cadences beside the feed, then call `done`."""


class Feed:
    """Polls and applies; one for all shards of a process."""

    def __init__(
        self,
        pool: asyncpg.Pool[asyncpg.Record],
        terms: Mapping[int, Term],
        orphan: Callable[[TimerRow], None],
    ) -> None:
        self._pool = pool
        self._terms = terms
        self._orphan = orphan
        self._polling = asyncio.Lock()
        self._recordings: list[list[Batch]] = []
        self._waiting = 0
        self._cursor: Position | None = None
        self.loader: LoadsCadences | None = None
        self.applied: Position | None = None

    async def run_once(self) -> Batch | None:
        """One poll: what it brought, None when nothing is led. WorldChanged when the cursor means nothing.

        A load of new shards begins with one, so that the cursor is older than the load and covers them.
        """
        async with self._polling:
            shards = list(self._terms)
            if not shards:
                self.forget()
                return None
            batch = await self._poll(shards)
            self._learn(batch)
            return batch

    def forget(self) -> None:
        """Begin anew: no term is left that relied on the cursor."""
        self._cursor = self.applied = None

    @contextmanager
    def recording(self) -> Iterator[list[Batch]]:
        """Collect what the feed applies from now on."""
        batches: list[Batch] = []
        self._recordings.append(batches)
        try:
            yield batches
        finally:
            self._recordings.remove(batches)

    def replay(self, batches: Collection[Batch], loaded: Snapshot) -> None:
        """Apply again, to what was just loaded, all that its snapshot had not seen.

        What it had seen may all the same have become due while it was loaded, and is owed that.
        """
        for batch in batches:
            self._apply(batch.unseen_by(loaded))
            for row in batch.jobs:
                term = self._terms.get(row.shard)
                if term is not None and loaded.sees(row.changed):
                    term.owe_member(row, since=term.fired)

    async def _poll(self, shards: list[int]) -> Batch:
        async with read(self._pool) as reader:
            since = self._cursor
            if since is None:
                return Batch(reader.position)
            if since.timeline != reader.position.timeline or reader.snapshot.xmax < since.snapshot.xmax:
                raise WorldChanged("the transaction ids of the database have changed their world")
            jobs = await reader.changed_jobs(since.snapshot, shards)
            timers = await reader.changed_timers(since.snapshot, shards)
            # A job's first version brings its timers along as changed rows; a later one may free or
            # remove old ones.
            edited = [row.job_id for row in jobs if row.version > 1]
            standing = await reader.timers_of_jobs(edited, shards) if edited else []
        timers_of: dict[int, list[Timer]] = {job_id: [] for job_id in edited}
        for row in standing:
            if row.timer is not None:
                timers_of[row.job_id].append(row.timer)
        return Batch(reader.position, jobs, timers, timers_of)

    def _learn(self, batch: Batch) -> None:
        for recording in self._recordings:
            recording.append(batch)
        self._apply_or_load([batch])
        self._cursor = batch.position
        # While a load is under way, a change may be waiting for its end: not yet applied.
        if not self._waiting and not self._recordings:
            self.applied = batch.position

    def reapply(self, batches: Collection[Batch]) -> None:
        """A load has failed: what was left for its end to apply is applied now, with a load of its own."""
        self._apply_or_load(batches)

    def _apply_or_load(self, batches: Collection[Batch]) -> None:
        unplaced = [row for batch in batches for row in self._apply(batch)]
        if unplaced and self.loader is not None:
            self._waiting += 1
            self.loader.request(unplaced, self._loaded)

    def _loaded(self) -> None:
        self._waiting -= 1

    def _apply(self, batch: Batch) -> list[JobRow]:
        """Apply what concerns our terms; the jobs whose cadence is not there."""
        unplaced = []
        for row in batch.jobs:
            term = self._terms.get(row.shard)
            if term is None:
                continue
            if not term.put_job(row):
                unplaced.append(row)
            if row.job_id in batch.timers_of:
                term.put_timers_of(row.job_id, batch.timers_of[row.job_id])
        for change in batch.timers:
            self._apply_timer(change)
        return unplaced

    def _apply_timer(self, row: TimerRow) -> None:
        term = self._terms.get(row.shard)
        if term is None:
            return
        if row.timer is not None:
            term.put_timer(row.timer)
            return
        term.drop_timer(row.id)
        if row.orphan:
            self._orphan(row)
