"""The real stack under the tests: one per run, started by the suite itself; if a part is missing, tests fail.

With MAINSPRING_POSTGRES_DSN, MAINSPRING_KAFKA or MAINSPRING_ETCD set, that part is used and not started.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import asyncpg
import pytest

from mainspring.local import LocalStack
from mainspring.schema.migrate import migrate


@pytest.fixture(scope="session")
def stack() -> Iterator[LocalStack]:
    """A throw-away Postgres, etcd and Kafka for the whole run."""
    with asyncio.Runner() as runner:
        started = runner.run(LocalStack().__aenter__())
        try:
            yield started
        finally:
            runner.run(started.__aexit__(None, None, None))


@pytest.fixture
async def database(stack: LocalStack) -> AsyncIterator[str]:
    """The DSN of an empty database of this test's own."""
    server = stack.environment()["MAINSPRING_POSTGRES_DSN"]
    name = f"test_{uuid4().hex}"
    connection = await asyncpg.connect(server)
    try:
        await connection.execute(f'CREATE DATABASE "{name}"')
        yield urlunsplit(urlsplit(server)._replace(path=f"/{name}"))
        await connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
    finally:
        await connection.close()


@pytest.fixture
async def migrated(database: str) -> str:
    """The DSN of a migrated database with the default number of shards."""
    connection = await asyncpg.connect(database)
    try:
        await migrate(connection, shards=64)
    finally:
        await connection.close()
    return database
