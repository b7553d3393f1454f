"""Migrations: numbered `.sql` files, applied once each and in order, remembered with their hash.

`schema_migrations` is the authority on what a database has had; the files of this distribution are the
authority on what it should have. They must agree on everything the database has had, or nothing is done: a
file edited after it was applied, a number missing in between and a database newer than the code are refused
with the reason.

Each file runs in one transaction together with its row in the ledger, so a failure or a crash leaves it
either done or not begun. Any number of runners may start at once: an advisory lock lets one through, the
others poll for it and then find nothing to do. They poll because a session that blocks in
`pg_advisory_lock` holds a snapshot, and a CREATE INDEX CONCURRENTLY of the one inside waits for every
snapshot: a deadlock. The lock belongs to the session, so connect directly or through a pooler in session
mode.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import date
from hashlib import sha256
from pathlib import Path

import asyncpg

from mainspring.schema.cluster import create_cluster, existing_shards, verify_shards
from mainspring.schema.errors import DatabaseUnavailable, MigrationRefused
from mainspring.schema.partitions import days_ahead, ensure_days
from mainspring.schema.queries import query
from mainspring.schema.sharding import check_shards

OLDEST_POSTGRES = 15

_DIRECTORY = Path(__file__).resolve().parent / "migrations"
_FILE = re.compile(r"([0-9]{4})_([a-z0-9_]+)\.sql", re.ASCII)
_LOCK = 0x6D73_6D69_6772_6174  # "msmigrat"
_POLL_SECONDS = 0.1
_PATIENCE_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Migration:
    """One file."""

    version: int
    name: str
    sql: str

    @property
    def sha256(self) -> str:
        return sha256(self.sql.encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationResult:
    """What a run of `migrate` did."""

    applied: tuple[str, ...]
    version: int
    shards: int
    created_cluster: bool
    created_days: tuple[date, ...]


def load_migrations(directory: Path = _DIRECTORY) -> list[Migration]:
    """The files in order; they must be numbered 0001, 0002, … without a gap."""
    migrations = []
    for file in sorted(directory.glob("*.sql")):
        matched = _FILE.fullmatch(file.name)
        if not matched:
            raise MigrationRefused(f"{file.name} is not named like 0001_what_it_does.sql")
        # read_text turns every line ending into \n: a checkout with other ones is not an edit.
        migrations.append(Migration(int(matched[1]), file.stem, file.read_text(encoding="utf-8")))
    for expected, migration in enumerate(migrations, start=1):
        if migration.version != expected:
            raise MigrationRefused(f"{migration.name} stands where {expected:04} should")
    return migrations


async def plan(
    connection: asyncpg.Connection[asyncpg.Record],
    *,
    shards: int | None = None,
    migrations: Sequence[Migration] | None = None,
) -> list[Migration]:
    """What `migrate` would apply, or the reason it would refuse; changes nothing."""
    known = load_migrations() if migrations is None else migrations
    with _translated():
        await _check_server(connection)
        exists = await connection.fetchval(query("migration_ledger_exists"))
        applied = await connection.fetch(query("applied_migrations")) if exists else []
        _check_history(known, applied)
        if await existing_shards(connection) is not None:
            await verify_shards(connection, shards)
    return list(known[len(applied) :])


async def migrate(
    connection: asyncpg.Connection[asyncpg.Record],
    *,
    shards: int | None = None,
    migrations: Sequence[Migration] | None = None,
) -> MigrationResult:
    """Bring the database forward: schema, shards, the days ahead. A second time does nothing.

    `shards` counts when the cluster is created; later it must be the same number, or None.
    """
    if shards is not None:
        check_shards(shards)
    known = load_migrations() if migrations is None else migrations
    with _translated():
        async with _alone(connection):
            pending = await plan(connection, shards=shards, migrations=known)
            await connection.execute(query("create_migration_ledger"))
            for migration in pending:
                await _apply(connection, migration)
            actual, created = await create_cluster(connection, shards)
            days = await ensure_days(connection, await days_ahead(connection))
    return MigrationResult(
        applied=tuple(migration.name for migration in pending),
        version=len(known),
        shards=actual,
        created_cluster=created,
        created_days=tuple(days),
    )


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except (asyncpg.PostgresConnectionError, asyncpg.InterfaceError, OSError) as error:
        raise DatabaseUnavailable(f"the connection to Postgres broke: {error}") from error
    except asyncpg.PostgresError as error:
        raise MigrationRefused(f"Postgres answered: {_one_line(error)}") from error


def _one_line(error: asyncpg.PostgresError) -> str:
    """Postgres's own words; the driver puts detail and hint on lines of their own."""
    return " ".join(str(error).split())


@asynccontextmanager
async def _alone(connection: asyncpg.Connection[asyncpg.Record]) -> AsyncIterator[None]:
    if connection.is_in_transaction():
        raise MigrationRefused("migrations are transactions of their own; this connection is inside one")
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not await connection.fetchval(query("try_lock_migrations"), _LOCK):
        if time.monotonic() > deadline:
            raise MigrationRefused(f"another migration has been running for {_PATIENCE_SECONDS:g} s")
        await asyncio.sleep(_POLL_SECONDS)
    try:
        yield
    finally:
        # A connection that broke has lost the lock already; its own error is the one to report.
        if not connection.is_closed():
            await connection.execute(query("unlock_migrations"), _LOCK)


async def _check_server(connection: asyncpg.Connection[asyncpg.Record]) -> None:
    version = await connection.fetchval(query("server_version")) // 10_000
    if version < OLDEST_POSTGRES:
        raise MigrationRefused(f"Postgres {version} is older than {OLDEST_POSTGRES}")


def _check_history(known: Sequence[Migration], applied: Sequence[asyncpg.Record]) -> None:
    if applied and applied[-1]["version"] > len(known):
        newest = applied[-1]["name"]
        raise MigrationRefused(
            f"the database is newer than this code: it has had {newest}; upgrade Mainspring"
        )
    for expected, row in enumerate(applied, start=1):
        migration = known[expected - 1]
        if row["version"] != expected:
            raise MigrationRefused(f"the database has had {row['name']} but not {migration.name}: a gap")
        if (row["name"], row["sha256"]) != (migration.name, migration.sha256):
            raise MigrationRefused(f"{migration.name} was edited after the database had {row['name']}")


async def _apply(connection: asyncpg.Connection[asyncpg.Record], migration: Migration) -> None:
    try:
        async with connection.transaction():
            await connection.execute(migration.sql)
            await connection.execute(
                query("record_migration"), migration.version, migration.name, migration.sha256
            )
    except asyncpg.PostgresConnectionError:
        raise  # perhaps in COMMIT: then nobody here knows whether it was undone
    except asyncpg.PostgresError as error:
        raise MigrationRefused(f"{migration.name} failed and was undone: {_one_line(error)}") from error
