"""The edge to Postgres: connections, and driver errors turned into ours once."""

from __future__ import annotations

import asyncpg

from mainspring.schema.errors import DatabaseUnavailable
from mainspring.settings import PostgresSettings, masked_dsn

CONNECT_SECONDS = 10.0


async def connect(
    settings: PostgresSettings, *, application: str = "mainspring", timeout: float = CONNECT_SECONDS
) -> asyncpg.Connection[asyncpg.Record]:
    """Open one connection, or say in one line where it was tried and why it failed."""
    where = masked_dsn(settings.dsn)
    try:
        return await asyncpg.connect(
            settings.dsn,
            password=settings.password,
            ssl=settings.ssl(),
            timeout=timeout,
            server_settings={"application_name": application, "timezone": "UTC"},
        )
    except TimeoutError as error:
        raise DatabaseUnavailable(f"postgres at {where} did not answer within {timeout:g} s") from error
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, ValueError) as error:
        raise DatabaseUnavailable(f"postgres at {where} cannot be used: {error}") from error
