"""The edge to Postgres: connections, and driver errors turned into ours once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import asyncpg

from mainspring.schema.errors import DatabaseUnavailable
from mainspring.settings import PostgresSettings, masked_dsn

CONNECT_SECONDS = 10.0
IDLE_SECONDS = 60.0
"""How long a transaction may be open with nothing to do before the server ends it, if nobody says less."""

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
    # The server has ended a transaction in which nothing happened; told late, the driver takes its parting
    # words for the answer to the next statement.
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.InternalClientError,
)


async def connect(
    settings: PostgresSettings, *, application: str = "mainspring", timeout: float = CONNECT_SECONDS
) -> asyncpg.Connection[asyncpg.Record]:
    """Open one connection, or say in one line where it was tried and why it failed."""
    where = masked_dsn(settings.dsn)
    try:
        return await asyncpg.connect(**_arguments(settings, application, IDLE_SECONDS), timeout=timeout)
    except TimeoutError as error:
        raise DatabaseUnavailable(f"postgres at {where} did not answer within {timeout:g} s") from error
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, ValueError) as error:
        raise DatabaseUnavailable(f"postgres at {where} cannot be used: {error}") from error


def make_pool(
    settings: PostgresSettings,
    *,
    application: str,
    size: int,
    command_seconds: float,
    idle_seconds: float = IDLE_SECONDS,
    server_settings: Mapping[str, str] | None = None,
) -> asyncpg.Pool[asyncpg.Record]:
    """A pool that connects when it is first used and again after an outage.

    A silent server is a timeout here, after `command_seconds`; a silent client is one there: a transaction
    in which it says nothing for `idle_seconds` is rolled back, and its locks are free. A process that was
    stopped, or cut off, would hold them for ever.
    """
    arguments = _arguments(settings, application, idle_seconds)
    arguments["server_settings"] |= server_settings or {}
    return asyncpg.create_pool(
        **arguments,
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


def _arguments(settings: PostgresSettings, application: str, idle_seconds: float) -> dict[str, Any]:
    return {
        "dsn": settings.dsn,
        "password": settings.password,
        "ssl": settings.ssl(),
        "server_settings": {
            "application_name": application,
            "timezone": "UTC",
            "idle_in_transaction_session_timeout": str(int(idle_seconds * 1000)),
        },
    }
