"""The edge to Postgres: connections, and driver errors turned into ours once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import asyncpg

from mainspring.schema.errors import DatabaseUnavailable
from mainspring.settings import PostgresSettings, masked_dsn

CONNECT_SECONDS = 10.0

# What passes when it is tried again: the server is away, starting, stopping, full or cut off, or somebody
# else was in the way (a deadlock, a serialization failure). None of it says anything about the statement.
_AWAY = (
    OSError,
    TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.TransactionRollbackError,
)


async def connect(
    settings: PostgresSettings, *, application: str = "mainspring", timeout: float = CONNECT_SECONDS
) -> asyncpg.Connection[asyncpg.Record]:
    """Open one connection, or say in one line where it was tried and why it failed."""
    where = masked_dsn(settings.dsn)
    try:
        return await asyncpg.connect(**_arguments(settings, application), timeout=timeout)
    except TimeoutError as error:
        raise DatabaseUnavailable(f"postgres at {where} did not answer within {timeout:g} s") from error
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, ValueError) as error:
        raise DatabaseUnavailable(f"postgres at {where} cannot be used: {error}") from error


def make_pool(
    settings: PostgresSettings, *, application: str, size: int, command_seconds: float
) -> asyncpg.Pool[asyncpg.Record]:
    """A pool that connects when it is first used and again after an outage; a silent server is a timeout."""
    return asyncpg.create_pool(
        **_arguments(settings, application),
        min_size=0,
        max_size=size,
        timeout=CONNECT_SECONDS,
        command_timeout=command_seconds,
    )


@contextmanager
def database_errors() -> Iterator[None]:
    """Translate what passes when it is tried again; what says that a statement is wrong goes through."""
    try:
        yield
    except _AWAY as error:
        reason = str(error) or type(error).__name__
        raise DatabaseUnavailable(f"postgres cannot be used: {reason}") from error


def _arguments(settings: PostgresSettings, application: str) -> dict[str, Any]:
    return {
        "dsn": settings.dsn,
        "password": settings.password,
        "ssl": settings.ssl(),
        "server_settings": {"application_name": application, "timezone": "UTC"},
    }
