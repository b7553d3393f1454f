"""One migrated database for all tests of the registry; each test has a tenant of its own in it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import asyncpg
import pytest

from mainspring.local import LocalStack
from mainspring.schema.migrate import migrate
from tests.integration.registry.bench import SHARDS, Bench


@pytest.fixture(scope="session")
def shared_database(stack: LocalStack) -> Iterator[str]:
    server, name = stack.environment()["MAINSPRING_POSTGRES_DSN"], f"registry_{uuid4().hex}"
    dsn = urlunsplit(urlsplit(server)._replace(path=f"/{name}"))

    async def execute(on: str, statement: str | None) -> None:
        connection = await asyncpg.connect(on)
        await (migrate(connection, shards=SHARDS) if statement is None else connection.execute(statement))
        await connection.close()

    asyncio.run(execute(server, f"CREATE DATABASE {name}"))
    asyncio.run(execute(dsn, None))
    yield dsn
    asyncio.run(execute(server, f"DROP DATABASE {name} WITH (FORCE)"))


@pytest.fixture
async def bench(shared_database: str) -> AsyncIterator[Bench]:
    """A registry, a tenant and a look behind the scenes."""
    async with asyncpg.create_pool(shared_database, min_size=1, max_size=12) as pool:
        async with pool.acquire() as connection:
            tenant = await connection.fetchval(
                "INSERT INTO tenants (name) VALUES ($1) RETURNING id", f"t-{uuid4().hex}"
            )
        yield Bench(shared_database, pool, tenant)
