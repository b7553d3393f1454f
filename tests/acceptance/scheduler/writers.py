"""Writers: they change jobs around the turns of seconds and remember what Postgres committed.

What must hold is read off the feed position and the job's version that every message carries: all
transactions below the position had been seen by the leader that published, and so had that version. With
them, “as the last committed change says” is exact and needs no clock:

    created, resumed   every occurrence after its `valid_from` is published
    edited             the same; a message that saw the edit carries that version or a later one
    paused, deleted    no message that saw it is for this job, until one saw it resumed
    one-off, trigger   published, unless deleted; once deleted, no message that saw it
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from mainspring.schedule import Cadence, Schedule
from mainspring.schema.ids import to_microseconds
from tests.acceptance.scheduler.cluster import EVERY_SECOND, TENANT, Cluster
from tests.acceptance.scheduler.recorder import Record, Run

CADENCE = Cadence.parse(EVERY_SECOND)


class Change(NamedTuple):
    """One committed change of a job, as its row had it afterwards."""

    transaction: int
    version: int
    status: str
    valid_from: datetime


@dataclass(slots=True)
class Life:
    """A job of one writer: nobody else changes it, so its changes are in order."""

    job_id: int
    changes: list[Change] = field(default_factory=list)
    triggers: list[Run] = field(default_factory=list)

    def required(self, through: datetime) -> set[Run]:
        """The occurrences that must be published: all since `valid_from`, if it is active in the end.

        What it owned before a pause may have been published or not: a leader may have been dead just then.
        """
        last = self.changes[-1]
        if last.status != "active":
            return set()
        schedule = Schedule(CADENCE, valid_from=last.valid_from)
        moments = schedule.between(last.valid_from, through, limit=10_000)
        return {Run(self.job_id, to_microseconds(moment), 1) for moment in moments}

    def violations(self, records: list[Record]) -> list[tuple[Record, Change]]:
        """Messages that contradict a change which their leader had seen."""
        found = []
        for record in records:
            seen = [
                change
                for change in self.changes
                if change.transaction < record.position or change.version <= record.version
            ]
            if seen and self._contradicts(record, seen[-1]):
                found.append((record, seen[-1]))
        return found

    def _contradicts(self, record: Record, newest: Change) -> bool:
        if newest.status != "active" or record.version < newest.version:
            return True
        if record.run in self.triggers:
            return False
        return record.run.scheduled_at <= to_microseconds(newest.valid_from)


class Writer:
    """Changes jobs of its own around the turns of seconds, without a pause."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self._cluster = cluster
        self._random = random.Random(seed)
        self.lives: list[Life] = []
        self.one_offs: dict[Run, Change | None] = {}
        """With the deletion of those that were deleted."""

    async def run(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            await self._wait_for_a_turn()
            if len(self.lives) < 25 or self._random.random() < 0.3:
                await self._create()
            await self._create_one_off()
            await self._change(self._random.choice(self.lives))

    async def _wait_for_a_turn(self) -> None:
        """Until a moment within 60 ms of a whole second."""
        passed = datetime.now(UTC).microsecond / 1_000_000
        await asyncio.sleep(1 - passed + self._random.uniform(-0.06, 0.06))

    async def _create(self) -> None:
        job = await self._cluster.registry.create(TENANT, self._cluster.request())
        life = Life(job.id)
        await self._note(life)
        self.lives.append(life)

    async def _create_one_off(self) -> None:
        """Due in this very second or the next; sometimes deleted at once."""
        due = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=self._random.randint(0, 1))
        run = await self._cluster.register_one_off(due)
        self.one_offs[run] = None
        if self._random.random() < 0.3:
            await self._cluster.registry.delete(TENANT, run.job_id)
            self.one_offs[run] = await self._look(run.job_id)

    async def _change(self, life: Life) -> None:
        registry = self._cluster.registry
        status = life.changes[-1].status
        if status == "deleted":
            return
        deeds: list[Callable[[], Awaitable[object]]] = [
            lambda: registry.edit(TENANT, life.job_id, {"payload": self._random.random()}),
            lambda: registry.pause(TENANT, life.job_id),
            lambda: registry.delete(TENANT, life.job_id),
            lambda: self._trigger(life),
        ]
        if status == "paused":
            deeds = [lambda: registry.resume(TENANT, life.job_id)]
        await self._random.choices(deeds, weights=(4, 3, 1, 2)[: len(deeds)])[0]()
        await self._note(life)

    async def _trigger(self, life: Life) -> None:
        key = await self._cluster.registry.trigger(TENANT, life.job_id)
        life.triggers.append(Run(life.job_id, to_microseconds(key.scheduled_at), key.attempt))

    async def _note(self, life: Life) -> None:
        change = await self._look(life.job_id)
        if not life.changes or change.version > life.changes[-1].version:
            life.changes.append(change)

    async def _look(self, job_id: int) -> Change:
        row = await self._cluster.database.fetchrow(
            "SELECT changed::text::bigint AS changed, version, status, valid_from FROM jobs WHERE id = $1",
            job_id,
        )
        assert row is not None
        return Change(row["changed"], row["version"], row["status"], row["valid_from"])
