"""Each test of a worker has topics of its own, and finds the database as if it were new."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, MutableMapping
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import asyncpg
import pytest
from confluent_kafka import Consumer
from structlog.testing import capture_logs

from mainspring.local import LocalStack
from mainspring.schema.migrate import migrate
from mainspring.settings import KafkaSettings
from tests.integration.worker.bench import SHARDS, Bench

_END_OTHERS = """
SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
"""
# Without triggers and foreign keys; what a new database holds stays: its shards, its tenant, its days.
_EMPTY = """
SET session_replication_role = replica;
DELETE FROM jobs; DELETE FROM cadences; DELETE FROM dependencies; DELETE FROM timers; DELETE FROM arrivals;
DELETE FROM claims; DELETE FROM runs; DELETE FROM failures; DELETE FROM results; DELETE FROM run_logs;
DELETE FROM "overlaps"; DELETE FROM cancellations; DELETE FROM deferrals; DELETE FROM effects;
DELETE FROM dead_letters; DELETE FROM ledger; DELETE FROM workers; DELETE FROM missed;
DELETE FROM tenants WHERE id > 1; UPDATE tenants SET maximum_running = NULL;
"""


@pytest.fixture(scope="session")
def furnished(stack: LocalStack) -> Iterator[str]:
    """The DSN of a migrated database: making one takes longer than most of the tests that use it."""
    server, name = stack.environment()["MAINSPRING_POSTGRES_DSN"], f"worker_{uuid4().hex}"
    asyncio.run(_execute(server, f"CREATE DATABASE {name}"))
    dsn = urlunsplit(urlsplit(server)._replace(path=f"/{name}"))
    asyncio.run(_migrate(dsn))
    yield dsn
    asyncio.run(_execute(server, f"DROP DATABASE {name} WITH (FORCE)"))


@pytest.fixture
async def bench(stack: LocalStack, furnished: str) -> AsyncIterator[Bench]:
    await _execute(furnished, _END_OTHERS, _EMPTY)
    kafka = KafkaSettings.from_environment(stack.environment())
    async with asyncpg.create_pool(furnished, min_size=1, max_size=8) as pool:
        made = Bench(furnished, pool, kafka, await pool.fetchval("SELECT date_trunc('second', now())"))
        yield made
        await made.close()
        pool.terminate()  # a test that failed may have left a transaction open


@pytest.fixture
def long_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka waits for who does not say that it leaves, longer than any test does."""

    def patient(configuration: dict[str, Any]) -> Consumer:
        return Consumer({**configuration, "session.timeout.ms": 290_000})

    monkeypatch.setattr("mainspring.worker.intake.Consumer", patient)


@pytest.fixture(autouse=True)
def events() -> Iterator[list[MutableMapping[str, Any]]]:
    """What was logged, in place of a log."""
    with capture_logs() as captured:
        yield captured


async def _migrate(dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        await migrate(connection, shards=SHARDS)
    finally:
        await connection.close()


async def _execute(dsn: str, *statements: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()
