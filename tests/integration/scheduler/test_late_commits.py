"""Traps of section 3.4: what is committed late is seen when it is committed, and not lost with its leader."""

from __future__ import annotations

import pytest

from tests.integration.scheduler.leader import during_load
from tests.integration.scheduler.simulated import START
from tests.integration.scheduler.stage import Stage


class Died(Exception):
    """The process ends here."""


async def die() -> None:
    raise Died


async def test_a_late_timer_is_seen_the_mark_moves_the_leader_dies_before_it_is_acknowledged(
    stage: Stage,
) -> None:
    first = await stage.leading("first")
    await stage.at(START + 1)
    async with stage.open_transaction() as connection:
        registry = stage.within(connection)
        job = await registry.create(stage.tenant, stage.request(schedule="2030-01-01T12:00:03Z"))
        await stage.at(START + 5)
        await first.live()
    await stage.at(START + 6)
    await first.poll()
    first.publisher.before = die
    with pytest.raises(Died):
        await first.fire()
    await first.die()
    assert await stage.mark(job.shard) == 5
    second = await stage.leading("second")
    await second.live()
    assert await stage.instants(job) == [3]
    assert await stage.value("SELECT count(*) FROM timers") == 0


async def test_a_timer_fired_and_not_deleted_is_fired_again(stage: Stage) -> None:
    """The other side of the bargain: between the mark and the deletion a crash makes two of one."""
    job = await stage.create(schedule="2030-01-01T12:00:03Z")
    first = await stage.leading("first")
    await stage.at(START + 3)
    await first.poll()
    await first.fire()
    await first.die()
    second = await stage.leading("second")
    await second.live()
    assert await stage.instants(job) == [3, 3]


@pytest.mark.parametrize("company", [True, False], ids=["armed-cadence", "new-cadence"])
async def test_a_job_committed_after_its_first_occurrence_is_fired_at_once(
    stage: Stage, company: bool
) -> None:
    if company:
        await stage.make_cadence("* * * * *")
    leader = await stage.leading()
    await stage.at(START + 59.5)
    async with stage.open_transaction() as connection:
        job = await stage.within(connection).create(stage.tenant, stage.request(schedule="* * * * *"))
        await stage.at(START + 62)
        await leader.live()
    await leader.live()
    assert await stage.instants(job) == [60]
    await stage.at(START + 120)
    await leader.live()
    assert await stage.instants(job) == [60, 120]


async def test_a_job_committed_late_is_fired_by_the_successor_of_a_leader_that_had_not_stored_seen(
    stage: Stage,
) -> None:
    await stage.make_cadence("* * * * *")
    first = await stage.leading("first")
    await stage.at(START + 59.5)
    async with stage.open_transaction() as connection:
        job = await stage.within(connection).create(stage.tenant, stage.request(schedule="* * * * *"))
        await stage.at(START + 62)
        await first.live()
    await first.poll()
    await first.die()
    await stage.at(START + 64)
    second = await stage.leading("second")
    await second.poll()
    await second.fire()
    assert await stage.instants(job) == [60]
    await second.settle()
    third = await stage.leading("third")
    await third.live()
    assert await stage.instants(job) == [60]


async def test_seen_is_what_the_bucket_had_applied_when_it_was_expanded(stage: Stage) -> None:
    await stage.make_cadence("* * * * *")
    await stage.create("* * * * *")
    first = await stage.leading("first")
    await stage.at(START + 59.5)
    async with stage.open_transaction() as connection:
        job = await stage.within(connection).create(stage.tenant, stage.request(schedule="* * * * *"))
        await stage.at(START + 60)
        await first.poll()

    async def poll() -> None:
        await first.feed.run_once()

    first.publisher.before = poll
    await first.firing.run_once()
    await first.settle()
    await first.die()
    assert await stage.mark(job.shard) == 60
    assert await stage.instants(job) == []
    second = await stage.leading("second")
    await second.live()
    assert await stage.instants(job) == [60]


