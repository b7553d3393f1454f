"""Settling: what has been published becomes known to Postgres, in a loop beside firing.

The marks move in one transaction for all shards of the buckets since the last one. While Postgres is
away, what is to be written grows in memory (a number per shard and second), firing goes on, and it is
written whole when Postgres is back. Fired timers are deleted afterwards, off everybody's path.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import asyncpg
import structlog

from mainspring.scheduler.expansion import Timer
from mainspring.scheduler.leadership import Leadership
from mainspring.scheduler.marks import Marks, Settlement
from mainspring.scheduler.reading import TimerRow
from mainspring.scheduler.terms import Term
from mainspring.schema.errors import DatabaseUnavailable, PartitionBusy

_RETRY_SECONDS = 0.5

log = structlog.get_logger()


@dataclass(slots=True)
class Pending(Settlement):
    """A settlement with the timers that are to be deleted after it."""

    timers: list[tuple[Term, Timer]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.through)

    def absorb(self, earlier: Pending) -> None:
        """Put back what could not be written, before what has come since."""
        self.through = earlier.through | self.through
        self.ledger += earlier.ledger
        self.missed += earlier.missed
        self.too_large = earlier.too_large + self.too_large
        self.deferred = earlier.deferred + self.deferred
        self.timers = earlier.timers + self.timers
        self.position = self.position or earlier.position


class Settling:
    """Moves the marks behind firing."""

    def __init__(self, marks: Marks, leadership: Leadership) -> None:
        self._marks = marks
        self._leadership = leadership
        self._fired: list[tuple[Term, Timer]] = []
        self._orphans: list[tuple[int, int]] = []
        self._writing = asyncio.Lock()
        self.pending = Pending()
        self.wake = asyncio.Event()

    def discard(self, row: TimerRow) -> None:
        """Delete a timer whose job is gone."""
        self._orphans.append((row.id, row.changed))
        self.wake.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Settle whenever something was published, until told to stop; then what is left, once."""
        while not stop.is_set():
            await self.wake.wait()
            self.wake.clear()
            if not await self.run_once():
                await asyncio.sleep(_RETRY_SECONDS)
                self.wake.set()
        await self.run_once()

    async def run_once(self) -> bool:
        """Write what is pending; False if it could not be, and has been kept."""
        async with self._writing:
            return await self._write()

    async def _write(self) -> bool:
        taken, self.pending = self.pending, Pending()
        try:
            if taken:
                await self._settle(taken)
                taken = Pending()
            await self._delete_fired()
        except (DatabaseUnavailable, PartitionBusy) as error:
            log.warning("marks_wait", reason=str(error))
        except asyncpg.PostgresError:
            log.exception("settling_failed")
        else:
            return True
        self.pending.absorb(taken)
        return False

    async def _settle(self, taken: Pending) -> None:
        terms = [term for term in taken.through if self._leadership.is_current(term)]
        ours = await self._marks.settle(taken, terms)
        for term in terms:
            if term.shard in ours:
                term.mark = max(term.mark, taken.through[term])
                if term.gap_to is not None and term.mark >= term.gap_to:
                    term.gap_to = None
        stale = [term for term in terms if term.shard not in ours and self._leadership.is_current(term)]
        self._leadership.end([term.shard for term in stale], "another_epoch")
        self._fired += [(term, timer) for term, timer in taken.timers if term.shard in ours]

    async def _delete_fired(self) -> None:
        orphans = list(self._orphans)
        if orphans:
            await self._marks.delete_timers(orphans)
            del self._orphans[: len(orphans)]
        fired, self._fired = self._fired, []
        if not fired:
            return
        try:
            await self._marks.delete_timers([(timer.id, timer.changed) for _, timer in fired])
        except BaseException:
            self._fired = fired + self._fired
            raise
        for term, timer in fired:
            term.forget_spent([(timer.id, timer.changed)])
