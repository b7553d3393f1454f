"""Each test of a duty has a database of its own, with what workers and owners would have left in it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, MutableMapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

import asyncpg
import pytest
from structlog.testing import capture_logs

from mainspring.registry import Job, JobRequest, Registry
from mainspring.schema.ids import new_claim_id
from mainspring.schema.states import Outcome

SHARDS = 64  # as the fixture `migrated` has them
PATIENCE = 60.0


class House:
    """A database, and hands to put things into it."""

    def __init__(self, dsn: str, pool: Any, now: datetime) -> None:
        self.dsn = dsn
        self.pool = pool
        self.now = now
        """A whole second of the recent past: its day exists."""
        self.tenant = 1
        self.registry = Registry(pool, shards=SHARDS)

    async def job(self, **body: Any) -> Job:
        request = {"handler": "work", "schedule": "0 0 * * *", "payload": {"n": 1}} | body
        return await self.registry.create(self.tenant, JobRequest.from_mapping(request))

    async def dependent(self, parent: Job, **body: Any) -> Job:
        request = {"handler": "work", "after": [parent.job_id], **body}
        return await self.registry.create(self.tenant, JobRequest.from_mapping(request))

    async def worker(self, name: str, heartbeat: int = 1) -> None:
        await self.execute(
            "INSERT INTO workers (id, pool, lanes, concurrency, heartbeat)"
            " VALUES ($1, 'default', '{normal}', 1, $2)",
            name,
            heartbeat,
        )

    async def stopped_worker(self, name: str) -> None:
        await self.worker(name)
        await self.execute("UPDATE workers SET stopped_at = now() WHERE id = $1", name)

    async def beat(self, name: str) -> None:
        await self.execute("UPDATE workers SET heartbeat = heartbeat + 1 WHERE id = $1", name)

    async def is_dead(self, name: str) -> bool:
        dead: bool = await self.value("SELECT dead_at IS NOT NULL FROM workers WHERE id = $1", name)
        return dead

    async def claim(
        self,
        worker: str,
        runs: Sequence[tuple[Job, datetime, int]],
        outcomes: Sequence[Outcome] | None = None,
        *,
        age: timedelta = timedelta(0),
        finished: bool = False,
    ) -> int:
        """A claim as a worker made it that long ago; without outcomes, all of its runs are under way."""
        claimed_at = self.now - age
        claim_id = new_claim_id(claimed_at)
        await self.execute(
            "INSERT INTO claims (id, worker_id, claimed_at, outcomes, finished_at)"
            " VALUES ($1, $2, $3::timestamptz, $4, CASE WHEN $5::boolean THEN $3::timestamptz END)",
            claim_id,
            worker,
            claimed_at,
            bytes(outcomes if outcomes is not None else [Outcome.PENDING] * len(runs)),
            finished,
        )
        records = [
            (job.id, scheduled_at, attempt, claim_id, position)
            for position, (job, scheduled_at, attempt) in enumerate(runs)
        ]
        columns = ["job_id", "scheduled_at", "attempt", "claim_id", "position"]
        await self.pool.copy_records_to_table("runs", records=records, columns=columns)
        return claim_id

    async def ended(
        self,
        job: Job,
        scheduled_at: datetime,
        attempt: int,
        outcome: Outcome,
        *,
        handed_back: bool = False,
    ) -> None:
        """An earlier attempt, with what a worker or the reaper wrote of it."""
        await self.claim("earlier", [(job, scheduled_at, attempt)], [outcome], finished=True)
        if outcome is not Outcome.SUCCEEDED:
            await self.execute(
                "INSERT INTO failures (job_id, scheduled_at, attempt, tenant_id, status, ended_at)"
                " VALUES ($1, $2, $3, $4, $5, CASE WHEN $6::boolean THEN now() END)",
                job.id,
                scheduled_at,
                attempt,
                self.tenant,
                outcome.word,
                handed_back,
            )

    async def letter(self, job: Job, scheduled_at: datetime, attempt: int, *, redriven: bool) -> int:
        letter_id: int = await self.value(
            "INSERT INTO dead_letters (tenant_id, job_id, scheduled_at, attempt, pool, handler, reason,"
            " fingerprint, body, redriven_at)"
            " SELECT tenant_id, id, $2, $3, pool, handler, 'exhausted', 'f', body,"
            " CASE WHEN $4::boolean THEN now() END FROM jobs WHERE id = $1 RETURNING id",
            job.id,
            scheduled_at,
            attempt,
            redriven,
        )
        return letter_id

    async def outcomes(self, claim_id: int) -> list[Outcome]:
        stored = await self.value("SELECT outcomes FROM claims WHERE id = $1", claim_id)
        return [Outcome(byte) for byte in stored]

    async def is_reaped(self, claim_id: int) -> bool:
        reaped: bool = await self.value("SELECT reaped_at IS NOT NULL FROM claims WHERE id = $1", claim_id)
        return reaped

    async def timers(self, job: Job) -> list[Any]:
        return await self.fetch(
            "SELECT scheduled_at, attempt, retries, losses, cause FROM timers WHERE job_id = $1"
            " ORDER BY scheduled_at, attempt",
            job.id,
        )

    async def failures(self, job: Job) -> list[Any]:
        return await self.fetch(
            "SELECT attempt, status, worker_id, tenant_id FROM failures WHERE job_id = $1 ORDER BY attempt",
            job.id,
        )

    async def execute(self, statement: str, *arguments: Any) -> None:
        await self.pool.execute(statement, *arguments)

    async def fetch(self, statement: str, *arguments: Any) -> list[Any]:
        return [tuple(row) for row in await self.pool.fetch(statement, *arguments)]

    async def value(self, statement: str, *arguments: Any) -> Any:
        return await self.pool.fetchval(statement, *arguments)

    async def count(self, table: str) -> int:
        number: int = await self.value(f"SELECT count(*) FROM {table}")
        return number

    @asynccontextmanager
    async def connected(self, **settings: str) -> AsyncIterator[Any]:
        """Another session."""
        connection = await asyncpg.connect(self.dsn, server_settings=settings)
        try:
            yield connection
        finally:
            connection.terminate()

    async def until(self, fact: Callable[[], Awaitable[bool]]) -> None:
        """Wait for a fact; only one that never comes costs time."""
        async with asyncio.timeout(PATIENCE):
            while not await fact():  # noqa: ASYNC110  (the server sets no event)
                await asyncio.sleep(0.02)


@pytest.fixture
async def house(migrated: str) -> AsyncIterator[House]:
    async with asyncpg.create_pool(migrated, min_size=1, max_size=6) as pool:
        yield House(migrated, pool, await pool.fetchval("SELECT date_trunc('second', now())"))


@pytest.fixture(autouse=True)
def events() -> Iterator[list[MutableMapping[str, Any]]]:
    """What was logged, in place of a log."""
    with capture_logs() as captured:
        yield captured
