"""Taking shards and letting them go: the two ends of a term.

Taking: the epoch is raised in Postgres, which ends whatever term there was; the answer says where the
last leader stood. What was due since is loaded, from the mark on, and fired in order, a minute of
schedule at a time, by each job's missed-window policy. The end of the gap was written in the same
statement that raised the epoch, unless an earlier leader's is still ahead of the mark: then that one
stands, and this leader decides as that one did. What the last leader may have seen but not fired (jobs
changed since its `seen`) and timers that still stand are fired again; the run's primary key removes what
had been published after all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection

import structlog

from mainspring.etcd import LeaseKeeper
from mainspring.scheduler.database_clock import DatabaseClock
from mainspring.scheduler.feed import WorldChanged
from mainspring.scheduler.firing import Firing
from mainspring.scheduler.leadership import Leadership
from mainspring.scheduler.loading import WINDOW, Loader
from mainspring.scheduler.marks import Marks, TakenShard
from mainspring.scheduler.settling import Settling
from mainspring.schema.errors import MainspringError

_RETRY_SECONDS = 0.5

log = structlog.get_logger()


class Takeover:
    """Begins and ends terms."""

    def __init__(
        self,
        marks: Marks,
        leadership: Leadership,
        loader: Loader,
        firing: Firing,
        settling: Settling,
        clock: DatabaseClock,
        tasks: asyncio.TaskGroup,
    ) -> None:
        self._marks = marks
        self._leadership = leadership
        self._loader = loader
        self._firing = firing
        self._settling = settling
        self._clock = clock
        self._tasks = tasks

    async def begin(self, shards: Collection[int], keeper: LeaseKeeper) -> None:
        """Take these shards in Postgres and let them be loaded beside everything else."""
        taken = await self._marks.take(shards)
        self._leadership.begin([each.term for each in taken], keeper)
        self._tasks.create_task(self._load(taken), name="take-over")

    async def end(self, shards: Collection[int], reason: str) -> None:
        """Finish the bucket in hand, settle it, and end these terms."""
        if not shards:
            return
        async with self._firing.in_hand:
            await self._settling.run_once()
            self._leadership.end(shards, reason)

    async def _load(self, taken: list[TakenShard]) -> None:
        """Load until it succeeds or the terms are over."""
        while taken := [each for each in taken if self._leadership.is_current(each.term)]:
            try:
                await self._loader.take_over(taken, int(self._clock.now()) + WINDOW)
            except WorldChanged as error:
                self._leadership.end([each.term.shard for each in taken], "transaction_ids")
                log.warning("world_changed", reason=str(error))
            except MainspringError as error:
                log.warning("take_over_failed", shards=len(taken), reason=str(error))
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                log.info("shards_taken_over", shards=len(taken))
                self._firing.wake.set()
                return
