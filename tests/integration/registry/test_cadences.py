"""Cadences that come and go under the registry, and a database that goes away."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from mainspring.registry import Registry
from mainspring.registry.cadences import CadenceKey, Cadences, CadenceWanted
from mainspring.schedule import Cadence
from mainspring.schema.errors import DatabaseUnavailable
from tests.integration.registry.bench import SHARDS, Bench, request


async def remove_unused(bench: Bench, expression: str) -> int:
    """What the janitor does to cadences without members."""
    removed = await bench.fetch(
        "DELETE FROM cadences WHERE expression = $1 AND NOT EXISTS"
        " (SELECT FROM jobs WHERE cadence_id = cadences.id) RETURNING id",
        expression,
    )
    return len(removed)


async def remembered(bench: Bench, schedule: str) -> None:
    """Let the registry remember this cadence in every shard, without any job in it."""
    cadence = request(handler="h", schedule=schedule).cadence
    assert cadence is not None
    keys = {CadenceKey(shard, cadence): 50 for shard in range(SHARDS)}
    await bench.registry._cadences.ensure(keys)
    assert await remove_unused(bench, cadence.expression) == SHARDS


async def test_a_create_survives_the_removal_of_its_cadence(bench: Bench) -> None:
    await remembered(bench, "1 1 1 1 *")
    job = await bench.create(name="a", schedule="1 1 1 1 *", jitter_seconds=50)
    assert await bench.fetch("SELECT id, max_jitter FROM cadences WHERE expression = '1 1 1 1 *'") == [
        (job.cadence_id, 50)
    ]


async def test_a_bulk_create_survives_the_removal_of_its_cadences(bench: Bench) -> None:
    await remembered(bench, "2 2 2 2 *")
    requests = [request(handler="h", schedule="2 2 2 2 *") for _ in range(200)]
    assert len(await bench.registry.create_many(bench.tenant, requests)) == 200
    assert await bench.jobs() == 200


async def test_an_edit_and_a_put_survive_the_removal_of_their_cadence(bench: Bench) -> None:
    job = await bench.create(name="a", schedule="@daily")
    await remembered(bench, "3 3 3 3 *")
    edited = await bench.edit(job, schedule="3 3 3 3 *")
    assert edited.version == 2
    await remembered(bench, "4 4 4 4 *")
    replaced, _ = await bench.registry.put(bench.tenant, request(name="a", schedule="4 4 4 4 *"))
    assert replaced.version == 3


async def test_a_cadence_removed_while_its_jobs_are_on_the_way_is_made_again(bench: Bench) -> None:
    """The removal is open when the job is written: the foreign key waits for it, and then refuses."""
    keys = {CadenceKey(shard, Cadence.parse("5 5 5 5 *")): 0 for shard in range(SHARDS)}
    await bench.registry._cadences.ensure(keys)
    async with bench.holding("DELETE FROM cadences WHERE expression = '5 5 5 5 *'") as janitor:
        requests = [request(handler="h", schedule="5 5 5 5 *") for _ in range(20)]
        create = asyncio.create_task(bench.registry.create_many(bench.tenant, requests))
        await bench.until_waiting(janitor)
    assert len(await create) == 20


async def test_registries_that_make_the_same_cadences_at_once_agree(bench: Bench) -> None:
    keys = [
        CadenceKey(shard, Cadence.parse(f"6 {hour} 6 6 *")) for shard in range(SHARDS) for hour in range(9)
    ]

    async def ensure(number: int) -> dict[CadenceKey, int]:
        cadences = Cadences(bench.pool)
        mine = dict.fromkeys(keys if number % 2 else reversed(keys), number)
        await cadences.ensure(mine)
        return cadences.ids_of(mine)

    answers = await asyncio.gather(*(ensure(number) for number in range(8)))
    assert all(answer == answers[0] for answer in answers)
    assert await bench.fetch(
        "SELECT DISTINCT max_jitter FROM cadences WHERE id = ANY($1)", list(answers[0].values())
    ) == [(7,)]


async def test_cadences_are_made_in_one_order_so_that_makers_do_not_deadlock(bench: Bench) -> None:
    """Whoever waits for the first holds none of the later ones yet, whatever order was asked for."""
    first, last = (CadenceKey(0, Cadence.parse(text)) for text in ("11 1 1 1 *", "11 2 1 1 *"))
    insert = "INSERT INTO cadences (shard, kind, expression, timezone) VALUES (0, 'cron', $1, 'UTC')"
    cadences = Cadences(bench.pool)
    async with bench.holding(insert, first.cadence.expression) as holder:
        ensure = asyncio.create_task(cadences.ensure({last: 0, first: 0}))
        await bench.until_waiting(holder)
        async with bench.holding("SET LOCAL lock_timeout = '5s'") as other:
            await other.execute(insert, last.cadence.expression)
    await ensure
    assert len(cadences.ids_of({last: 0, first: 0})) == 2


async def test_jitters_are_raised_in_one_order_so_that_raisers_do_not_deadlock(bench: Bench) -> None:
    first, last = (CadenceKey(0, Cadence.parse(text)) for text in ("12 1 1 1 *", "12 2 1 1 *"))
    cadences = Cadences(bench.pool)
    await cadences.ensure({first: 0})
    await cadences.ensure({last: 0})
    ids = cadences.ids_of({first: 0, last: 0})
    # The leader moves the first: in the table's own order it now comes last.
    await bench.fetch("UPDATE cadences SET next_at = now() WHERE id = $1", ids[first])
    lock = "SELECT id FROM cadences WHERE id = $1 FOR NO KEY UPDATE"
    async with bench.holding(lock, ids[first]) as holder:
        ensure = asyncio.create_task(cadences.ensure({last: 9, first: 9}))
        await bench.until_waiting(holder)
        assert await bench.value(f"{lock} NOWAIT", ids[last]) == ids[last]
    await ensure
    assert cadences.ids_of({first: 9, last: 9}) == ids


async def test_making_a_cadence_does_not_wait_for_the_leader_that_moves_it(bench: Bench) -> None:
    """An open update of `next_at` holds the row; finding it and joining it need no lock that conflicts."""
    first = await bench.create(handler="h", schedule="7 7 7 7 *")
    move = "UPDATE cadences SET next_at = now() WHERE id = $1"
    async with bench.holding(move, first.cadence_id), asyncio.timeout(30):
        for _ in range(8):
            await bench.another_registry().create(bench.tenant, request(handler="h", schedule="7 7 7 7 *"))


async def test_a_jitter_raised_by_two_at_once_is_the_longer(bench: Bench) -> None:
    cadences, key = Cadences(bench.pool), CadenceKey(0, Cadence.parse("9 9 9 9 *"))
    await cadences.ensure({key: 0})
    longer = "UPDATE cadences SET max_jitter = 500 WHERE expression = '9 9 9 9 *'"
    async with bench.holding(longer) as other:
        shorter = asyncio.create_task(cadences.ensure({key: 300}))
        await bench.until_waiting(other)
    await shorter
    assert await bench.value("SELECT max_jitter FROM cadences WHERE id = $1", cadences.id_of(key, 300)) == 500


async def test_a_jitter_that_is_not_known_to_be_covered_is_asked_for_again(bench: Bench) -> None:
    cadences, key = Cadences(bench.pool), CadenceKey(0, Cadence.parse("8 8 8 8 *"))
    await cadences.ensure({key: 10})
    assert cadences.id_of(key, 10)
    with pytest.raises(CadenceWanted) as wanted:
        cadences.id_of(key, 11)
    assert wanted.value.jitters == {key: 11}


async def test_a_broken_connection_says_that_the_database_is_unavailable(bench: Bench) -> None:
    job = await bench.create(name="a", schedule="@daily")
    async with bench.holding("SELECT FROM jobs WHERE id = $1 FOR UPDATE", job.id) as holder:
        edit = asyncio.create_task(bench.edit(job, payload=1))
        process = await bench.until_waiting(holder)
        await bench.fetch("SELECT pg_terminate_backend($1)", process)
        with pytest.raises(DatabaseUnavailable):
            await edit
    assert (await bench.facts(job)).version == 1


async def test_a_server_that_is_not_there_is_unavailable(bench: Bench) -> None:
    pool = asyncpg.create_pool("postgresql://nobody@127.0.0.1:1/none", min_size=0, max_size=1)
    async with pool:
        registry = Registry(pool, shards=SHARDS)
        with pytest.raises(DatabaseUnavailable):
            await registry.get(1, 1)
        with pytest.raises(DatabaseUnavailable):
            await registry.create(1, request(name="a", schedule="@daily"))


async def test_a_closed_pool_is_unavailable(bench: Bench) -> None:
    pool = await asyncpg.create_pool(bench.dsn, min_size=1, max_size=1)
    await pool.close()
    with pytest.raises(DatabaseUnavailable):
        await Registry(pool, shards=SHARDS).get(bench.tenant, 1)
