"""One migrated database for all tests of the API; each test has tenants of its own in it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import asyncpg
import pytest

from mainspring.local import LocalStack
from mainspring.schema.migrate import migrate
from tests.integration.api.house import SHARDS, Client, House, Tenant


@pytest.fixture(scope="session")
def api_database(stack: LocalStack) -> Iterator[str]:
    server, name = stack.environment()["MAINSPRING_POSTGRES_DSN"], f"api_{uuid4().hex}"
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
async def exits() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture
async def house(api_database: str, exits: AsyncExitStack) -> House:
    settings = {"plan_cache_mode": "force_custom_plan", "timezone": "UTC"}
    pool = await asyncpg.create_pool(api_database, min_size=1, max_size=8, server_settings=settings)
    await exits.enter_async_context(pool)
    return House(api_database, pool, exits, body_bytes=1_500_000)


@pytest.fixture
async def tenant(house: House) -> Tenant:
    return await house.tenant()


@pytest.fixture
async def operator(tenant: Tenant) -> Client:
    return await tenant.client("operator")


@pytest.fixture
async def admin(tenant: Tenant) -> Client:
    return await tenant.client("admin")