async def test_seen_waits_for_a_change_whose_cadence_is_still_to_be_loaded(stage: Stage) -> None:
    first = await stage.leading("first")
    await stage.at(START + 59.5)
    job = await stage.create("* * * * *")

    async def time_passes() -> None:
        await stage.at(START + 60)
        await first.feed.run_once()
        await first.fire()
        await first.settle()
        await first.feed.run_once()
        await stage.at(START + 61)
        await first.fire()
        await first.settle()
        raise Died

    with during_load(time_passes), pytest.raises(Died):
        await first.poll()
    await first.die()
    assert await stage.mark(job.shard) == 61
    second = await stage.leading("second")
    await second.live()
    assert await stage.instants(job) == [60]


async def test_seen_waits_for_a_change_whose_cadence_another_load_is_bringing(stage: Stage) -> None:
    first = await stage.leading("first")
    await stage.at(START + 59)
    await stage.make_cadence("* * * * *")
    made = []

    async def a_job_is_created_and_its_time_comes() -> None:
        await stage.at(START + 59.5)
        made.append(await stage.create("* * * * *"))
        await first.feed.run_once()
        await stage.at(START + 60)
        await first.fire()
        await first.settle()
        raise Died

    with during_load(a_job_is_created_and_its_time_comes), pytest.raises(Died):
        await first.extend()
    await first.die()
    [job] = made
    assert await stage.mark(job.shard) == 60
    second = await stage.leading("second")
    await second.live()
    assert await stage.instants(job) == [60]


async def test_a_job_that_a_load_saw_before_the_feed_is_owed_what_passed_meanwhile(stage: Stage) -> None:
    leader = await stage.leading()
    await stage.at(START + 59.5)
    job = await stage.create("* * * * *")

    async def its_time_comes() -> None:
        await stage.at(START + 60)
        await leader.fire()

    with during_load(its_time_comes):
        await leader.extend()
    await stage.at(START + 61)
    await leader.live()
    assert await stage.instants(job) == [60]


async def test_the_feed_sees_a_transaction_that_was_open_during_earlier_polls(stage: Stage) -> None:
    await stage.make_cadence("* * * * * *")
    leader = await stage.leading()
    request = stage.request(schedule="* * * * * *")
    async with stage.open_transaction() as late, stage.open_transaction() as undone:
        registry = stage.within(late)
        savepoint = late.transaction()
        await savepoint.start()
        withdrawn = await registry.create(stage.tenant, request)
        await leader.poll()
        await savepoint.rollback()
        kept = await registry.create(stage.tenant, request)
        never = await stage.within(undone).create(stage.tenant, request)
        meanwhile = await stage.create()
        await stage.at(START + 1)
        await leader.live()
        await stage.at(START + 2)
        await leader.live()
        await undone.execute("ROLLBACK; BEGIN")
        await leader.poll()
        assert await stage.instants(meanwhile) == [1, 2]
        assert await stage.instants(kept) == []
    await stage.at(START + 3)
    await leader.live()
    assert await stage.instants(kept) == [1, 2, 3]
    assert await stage.instants(withdrawn) == await stage.instants(never) == []


async def test_an_edit_committed_late_is_seen_when_it_is_committed(stage: Stage) -> None:
    job = await stage.create()
    leader = await stage.leading()
    async with stage.open_transaction() as connection:
        await stage.within(connection).pause(stage.tenant, job.id)
        for second in (1, 2):
            await stage.at(START + second)
            await leader.live()
    await stage.at(START + 3)
    await leader.live()
    assert await stage.instants(job) == [1, 2]


async def test_nothing_is_read_twice_because_a_transaction_is_open(stage: Stage) -> None:
    leader = await stage.leading()
    async with stage.open_transaction() as connection:
        await connection.execute("SELECT pg_current_xact_id()")
        await stage.create()
        first = await leader.feed.run_once()
        second = await leader.feed.run_once()
        assert first is not None
        assert second is not None
        assert (len(first.jobs), len(second.jobs)) == (1, 0)
        await leader.beside.finish()
