"""The number of shards: written once, when the cluster is created, and checked by every process at its start.

A job's shard is a hash modulo this number and stands in every row, so changing it would mean rewriting them
all while nobody fires. Hence a default of many small shards over few processes.
"""

from __future__ import annotations

import asyncpg

from mainspring.schema.errors import MigrationRefused, ShardCountMismatch
from mainspring.schema.queries import query
from mainspring.schema.sharding import DEFAULT_SHARDS, check_shards

_SHARDED = ("cadences", "jobs", "timers", "ledger")


async def create_cluster(
    connection: asyncpg.Connection[asyncpg.Record], shards: int | None
) -> tuple[int, bool]:
    """Make the shards unless they exist: how many there are, and whether this call made them.

    None asks for what exists, or the default where nothing does; another number than exists is refused. Safe
    against others doing the same: the second waits for the first's row and then finds it.
    """
    wanted = check_shards(DEFAULT_SHARDS if shards is None else shards)
    async with connection.transaction():
        created = await connection.fetchval(query("create_cluster"), wanted)
        if created is not None:
            await connection.execute(query("create_shards"), wanted)
            await _check_shards_in_tables(connection, wanted)
    return await verify_shards(connection, shards), created is not None


async def verify_shards(connection: asyncpg.Connection[asyncpg.Record], expected: int | None) -> int:
    """The cluster's number of shards, for a process to start with; refused if it has another idea."""
    actual = await existing_shards(connection)
    if actual is None:
        raise MigrationRefused("this database holds no cluster yet; run `mainspring migrate`")
    if expected is not None and expected != actual:
        raise ShardCountMismatch(expected=expected, actual=actual)
    return actual


async def existing_shards(connection: asyncpg.Connection[asyncpg.Record]) -> int | None:
    """The cluster's number of shards; None before it has been created."""
    if not await connection.fetchval(query("cluster_exists")):
        return None
    shards: int | None = await connection.fetchval(query("cluster_shards"))
    return shards


async def _check_shards_in_tables(connection: asyncpg.Connection[asyncpg.Record], shards: int) -> None:
    # A constraint with the number in it costs nothing per row. A foreign key would lock a row of `shards` for
    # every job written, and those rows change each second.
    for table in _SHARDED:
        await connection.execute(
            f"ALTER TABLE {table} ADD CONSTRAINT {table}_shard_exists "
            f"CHECK (shard BETWEEN 0 AND {shards - 1})"
        )
