"""What the tests of the registry share: a registry, and facts read from Postgres behind its back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import asyncpg

from mainspring.registry import Job, JobRequest, Registry
from mainspring.schedule import format_instant
from mainspring.schema.ids import new_claim_id
from mainspring.schema.states import Outcome

SHARDS = 4
PATIENCE = 30.0


class Facts(NamedTuple):
    """What a change must or must not move."""

    version: int
    changed: int
    valid_from: datetime
    updated_at: datetime
    status: str
    written_by: int
    """The transaction that wrote the row, as Postgres itself has it."""


class Bench:
    """A registry, its tenant, and the database under both."""

    def __init__(self, dsn: str, pool: Any, tenant: int) -> None:
        self.dsn = dsn
        self.pool = pool
        self.tenant = tenant
        self.registry = Registry(pool, shards=SHARDS)

    def another_registry(self) -> Registry:
        """As in another process: it shares nothing but the database."""
        return Registry(self.pool, shards=SHARDS)

    async def create(self, **body: Any) -> Job:
        return await self.registry.create(self.tenant, request(**body))

    async def edit(self, job: Job, **changes: Any) -> Job:
        return await self.registry.edit(self.tenant, job.id, changes)

    async def fetch(self, statement: str, *arguments: Any) -> list[Any]:
        async with self.pool.acquire() as connection:
            return [tuple(row) for row in await connection.fetch(statement, *arguments)]

    async def value(self, statement: str, *arguments: Any) -> Any:
        async with self.pool.acquire() as connection:
            return await connection.fetchval(statement, *arguments)

    async def facts(self, job: Job) -> Facts:
        row = await self.fetch(
            "SELECT version, changed::text::bigint, valid_from, updated_at, status, xmin::text::bigint"
            " FROM jobs WHERE id = $1",
            job.id,
        )
        return Facts(*row[0])

    async def jobs(self) -> int:
        """How many of this test's jobs are not deleted."""
        count: int = await self.value(
            "SELECT count(*) FROM jobs WHERE tenant_id = $1 AND status <> 'deleted'", self.tenant
        )
        return count

    async def timers(self, job: Job) -> list[Any]:
        return await self.fetch(
            "SELECT scheduled_at, due_at, attempt, cause FROM timers WHERE job_id = $1"
            " ORDER BY scheduled_at, attempt",
            job.id,
        )

    async def add_timer(self, job: Job, scheduled_at: datetime, attempt: int, cause: str) -> None:
        """A timer that is due, as a leader or a worker would have left it."""
        await self.fetch(
            "INSERT INTO timers (shard, due_at, job_id, scheduled_at, attempt, cause)"
            " VALUES ($1, now(), $2, $3, $4, $5)",
            job.shard,
            job.id,
            scheduled_at,
            attempt,
            cause,
        )

    async def in_one_hour(self) -> datetime:
        """A whole second of the near future, by Postgres's clock."""
        now: datetime = await self.value("SELECT date_trunc('second', now())")
        return now + timedelta(hours=1)

    async def one_off(self, **body: Any) -> Job:
        return await self.create(handler="h", schedule=format_instant(await self.in_one_hour()), **body)

    async def record_runs(self, job: Job, scheduled_at: datetime, *outcomes: Outcome) -> None:
        """Runs as a worker would have left them: one attempt after the other."""
        async with self.pool.acquire() as connection:
            await record_runs(connection, job, scheduled_at, *outcomes)

    async def set_status(self, job: Job, status: str) -> None:
        """What the executing side does to a one-off that has run."""
        await self.fetch("UPDATE jobs SET status = $2, closed_at = now() WHERE id = $1", job.id, status)

    @asynccontextmanager
    async def holding(self, statement: str, *arguments: Any) -> AsyncIterator[Any]:
        """Another session in the middle of a transaction, which commits when the block ends."""
        connection = await asyncpg.connect(self.dsn)
        try:
            async with connection.transaction():
                await connection.execute(statement, *arguments)
                yield connection
        finally:
            await connection.close()

    async def until_waiting(self, connection: Any) -> int:
        """Wait until somebody waits for this session; that one's process id."""
        holder = connection.get_server_pid()
        async with asyncio.timeout(PATIENCE):
            while True:
                waiting: int | None = await self.value(
                    "SELECT pid FROM pg_stat_activity"
                    " WHERE datname = current_database() AND $1 = ANY (pg_blocking_pids(pid)) LIMIT 1",
                    holder,
                )
                if waiting is not None:
                    return waiting
                await asyncio.sleep(0.01)


async def record_runs(connection: Any, job: Job, scheduled_at: datetime, *outcomes: Outcome) -> None:
    claim = new_claim_id(scheduled_at)
    await connection.execute(
        "INSERT INTO claims (id, worker_id, outcomes) VALUES ($1, 'w', $2)", claim, bytes(outcomes)
    )
    for position, _ in enumerate(outcomes):
        await connection.execute(
            "INSERT INTO runs (job_id, scheduled_at, claim_id, position, attempt)"
            " VALUES ($1, $2, $3, $4, $5)",
            job.id,
            scheduled_at,
            claim,
            position,
            position + 1,
        )


def request(**body: Any) -> JobRequest:
    return JobRequest.from_mapping(body)
