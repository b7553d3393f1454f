"""Trap: a restored dump or a failover changes the transaction ids."""

from __future__ import annotations

from mainspring.scheduler.rebase import rebase
from tests.integration.scheduler.leader import ALL, Leader
from tests.integration.scheduler.simulated import START, instant
from tests.integration.scheduler.stage import Stage

ANOTHER_TIMELINE = """
CREATE FUNCTION pg_walfile_name(lsn pg_lsn) RETURNS text LANGUAGE sql
    AS $$ SELECT 'FFFFFFFF' || substr(pg_catalog.pg_walfile_name(lsn), 9) $$
"""
LOWER_IDS = """
CREATE FUNCTION pg_current_snapshot() RETURNS pg_snapshot LANGUAGE sql AS $$ SELECT '700:700:'::pg_snapshot $$
"""
AHEAD = 1_000_000_000


async def change_the_world(stage: Stage, statement: str) -> None:
    """As after a failover: every connection is new, and answers from another server."""
    await stage.execute(statement)
    for leader in stage.leaders:
        for pool in leader.pools:
            await pool.expire_connections()


async def restore_a_dump(stage: Stage) -> None:
    """Rows as they come out of a dump of a server whose transaction ids were far ahead of this one's."""
    for table in ("jobs", "timers"):
        await stage.behind_its_back(
            f"UPDATE {table} SET changed = (changed::text::bigint + {AHEAD})::text::xid8"
        )
    await stage.behind_its_back(f"UPDATE shards SET seen = '{AHEAD}:{AHEAD}:'")


async def run_rebase(stage: Stage) -> list[str]:
    said: list[str] = []
    async with stage.pool.acquire() as connection:
        await rebase(connection, said.append)
    return said


async def test_another_timeline_ends_every_term_which_is_then_taken_anew(stage: Stage) -> None:
    job = await stage.create()
    leader = await stage.leading()
    await stage.at(START + 1)
    await leader.live()
    await change_the_world(stage, ANOTHER_TIMELINE)
    await leader.poll()
    assert sorted(leader.ended) == [(shard, "transaction_ids") for shard in ALL]
    await leader.lead()
    await stage.at(START + 2)
    await leader.live()
    assert set(await stage.instants(job)) == {1, 2}
    assert await stage.fetch("SELECT DISTINCT timeline FROM shards") == [("FFFFFFFF",)]


async def test_transaction_ids_that_went_back_end_every_term(stage: Stage) -> None:
    await stage.create()
    leader = await stage.leading()
    await change_the_world(stage, LOWER_IDS)
    await leader.poll()
    assert sorted(leader.ended) == [(shard, "transaction_ids") for shard in ALL]


async def test_a_takeover_in_another_world_ends_at_once_and_leaves_the_terms_free(stage: Stage) -> None:
    leader = await stage.leader()
    await leader.lead([0])
    await change_the_world(stage, LOWER_IDS)
    await leader.lead([1, 2])
    assert sorted(leader.ended) == [(1, "transaction_ids"), (2, "transaction_ids")]


async def test_what_is_owed_behind_the_mark_survives_a_change_of_the_timeline(stage: Stage) -> None:
    """`seen` is counted in other ids: by number alone it would cover what it never saw."""
    await stage.make_cadence("* * * * *")
    first = await stage.leading("first")
    await stage.at(START + 59.5)
    async with stage.open_transaction() as connection:
        job = await stage.within(connection).create(stage.tenant, stage.request(schedule="* * * * *"))
        await stage.at(START + 62)
        await first.live()
    await first.die()
    await stage.behind_its_back("UPDATE shards SET seen = pg_current_snapshot()")
    await change_the_world(stage, ANOTHER_TIMELINE)
    second = await stage.leading("second")
    await second.live()
    assert await stage.instants(job) == [60]


async def test_rows_from_the_future_are_noticed_and_rebase_mends_them(stage: Stage) -> None:
    job = await stage.create()
    later = await stage.create(schedule="2030-01-01T12:00:05Z")
    leader = await stage.leader()
    assert not await leader.marks.is_from_the_future()
    await restore_a_dump(stage)
    assert await leader.marks.is_from_the_future()
    assert await run_rebase(stage) == ["jobs: 2 rewritten", "timers: 1 rewritten"]
    assert not await leader.marks.is_from_the_future()
    await leader.lead()
    await stage.at(START + 1)
    await leader.live()
    await stage.registry.pause(stage.tenant, job.id)
    await stage.edit(later, schedule=instant(START + 4).isoformat())
    await stage.at(START + 5)
    await leader.live()
    assert await stage.all_instants() == {job.id: [1], later.id: [4]}


async def test_a_rebase_ends_the_terms_of_whoever_leads(stage: Stage) -> None:
    job = await stage.create()
    leader = await stage.leading()
    await restore_a_dump(stage)
    await run_rebase(stage)
    await stage.at(START + 1)
    await leader.fire()
    await leader.settle()
    assert sorted(leader.ended) == [(shard, "another_epoch") for shard in ALL]
    assert await stage.mark(job.shard) == 0
    await leader.lead()
    await leader.live()
    assert set(await stage.instants(job)) == {1}


async def test_what_is_owed_behind_the_mark_survives_a_rebase(stage: Stage) -> None:
    await stage.make_cadence("* * * * *")
    first = await stage.leading("first")
    await stage.at(START + 59.5)
    async with stage.open_transaction() as connection:
        job = await stage.within(connection).create(stage.tenant, stage.request(schedule="* * * * *"))
        await stage.at(START + 62)
        await first.live()
    await first.die()
    await restore_a_dump(stage)
    await run_rebase(stage)
    second = await stage.leading("second")
    await second.live()
    assert await stage.instants(job) == [60]


async def test_a_rebase_of_a_sound_database_changes_no_row(stage: Stage) -> None:
    job = await stage.create()
    before = await stage.fetch("SELECT changed::text FROM jobs")
    assert await run_rebase(stage) == []
    assert await stage.fetch("SELECT changed::text FROM jobs") == before
    leader: Leader = await stage.leading()
    await stage.at(START + 1)
    await leader.live()
    assert await stage.instants(job) == [1]
