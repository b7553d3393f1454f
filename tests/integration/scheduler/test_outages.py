"""Postgres away: firing goes on as far as it is known what is due, and what was fired is written later.

Trap: twelve minutes without Postgres, then the mark jumps over two unloaded minutes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from mainspring.schema.errors import DatabaseUnavailable
from tests.integration.scheduler.leader import ALL, PATIENCE, Leader, until
from tests.integration.scheduler.line import Line
from tests.integration.scheduler.simulated import START, instant
from tests.integration.scheduler.stage import Stage


@pytest.fixture
async def line(stage: Stage) -> AsyncIterator[Line]:
    async with Line(stage.dsn) as made:
        yield made


@pytest.fixture
async def leader(stage: Stage, line: Line) -> Leader:
    """Behind a line that can be cut; leads nothing yet."""
    return await stage.leader(dsn=line.dsn)


async def test_twelve_minutes_without_postgres_skip_nothing_that_was_not_loaded(
    stage: Stage, line: Line, leader: Leader
) -> None:
    minutely = await stage.create("* * * * *", missed_window="RUN_ALL")
    after_the_window = await stage.create("11 12 * * *")
    await leader.lead()
    line.cut()
    one_off = await stage.create(schedule="2030-01-01T12:11:30Z")
    for minute in range(1, 13):
        await stage.at(START + 60 * minute + 0.5, heard=False)
        await leader.fire()
    assert {term.fired for term in leader.terms.values()} == {START + 600}
    assert not await leader.settling.run_once()
    assert await stage.instants(minutely) == [60.0 * minute for minute in range(1, 11)]
    line.mend()
    await stage.at(START + 721)
    await leader.settle()
    assert {await stage.mark(shard) for shard in ALL} == {600}
    await leader.poll()
    await leader.extend()
    await leader.fire()
    await leader.settle()
    assert {await stage.mark(shard) for shard in ALL} == {721}
    assert await stage.instants(minutely) == [60.0 * minute for minute in range(1, 13)]
    assert await stage.instants(after_the_window) == [660]
    assert await stage.instants(one_off) == [690]


async def test_what_was_fired_without_postgres_is_written_whole_when_it_is_back(
    stage: Stage, line: Line, leader: Leader
) -> None:
    jobs = [await stage.create() for _ in range(6)]
    one_off = await stage.create(schedule="2030-01-01T12:00:02Z")
    await leader.lead()
    line.cut()
    for second in (1, 2, 3):
        await stage.at(START + second + 0.5, heard=False)
        with pytest.raises(DatabaseUnavailable):
            await leader.feed.run_once()
        await leader.fire()
        assert not await leader.settling.run_once()
    assert {await stage.mark(shard) for shard in ALL} == {0}
    assert await stage.value("SELECT count(*) FROM timers") == 1
    line.mend()
    await stage.at(START + 4)
    await leader.live()
    assert {await stage.mark(shard) for shard in ALL} == {4}
    assert await stage.all_instants() == {job.id: [1, 2, 3, 4] for job in jobs} | {one_off.id: [2]}
    published = await stage.value("SELECT sum(published) FROM ledger")
    assert published == len(await stage.published())
    assert await stage.value("SELECT count(*) FROM timers") == 0


async def test_a_backend_that_is_ended_costs_a_try_and_nothing_else(stage: Stage) -> None:
    job = await stage.create()
    one_off = await stage.create(schedule="2030-01-01T12:00:02Z")
    leader = await stage.leading()
    await stage.at(START + 2)
    await leader.fire()
    ended = await stage.value(
        "SELECT count(pg_terminate_backend(pid, 10000)) FROM pg_stat_activity"
        " WHERE datname = current_database() AND application_name LIKE 'first %'"
    )
    assert ended >= 2
    async with asyncio.timeout(PATIENCE):
        while not await leader.settling.run_once():
            pass
        while not await polled(leader):
            pass
    assert await stage.mark(job.shard) == 2
    assert await stage.value("SELECT count(*) FROM timers") == 0
    assert await stage.instants(job) == [1, 2]
    assert await stage.instants(one_off) == [2]


async def polled(leader: Leader) -> bool:
    try:
        await leader.poll()
    except DatabaseUnavailable:
        return False
    return True


async def test_without_a_trusted_lease_and_without_postgres_the_bucket_is_held(
    stage: Stage, line: Line, leader: Leader, events: list[Any]
) -> None:
    job = await stage.create()
    await leader.lead()
    leader.keeper.trusted = False
    line.cut()
    await stage.at(START + 1.5, heard=False)
    firing = asyncio.create_task(leader.firing.run_once())
    await until(lambda: any(event["event"] == "bucket_held" for event in events))
    assert await stage.published() == []
    line.mend()
    async with asyncio.timeout(PATIENCE):
        await firing
    assert await stage.instants(job) == [1]


async def test_without_a_trusted_lease_postgres_confirms_each_bucket(stage: Stage) -> None:
    job = await stage.create()
    first = await stage.leading("first")
    first.keeper.trusted = False
    await stage.at(START + 1)
    await first.live()
    assert await stage.instants(job) == [1]
    second = await stage.leading("second")
    await stage.at(START + 2)
    await first.fire()
    assert sorted(first.ended) == [(shard, "another_epoch") for shard in ALL]
    assert await stage.instants(job) == [1]
    await second.live()
    assert await stage.instants(job) == [1, 2]


async def test_a_commit_whose_answer_was_lost_is_repeated_without_harm(
    stage: Stage, line: Line, leader: Leader
) -> None:
    job = await stage.create()
    one_off = await stage.create(schedule="2030-01-01T12:00:01Z")
    await leader.lead()
    await stage.at(START + 1)
    await leader.poll()
    await leader.fire()
    line.lose_answer_to(b"COMMIT")
    assert not await leader.settling.run_once()
    async with asyncio.timeout(PATIENCE):
        while await stage.mark(job.shard) != 1:
            pass
    line.mend()
    await leader.settle()
    assert leader.ended == []
    assert {await stage.mark(shard) for shard in ALL} == {1}
    assert await stage.value("SELECT count(*) FROM timers") == 0
    await stage.at(START + 2)
    await leader.live()
    assert await stage.all_instants() == {job.id: [1, 2], one_off.id: [1]}
    counted = await stage.fetch("SELECT published FROM ledger WHERE second = $1", instant(START + 2))
    assert counted == [(1,)]


async def test_a_load_that_fails_half_way_leaves_nothing_and_is_tried_again(
    stage: Stage, line: Line, leader: Leader
) -> None:
    job = await stage.create("* * * * *")
    await leader.begin()
    line.cut()
    await until(lambda: line.refused > 0)
    assert not any(term.ready for term in leader.terms.values())
    line.mend()
    await leader.beside.finish()
    await stage.at(START + 60)
    await leader.live()
    assert await stage.instants(job) == [60]


async def test_a_day_that_cannot_be_made_now_makes_the_mark_wait_and_ends_no_term(stage: Stage) -> None:
    leader = await stage.leading()
    job = await stage.create(schedule="2029-03-03T08:00:00Z")
    await stage.at(START + 1)
    await leader.poll()
    await leader.fire()
    async with stage.open_transaction() as connection:
        await connection.execute("LOCK TABLE ledger IN ACCESS EXCLUSIVE MODE")
        assert not await leader.settling.run_once()
    assert await stage.mark(job.shard) == 0
    await leader.settle()
    assert await stage.mark(job.shard) == 1
    assert await stage.value("SELECT published FROM ledger") == 1
    assert leader.ended == []
