"""The registry's edge to Postgres: one transaction, and what the driver raises in it turned into ours.

Some of what goes wrong is nobody's fault and passes when the whole transaction is tried again: a deadlock,
a cadence that the janitor removed after its id was read, a drawn id that exists. These are `Repeat`, and
stay in this package.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeAlias

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from mainspring.schema.errors import DatabaseUnavailable, NotFound

# In quotes: the driver's classes are generic for the type checker only.
Connection: TypeAlias = "PoolConnectionProxy[asyncpg.Record]"
Pool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"

_NAME_IS_UNIQUE = "jobs_by_name"
_TENANT_EXISTS = "jobs_tenant_id_fkey"
_CADENCE_EXISTS = "jobs_cadence_id_shard_fkey"
_ID_IS_UNIQUE = "jobs_pkey"

_BROKEN = (
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,  # the server stops, starts, or ended us
    asyncpg.InsufficientResourcesError,  # no connection slot, no memory, no disk
    asyncpg.ReadOnlySQLTransactionError,  # a replica: the primary has moved elsewhere
    # The server left while we were silent; the driver takes its parting words for the next answer.
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.InternalClientError,
    OSError,
)


class Repeat(Exception):
    """The transaction was undone and may succeed when tried again."""


class CadenceGone(Repeat):
    """A cadence was removed between the reading of its id and its use."""


class NameExists(Repeat):
    """A job of this name was there first; by the next try it may be gone, or be the one to replace."""


@asynccontextmanager
async def connected(pool: Pool) -> AsyncIterator[Connection]:
    """One connection of the pool, for statements that are each a transaction of their own."""
    try:
        async with pool.acquire() as connection:
            yield connection
    except asyncpg.UniqueViolationError as error:
        raise _translate_unique(error) from error
    except asyncpg.ForeignKeyViolationError as error:
        raise _translate_reference(error) from error
    except asyncpg.DeadlockDetectedError as error:
        raise Repeat from error
    except _BROKEN as error:
        raise _unavailable(error) from error
    except asyncpg.InterfaceError as error:
        # The driver has one class for “connection is closed” and for arguments it cannot encode; the latter
        # are ValueErrors too, and a defect of ours.
        if isinstance(error, ValueError):
            raise
        raise _unavailable(error) from error


@asynccontextmanager
async def transaction(pool: Pool) -> AsyncIterator[Connection]:
    """One transaction; undone when the body raises."""
    async with connected(pool) as connection, connection.transaction():
        yield connection


def _unavailable(error: Exception) -> DatabaseUnavailable:
    # The driver puts detail and hint on lines of their own.
    return DatabaseUnavailable(f"Postgres cannot be used: {' '.join(str(error).split())}")


def _translate_unique(error: asyncpg.UniqueViolationError) -> Exception:
    if error.constraint_name == _NAME_IS_UNIQUE:
        return NameExists()
    return Repeat() if error.constraint_name == _ID_IS_UNIQUE else error


def _translate_reference(error: asyncpg.ForeignKeyViolationError) -> Exception:
    if error.constraint_name == _TENANT_EXISTS:
        return NotFound("tenant", "of this id")
    return CadenceGone() if error.constraint_name == _CADENCE_EXISTS else error
