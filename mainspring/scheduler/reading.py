"""What a leader reads: the change feed, cadences with their members, timers. Nothing here writes.

`Reader` is one REPEATABLE READ transaction: everything it answers is of one snapshot, which `Reader.snapshot`
names. The feed compares against that snapshot what it saw elsewhere.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple

import asyncpg

from mainspring.postgres import database_errors
from mainspring.schedule import Cadence, DstPolicy, Gap, Kind, Repeat
from mainspring.scheduler.expansion import Timer
from mainspring.scheduler.rosters import JobRow
from mainspring.schema.ids import from_microseconds, to_microseconds
from mainspring.schema.queries import query
from mainspring.schema.snapshot import Snapshot
from mainspring.schema.states import JobStatus, MissedPolicy

_FETCH = 2000
_LONG_AGO = datetime(1, 1, 1, tzinfo=UTC)
_POLICIES = {policy.value: policy for policy in MissedPolicy}


class CadenceRow(NamedTuple):
    """A cadence as it is stored; `next_at` is the stored lower bound in seconds, None for -infinity."""

    id: int
    shard: int
    kind: str
    expression: str
    timezone: str
    dst_gap: str
    dst_repeat: str
    phase: int
    next_at: int | None
    max_jitter: int
    tzdata: str | None

    def parse(self) -> Cadence:
        """The value; InvalidInput where this version cannot evaluate it."""
        return _parse_cadence(
            self.kind, self.expression, self.timezone, self.dst_gap, self.dst_repeat, self.phase
        )


@lru_cache(maxsize=65_536)
def _parse_cadence(
    kind: str, expression: str, timezone: str, dst_gap: str, dst_repeat: str, phase: int
) -> Cadence:
    """One value serves every shard that has the cadence."""
    return Cadence(Kind(kind), expression, timezone, DstPolicy(Gap(dst_gap), Repeat(dst_repeat)), phase)


class TimerRow(NamedTuple):
    """A timer with what its job says; `timer` is None where the job is gone or does not fire."""

    id: int
    changed: int
    shard: int
    job_id: int
    orphan: bool
    timer: Timer | None


@dataclass(frozen=True, slots=True)
class Position:
    """Where a reader stands in the change feed."""

    snapshot: Snapshot
    timeline: str
    at: datetime


class Reader:
    """One snapshot of the database."""

    def __init__(
        self, connection: asyncpg.pool.PoolConnectionProxy[asyncpg.Record], position: Position
    ) -> None:
        self._connection = connection
        self.position = position

    @property
    def snapshot(self) -> Snapshot:
        return self.position.snapshot

    async def changed_jobs(self, since: Snapshot, shards: Collection[int]) -> list[JobRow]:
        rows = await self._connection.fetch(query("changed_jobs"), str(since), list(shards))
        return [_job(row) for row in rows]

    async def recent_jobs(self, shard: int, since: datetime) -> list[JobRow]:
        """Jobs valid since that time: where the feed's cursor is of no use. Reads the whole shard."""
        rows = await self._connection.fetch(query("recent_jobs"), shard, since)
        return [_job(row) for row in rows]

    async def changed_timers(self, since: Snapshot, shards: Collection[int]) -> list[TimerRow]:
        rows = await self._connection.fetch(query("changed_timers"), str(since), list(shards))
        return [_timer(row) for row in rows]

    async def timers_of_jobs(self, job_ids: Collection[int], shards: Collection[int]) -> list[TimerRow]:
        rows = await self._connection.fetch(query("timers_of_jobs"), list(job_ids), list(shards))
        return [_timer(row) for row in rows]

    async def due_timers(
        self, shards: Collection[int], after: int | None, through: int
    ) -> AsyncIterator[list[TimerRow]]:
        """Timers due in (after, through], in seconds; None for all there are up to then."""
        lower = _LONG_AGO if after is None else from_microseconds(after * 1_000_000)
        arguments = (list(shards), lower, from_microseconds(through * 1_000_000))
        async for rows in self._stream(query("due_timers"), *arguments):
            yield [_timer(row) for row in rows]

    async def due_cadences(
        self, shards: Collection[int], through: int, tzdata: str | None
    ) -> list[CadenceRow]:
        rows = await self._connection.fetch(
            query("due_cadences"), list(shards), from_microseconds(through * 1_000_000), tzdata
        )
        return [_cadence(row) for row in rows]

    async def cadences(self, ids: Collection[int]) -> list[CadenceRow]:
        rows = await self._connection.fetch(query("cadences_by_id"), list(ids))
        return [_cadence(row) for row in rows]

    async def members(self, cadence_ids: Collection[int]) -> AsyncIterator[list[JobRow]]:
        """The active members of these cadences, some thousand at a time."""
        async for rows in self._stream(query("cadence_members"), list(cadence_ids)):
            yield [_job(row) for row in rows]

    async def _stream(self, text: str, *arguments: object) -> AsyncIterator[list[asyncpg.Record]]:
        cursor = await self._connection.cursor(text, *arguments)
        while rows := await cursor.fetch(_FETCH):
            yield rows


@asynccontextmanager
async def read(pool: asyncpg.Pool[asyncpg.Record]) -> AsyncIterator[Reader]:
    """Open a snapshot; DatabaseUnavailable when Postgres is away."""
    with database_errors():
        async with (
            pool.acquire() as connection,
            connection.transaction(isolation="repeatable_read", readonly=True),
        ):
            row = await connection.fetchrow(query("feed_position"))
            assert row is not None
            position = Position(Snapshot.parse(row["snapshot"]), row["timeline"], row["at"])
            yield Reader(connection, position)


def seconds(instant: datetime) -> int:
    """The first whole second that is not before the instant: nothing is due earlier than it says."""
    return -(-to_microseconds(instant) // 1_000_000)


def _job(row: asyncpg.Record) -> JobRow:
    return JobRow(
        row["id"],
        row["shard"],
        row["tenant_id"],
        row["cadence_id"],
        row["status"] == JobStatus.ACTIVE.value,
        row["changed"],
        row["version"],
        to_microseconds(row["valid_from"]),
        to_microseconds(row["updated_at"]),
        _microseconds(row["starts_at"]),
        _microseconds(row["ends_at"]),
        row["jitter_seconds"],
        row["pool"],
        row["priority"],
        _POLICIES[row["missed_window"]],
        row["grace_seconds"],
        row["max_missed"],
        row["body"],
    )


def _timer(row: asyncpg.Record) -> TimerRow:
    status = row["status"]
    timer = None
    if status in (JobStatus.ACTIVE.value, JobStatus.COMPLETED.value):
        timer = Timer(
            row["id"],
            row["changed"],
            row["shard"],
            row["job_id"],
            seconds(row["due_at"]),
            to_microseconds(row["scheduled_at"]),
            row["attempt"],
            row["retries"],
            row["losses"],
            row["tenant_id"],
            row["pool"],
            row["priority"],
            row["grace_seconds"],
            row["body"],
        )
    orphan = status in (None, JobStatus.DELETED.value)
    return TimerRow(row["id"], row["changed"], row["shard"], row["job_id"], orphan, timer)


def _cadence(row: asyncpg.Record) -> CadenceRow:
    values = dict(row)
    bound: datetime | None = values.pop("next_at")
    return CadenceRow(**values, next_at=None if bound is None else to_microseconds(bound) // 1_000_000)


def _microseconds(instant: datetime | None) -> int | None:
    return None if instant is None else to_microseconds(instant)
