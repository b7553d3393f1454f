"""Connections to a real Postgres; databases in common for tests that undo what they do, or keep it apart."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import asyncpg
import pytest

from mainspring.local import LocalStack
from mainspring.schema.migrate import migrate
from tests.integration.schema.rows import Connection

Connect = Callable[[], Awaitable[Connection]]


@pytest.fixture(scope="session")
def common_database(stack: LocalStack) -> Iterator[str]:
    """A migrated database of 8 shards that nobody may change for good."""
    with migrated_database(stack) as dsn:
        yield dsn


@pytest.fixture(scope="session")
def days_database(stack: LocalStack) -> Iterator[str]:
    """A migrated database in which every test makes and removes days of its own."""
    with migrated_database(stack) as dsn:
        yield dsn


@contextmanager
def migrated_database(stack: LocalStack) -> Iterator[str]:
    """A migrated database of 8 shards, dropped at the end; belongs to no event loop, so it may live long."""
    server = stack.environment()["MAINSPRING_POSTGRES_DSN"]
    name = f"test_{uuid4().hex}"
    dsn = urlunsplit(urlsplit(server)._replace(path=f"/{name}"))

    async def create() -> None:
        await administrate(server, f"CREATE DATABASE {name}")
        connection = await asyncpg.connect(dsn)
        await migrate(connection, shards=8)
        await connection.close()

    asyncio.run(create())
    yield dsn
    asyncio.run(administrate(server, f"DROP DATABASE {name} WITH (FORCE)"))


async def administrate(server: str, statement: str) -> None:
    connection = await asyncpg.connect(server)
    await connection.execute(statement)
    await connection.close()


@pytest.fixture
async def undone(common_database: str) -> AsyncIterator[Connection]:
    """A connection inside a transaction that is rolled back after the test."""
    connection = await asyncpg.connect(common_database)
    transaction = connection.transaction()
    await transaction.start()
    yield connection
    await transaction.rollback()
    await connection.close()


@pytest.fixture
async def connect(database: str) -> AsyncIterator[Connect]:
    """Opens connections to this test's own empty database."""
    async with opening(database) as open_connection:
        yield open_connection


@pytest.fixture
async def connect_to_days(days_database: str) -> AsyncIterator[Connect]:
    """Opens connections to the database for days."""
    async with opening(days_database) as open_connection:
        yield open_connection


@asynccontextmanager
async def opening(dsn: str) -> AsyncIterator[Connect]:
    async with AsyncExitStack() as opened:

        async def open_connection() -> Connection:
            connection = await asyncpg.connect(dsn)
            # Terminated, not closed: a test that failed may have left a statement waiting.
            opened.callback(connection.terminate)
            return connection

        yield open_connection
