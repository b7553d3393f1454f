"""Each test of a worker has topics of its own, and a database that is copied from one migrated once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, MutableMapping
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import asyncpg
import pytest
from structlog.testing import capture_logs

from mainspring.local import LocalStack
from mainspring.schema.migrate import migrate
from mainspring.settings import KafkaSettings
from tests.integration.worker.bench import SHARDS, Bench


@pytest.fixture(scope="session")
def template(stack: LocalStack) -> Iterator[str]:
    """The name of a migrated database that nobody is connected to."""
    server, name = stack.environment()["MAINSPRING_POSTGRES_DSN"], f"worker_{uuid4().hex}"
    asyncio.run(_execute(server, f"CREATE DATABASE {name}"))
    asyncio.run(_migrate(_at(server, name)))
    yield name
    asyncio.run(_execute(server, f"DROP DATABASE {name}"))


@pytest.fixture
async def bench(stack: LocalStack, template: str) -> AsyncIterator[Bench]:
    server, name = stack.environment()["MAINSPRING_POSTGRES_DSN"], f"test_{uuid4().hex}"
    kafka = KafkaSettings.from_environment(stack.environment())
    await _execute(server, f"CREATE DATABASE {name} TEMPLATE {template}")
    dsn = _at(server, name)
    async with asyncpg.create_pool(dsn, min_size=1, max_size=8) as pool:
        made = Bench(dsn, pool, kafka, await pool.fetchval("SELECT date_trunc('second', now())"))
        yield made
        await made.close()
    await _execute(server, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(autouse=True)
def events() -> Iterator[list[MutableMapping[str, Any]]]:
    """What was logged, in place of a log."""
    with capture_logs() as captured:
        yield captured


def _at(server: str, name: str) -> str:
    return urlunsplit(urlsplit(server)._replace(path=f"/{name}"))


async def _migrate(dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        await migrate(connection, shards=SHARDS)
    finally:
        await connection.close()


async def _execute(dsn: str, statement: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()
