"""A database whose clock is the test's: `now()` and its sisters answer what a row of one table says.

Schedules are about time, and a test that waits for time proves little and costs much. The schema and the
statements of Mainspring name these functions without a schema, so a database whose search path looks into
`public` first finds the ones made here, in defaults and in queries alike. Everything else is Postgres's own:
transaction ids, snapshots, locks.

Making and dropping a database takes longer than most of the tests that use it. So there is one, and each test
finds it as if it were new: `reset` ends whoever is still connected, empties it and sets its clock back.
"""

from __future__ import annotations

from datetime import UTC, datetime
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import asyncpg

from mainspring.schema.migrate import migrate

START = 1_893_499_200
"""2030-01-01 12:00:00 UTC: when each test begins."""

SHARDS = 4

_CLOCK = """
CREATE TABLE simulated_clock (at timestamptz NOT NULL);
CREATE FUNCTION now() RETURNS timestamptz LANGUAGE sql STABLE AS 'SELECT at FROM simulated_clock';
CREATE FUNCTION statement_timestamp() RETURNS timestamptz LANGUAGE sql STABLE
    AS 'SELECT at FROM simulated_clock';
CREATE FUNCTION clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE
    AS 'SELECT at FROM simulated_clock';
"""

_END_OTHERS = """
SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
"""
# Without triggers, which refuse a mark that goes back. The functions are those of other worlds.
_EMPTY = """
SET LOCAL session_replication_role = replica;
DELETE FROM timers; DELETE FROM jobs; DELETE FROM cadences; DELETE FROM dependencies;
DELETE FROM ledger; DELETE FROM missed; DELETE FROM dead_letters; DELETE FROM shards;
DROP FUNCTION IF EXISTS public.pg_walfile_name(pg_lsn);
DROP FUNCTION IF EXISTS public.pg_current_snapshot();
"""
_BEGIN = f"INSERT INTO shards (shard) SELECT generate_series(0, {SHARDS - 1})"


def instant(second: float) -> datetime:
    return datetime.fromtimestamp(second, UTC)


async def create(server: str) -> str:
    """A migrated database on a clock of its own; its DSN."""
    name = f"scheduler_{uuid4().hex}"
    await _execute(server, f"CREATE DATABASE {name}")
    await _execute(server, f"ALTER DATABASE {name} SET search_path = public, pg_catalog")
    dsn = urlunsplit(urlsplit(server)._replace(path=f"/{name}"))
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(_CLOCK)
        await connection.execute("INSERT INTO simulated_clock VALUES ($1)", instant(START))
        await migrate(connection, shards=SHARDS)
    finally:
        await connection.close()
    return dsn


async def reset(dsn: str) -> None:
    """Let the next test begin."""
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(_END_OTHERS)
        async with connection.transaction():
            await connection.execute(_EMPTY)
            await connection.execute("UPDATE simulated_clock SET at = $1", instant(START))
        await connection.execute(_BEGIN)
    finally:
        await connection.close()


async def drop(server: str, dsn: str) -> None:
    await _execute(server, f"DROP DATABASE {urlsplit(dsn).path[1:]} WITH (FORCE)")


async def _execute(server: str, statement: str) -> None:
    connection = await asyncpg.connect(server)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()
