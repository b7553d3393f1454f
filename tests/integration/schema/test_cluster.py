"""The number of shards: written once, the same for everybody."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from mainspring.schema.cluster import create_cluster, existing_shards, verify_shards
from mainspring.schema.errors import MigrationRefused, ShardCountMismatch
from mainspring.schema.migrate import migrate
from mainspring.schema.sharding import DEFAULT_SHARDS, MAXIMUM_SHARDS
from tests.integration.schema.conftest import Connect
from tests.integration.schema.rows import insert


async def test_without_a_wish_a_cluster_has_the_default(connect: Connect) -> None:
    connection = await connect()
    assert (await migrate(connection)).shards == DEFAULT_SHARDS
    assert await connection.fetchval("SELECT count(*) FROM shards") == DEFAULT_SHARDS
    assert await verify_shards(connection, None) == DEFAULT_SHARDS
    assert await verify_shards(connection, DEFAULT_SHARDS) == DEFAULT_SHARDS


async def test_a_process_with_another_number_is_refused_and_nothing_changes(connect: Connect) -> None:
    connection = await connect()
    await migrate(connection, shards=8)
    acts = (
        lambda: verify_shards(connection, 16),
        lambda: create_cluster(connection, 16),
        lambda: migrate(connection, shards=16),
    )
    for act in acts:
        with pytest.raises(ShardCountMismatch) as refused:
            await act()
        assert (refused.value.expected, refused.value.actual) == (16, 8)
        assert str(refused.value) == "this process expects 16 shards, but the cluster was created with 8"
    assert await existing_shards(connection) == 8
    assert await connection.fetchval("SELECT array_agg(shard ORDER BY shard) FROM shards") == list(range(8))


async def test_a_process_that_finds_no_cluster_is_told_what_to_do(connect: Connect) -> None:
    connection = await connect()
    assert await existing_shards(connection) is None
    with pytest.raises(MigrationRefused, match="holds no cluster yet; run `mainspring migrate`"):
        await verify_shards(connection, None)


@pytest.mark.parametrize("shards", [1, MAXIMUM_SHARDS])
async def test_the_smallest_and_the_largest_cluster(connect: Connect, shards: int) -> None:
    connection = await connect()
    assert (await migrate(connection, shards=shards)).shards == shards
    await insert(connection, "timers", shard=shards - 1)
    with pytest.raises(asyncpg.CheckViolationError):
        await insert(connection, "timers", shard=shards, attempt=2)


async def test_of_several_who_create_it_with_different_ideas_one_wins(connect: Connect) -> None:
    connections = [await connect() for _ in range(4)]
    wishes = [4, 8, 16, 32]
    async with asyncio.timeout(60):
        attempts = [migrate(each, shards=wish) for each, wish in zip(connections, wishes, strict=True)]
        results = await asyncio.gather(*attempts, return_exceptions=True)
    refused = [result for result in results if isinstance(result, ShardCountMismatch)]
    [won] = [result for result in results if not isinstance(result, BaseException)]
    assert len(refused) == 3
    assert {error.actual for error in refused} == {won.shards}
    assert won.created_cluster
    assert await connections[0].fetchval("SELECT count(*) FROM shards") == won.shards
