"""The janitor: the days ahead exist before anybody needs them, and what nobody needs any more goes.

Each sweep stands alone and is bounded: what it does not reach in one round is left for the next. They run
from what must not wait to what can. Two janitors at once, around a change of hands, are safe: rows that one
has locked are skipped by the other, and whoever is in the way of a day hears PartitionBusy, which is logged
and tried again the next time.

    days ahead     made first: a claim must never wait for a day
    removals       that were interrupted, before another begins: a parent has one day on its way out at most
    old days       whose newest claim is older than the retention, and no older claim is open. Dropped whole
    claims         as old, and no day that is left has a run of them
    one-offs       completed for a day, unless something of them may still come: a timer, a dead letter that
                   could be redriven, a dependent that counts them among its parents
    tombstones     older than Kafka keeps messages: nobody can meet one of theirs any more
    cadences       that no job refers to. A job that is being written holds its cadence and keeps it; one that
                   comes a moment later finds it gone and makes it anew (mainspring/registry/cadences.py)
    workers        stopped or dead for a week
    cancellations  a week old; deferrals, a day: by then they have done what they were for
    idempotency    keys of requests that are older than a day: their answers are promised no longer

Dead letters are never swept: they stay until their owner removes them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import TypeAlias, TypeVar, cast

import asyncpg
import structlog

from mainspring.postgres import database_errors
from mainspring.schema.errors import PartitionBusy
from mainspring.schema.ids import first_claim_id
from mainspring.schema.partitions import days_ahead, drop_day, ensure_days, list_days, list_remains
from mainspring.schema.queries import query
from mainspring.schema.states import JobStatus

RUN_RETENTION = timedelta(days=30)
ONE_OFF_RETENTION = timedelta(hours=24)
TOMBSTONE_RETENTION = timedelta(days=7)
"""Longer than any topic keeps messages: a message may still meet its job until then."""

_WORKER_RETENTION = timedelta(days=7)
_CANCELLATION_RETENTION = timedelta(days=7)
_DEFERRAL_RETENTION = timedelta(days=1)
_IDEMPOTENCY_RETENTION = timedelta(days=1)

_BATCH = 1000
_BATCHES = 500
_DAYS_AT_ONCE = 10
_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
Position = TypeVar("Position")

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """What one round did."""

    days_made: tuple[date, ...]
    removals_finished: tuple[date, ...]
    days_dropped: tuple[date, ...]
    claims: int
    one_offs: int
    tombstones: int
    cadences: int
    workers: int
    cancellations: int
    deferrals: int
    idempotency_keys: int


class Janitor:
    """Keeps house in Postgres."""

    pause = timedelta(minutes=10)

    def __init__(
        self,
        pool: asyncpg.Pool[asyncpg.Record],
        *,
        run_retention: timedelta = RUN_RETENTION,
        one_off_retention: timedelta = ONE_OFF_RETENTION,
        tombstone_retention: timedelta = TOMBSTONE_RETENTION,
    ) -> None:
        self._pool = pool
        self._run_retention = run_retention
        self._one_off_retention = one_off_retention
        self._tombstone_retention = tombstone_retention
        # Where a walk that was cut off goes on in the next round: what it passed may have stayed, and would
        # otherwise be all it ever sees.
        self._claims_from = 0
        self._cadences_from = 0
        self._one_offs_from = self._tombstones_from = (_LONG_AGO, 0)

    async def run_once(self) -> Swept:
        """All sweeps, one after the other; a dozen queries when there is nothing to do."""
        with database_errors():
            async with self._pool.acquire() as pooled:
                connection = cast("Connection", pooled)
                return Swept(
                    days_made=await self._make_days(connection),
                    removals_finished=await self._finish_removals(connection),
                    days_dropped=await self._drop_days(connection),
                    claims=await self._sweep_claims(connection),
                    one_offs=await self._sweep_one_offs(connection),
                    tombstones=await self._sweep_tombstones(connection),
                    cadences=await self._sweep_cadences(connection),
                    workers=await _delete(connection, query("sweep_workers"), _WORKER_RETENTION),
                    cancellations=await _delete(
                        connection, query("sweep_cancellations"), _CANCELLATION_RETENTION
                    ),
                    deferrals=await _delete(connection, query("sweep_deferrals"), _DEFERRAL_RETENTION),
                    idempotency_keys=await _delete(
                        connection, query("sweep_idempotency_keys"), _IDEMPOTENCY_RETENTION
                    ),
                )

    async def _make_days(self, connection: Connection) -> tuple[date, ...]:
        try:
            return tuple(await ensure_days(connection, await days_ahead(connection)))
        except PartitionBusy as busy:
            log.warning("day_not_made", table=busy.table, reason=busy.reason)
            return ()

    async def _finish_removals(self, connection: Connection) -> tuple[date, ...]:
        remains = await list_remains(connection)
        return tuple([day for day in remains if await _drop(connection, day)])

    async def _drop_days(self, connection: Connection) -> tuple[date, ...]:
        """Days that lie wholly before the retention; days with nothing in them too."""
        retained_from = await self._retained_from(connection)
        old = [day for day in await list_days(connection) if _end_of(day) <= retained_from]
        dropped: list[date] = []
        for day in old:
            if len(dropped) == _DAYS_AT_ONCE:
                break
            if not await _is_in_use(connection, day, retained_from) and await _drop(connection, day):
                dropped.append(day)
        return tuple(dropped)

    async def _sweep_claims(self, connection: Connection) -> int:
        retained_from = await self._retained_from(connection)

        async def step(after: int) -> tuple[int, int, int]:
            row = await connection.fetchrow(
                query("sweep_claims"), after, first_claim_id(retained_from), retained_from, _BATCH
            )
            assert row is not None
            return row["looked"], row["gone"], row["last"]

        gone, self._claims_from = await _walk(step, self._claims_from, 0)
        return gone

    async def _sweep_one_offs(self, connection: Connection) -> int:
        step = _jobs_step(connection, JobStatus.COMPLETED, self._one_off_retention)
        gone, self._one_offs_from = await _walk(step, self._one_offs_from, (_LONG_AGO, 0))
        return gone

    async def _sweep_tombstones(self, connection: Connection) -> int:
        step = _jobs_step(connection, JobStatus.DELETED, self._tombstone_retention)
        gone, self._tombstones_from = await _walk(step, self._tombstones_from, (_LONG_AGO, 0))
        return gone

    async def _sweep_cadences(self, connection: Connection) -> int:
        async def step(after: int) -> tuple[int, int, int]:
            rows = await connection.fetch(query("next_cadences"), after, _BATCH)
            ids = [row["id"] for row in rows]
            return len(ids), await _delete_orphans(connection, ids), ids[-1] if ids else after

        gone, self._cadences_from = await _walk(step, self._cadences_from, 0)
        return gone

    async def _retained_from(self, connection: Connection) -> datetime:
        instant: datetime = await connection.fetchval(query("retained_from"), self._run_retention)
        return instant


async def _walk(
    step: Callable[[Position], Awaitable[tuple[int, int, Position]]], start: Position, beginning: Position
) -> tuple[int, Position]:
    """Take batches from `start` on: how many rows went, and where the next round begins.

    A step answers how many rows it looked at, how many of them went, and the last it looked at.
    """
    total, position = 0, start
    for _ in range(_BATCHES):
        looked, gone, last = await step(position)
        total += gone
        if looked < _BATCH:
            return total, beginning
        position = last
    return total, position


def _jobs_step(
    connection: Connection, status: JobStatus, retention: timedelta
) -> Callable[[tuple[datetime, int]], Awaitable[tuple[int, int, tuple[datetime, int]]]]:
    async def step(after: tuple[datetime, int]) -> tuple[int, int, tuple[datetime, int]]:
        row = await connection.fetchrow(query("sweep_jobs"), status.value, retention, *after, _BATCH)
        if row is None:
            return 0, 0, after
        return row["looked"], row["gone"], (row["closed_at"], row["id"])

    return step


async def _delete_orphans(connection: Connection, ids: list[int]) -> int:
    """Two statements: the locks keep new members out, the second snapshot shows those that came before."""
    async with connection.transaction():
        locked = await connection.fetch(query("lock_orphan_cadences"), ids)
        if not locked:
            return 0
        gone = await connection.fetch(query("delete_orphan_cadences"), [row["id"] for row in locked])
        return len(gone)


async def _delete(connection: Connection, statement: str, retention: timedelta) -> int:
    """Repeat a deletion of one batch until it finds less."""
    total = 0
    for _ in range(_BATCHES):
        gone = len(await connection.fetch(statement, retention, _BATCH))
        total += gone
        if gone < _BATCH:
            break
    return total


async def _is_in_use(connection: Connection, day: date, retained_from: datetime) -> bool:
    in_use: bool = await connection.fetchval(
        query("day_is_in_use"), _start_of(day), _end_of(day), first_claim_id(retained_from)
    )
    return in_use


async def _drop(connection: Connection, day: date) -> bool:
    try:
        dropped = await drop_day(connection, day)
    except PartitionBusy as busy:
        log.warning("day_not_dropped", day=day.isoformat(), table=busy.table, reason=busy.reason)
        return False
    if dropped:
        log.info("day_dropped", day=day.isoformat())
    return dropped


def _start_of(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)


def _end_of(day: date) -> datetime:
    return _start_of(day) + timedelta(days=1)
