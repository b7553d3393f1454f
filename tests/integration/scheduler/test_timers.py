"""Trap: a timer is re-timed by its owner after publication and deleted by id. And: what is held waits."""

from __future__ import annotations

from unittest.mock import patch

from mainspring.schema.errors import DatabaseUnavailable
from tests.integration.scheduler.simulated import START, instant
from tests.integration.scheduler.stage import Stage


async def test_a_timer_re_timed_after_its_publication_survives_and_fires_at_its_new_time(
    stage: Stage,
) -> None:
    job = await stage.create(schedule="2030-01-01T12:00:02Z")
    leader = await stage.leading()
    await stage.at(START + 2)
    await leader.poll()
    await leader.fire()
    await stage.execute("UPDATE timers SET due_at = $1", instant(START + 5))
    await leader.poll()
    await leader.settle()
    assert await stage.value("SELECT count(*) FROM timers") == 1
    await stage.at(START + 4)
    await leader.live()
    assert await stage.instants(job) == [2]
    await stage.at(START + 5)
    await leader.live()
    assert await stage.instants(job) == [2, 2]
    assert [each.message.second - START for each in await stage.published()] == [2, 5]
    assert await stage.value("SELECT count(*) FROM timers") == 0


async def test_a_timer_re_timed_between_the_mark_and_the_deletion_survives(stage: Stage) -> None:
    job = await stage.create(schedule="2030-01-01T12:00:02Z")
    first = await stage.leading("first")
    await stage.at(START + 2)
    await first.poll()
    await first.fire()
    delete = first.marks.delete_timers

    async def re_timed_first(timers: list[tuple[int, int]]) -> None:
        await stage.execute("UPDATE timers SET due_at = $1", instant(START + 900))
        await delete(timers)

    with patch.object(first.marks, "delete_timers", re_timed_first):
        await first.settle()
    assert await stage.mark(job.shard) == 2
    await first.die()
    await stage.at(START + 899)
    second = await stage.leading("second")
    await second.live()
    assert await stage.instants(job) == [2]
    await stage.at(START + 900)
    await second.live()
    assert await stage.instants(job) == [2, 2]


async def test_a_timer_re_timed_before_it_is_due_fires_once_at_its_new_time(stage: Stage) -> None:
    earlier, later = [await stage.create(schedule="2030-01-01T12:00:10Z") for _ in range(2)]
    leader = await stage.leading()
    for job, second in ((earlier, 3), (later, 1200)):
        await stage.edit(job, schedule=instant(START + second).isoformat())
    for second in (3, 10, 700):
        await stage.at(START + second)
        await leader.live()
        await leader.extend()
    assert await stage.all_instants() == {earlier.id: [3]}
    await stage.at(START + 1200)
    await leader.live()
    assert await stage.all_instants() == {earlier.id: [3], later.id: [1200]}


async def test_timers_of_a_paused_job_wait_and_fire_after_its_resumption(stage: Stage) -> None:
    job = await stage.create(schedule="2030-01-01T12:00:05Z")
    leader = await stage.leading()
    await stage.registry.pause(stage.tenant, job.id)
    await stage.at(START + 7)
    await leader.live()
    assert await stage.published() == []
    assert await stage.value("SELECT count(*) FROM timers") == 1
    await stage.at(START + 100)
    await stage.registry.resume(stage.tenant, job.id)
    await leader.live()
    assert await stage.instants(job, "normal") == [5]
    assert await stage.value("SELECT count(*) FROM timers") == 0


async def test_a_timer_that_waits_through_a_takeover_fires_after_the_resumption(stage: Stage) -> None:
    job = await stage.create(schedule="2030-01-01T12:00:05Z")
    await stage.registry.pause(stage.tenant, job.id)
    await stage.at(START + 7)
    leader = await stage.leading()
    await leader.live()
    assert await stage.published() == []
    await stage.registry.resume(stage.tenant, job.id)
    await leader.live()
    assert await stage.instants(job) == [5]


async def test_a_trigger_fires_at_once_and_once(stage: Stage) -> None:
    job = await stage.create("0 0 1 1 *")
    leader = await stage.leading()
    await stage.at(START + 3.25)
    await stage.registry.trigger(stage.tenant, job.id)
    await stage.at(START + 4)
    await leader.live()
    assert await stage.instants(job) == [3.25]
    await stage.at(START + 5)
    await leader.live()
    assert await stage.instants(job) == [3.25]
    assert await stage.value("SELECT count(*) FROM timers") == 0


async def test_a_trigger_of_a_job_that_is_then_paused_or_deleted_does_not_fire(stage: Stage) -> None:
    paused, deleted = [await stage.create("0 0 1 1 *") for _ in range(2)]
    leader = await stage.leading()
    await stage.at(START + 3.25)
    for job in (paused, deleted):
        await stage.registry.trigger(stage.tenant, job.id)
    await leader.poll()
    await stage.registry.pause(stage.tenant, paused.id)
    await stage.registry.delete(stage.tenant, deleted.id)
    await stage.at(START + 4)
    await leader.live()
    assert await stage.published() == []
    await stage.at(START + 6)
    await stage.registry.resume(stage.tenant, paused.id)
    await leader.live()
    assert await stage.all_instants() == {paused.id: [3.25]}


async def test_a_timer_without_its_job_is_dropped_by_the_leader_that_meets_it(stage: Stage) -> None:
    job = await stage.create("0 0 1 1 *")
    leader = await stage.leading()
    statement = (
        "INSERT INTO timers (shard, due_at, job_id, scheduled_at, cause) VALUES ($1, $2, $3, $2, 'retry')"
    )
    await stage.registry.delete(stage.tenant, job.id)
    await stage.execute(statement, job.shard, instant(START + 2), job.id)
    await stage.execute(statement, 0, instant(START + 2), 4711)
    await stage.at(START + 2)
    await leader.live()
    assert await stage.published() == []
    assert await stage.value("SELECT count(*) FROM timers") == 0


async def test_a_one_off_in_the_past_fires_at_once_and_its_day_is_made_for_the_ledger(stage: Stage) -> None:
    leader = await stage.leading()
    job = await stage.create(schedule="2029-11-05T08:00:00Z")
    await stage.at(START + 1)
    await leader.live()
    [published] = await stage.published()
    assert (published.message.job.job_id, published.lane) == (job.id, "catchup")
    assert await stage.value("SELECT second FROM ledger") == job.definition.run_at
    assert await stage.value("SELECT count(*) FROM timers") == 0


async def test_a_timer_without_its_job_is_dropped_when_postgres_is_back(stage: Stage) -> None:
    leader = await stage.leading()
    await stage.execute(
        "INSERT INTO timers (shard, due_at, job_id, scheduled_at, cause) VALUES (0, $1, 4711, $1, 'retry')",
        instant(START + 2),
    )
    await leader.poll()
    with patch.object(leader.marks, "delete_timers", side_effect=DatabaseUnavailable("away")):
        assert not await leader.settling.run_once()
    await leader.settle()
    assert await stage.value("SELECT count(*) FROM timers") == 0


async def test_a_fired_timer_is_deleted_when_postgres_is_back(stage: Stage) -> None:
    job = await stage.create(schedule="2030-01-01T12:00:02Z")
    leader = await stage.leading()
    await stage.at(START + 2)
    await leader.fire()
    with patch.object(leader.marks, "delete_timers", side_effect=DatabaseUnavailable("away")):
        assert not await leader.settling.run_once()
    assert await stage.mark(job.shard) == 2
    assert await stage.value("SELECT count(*) FROM timers") == 1
    await leader.live()
    assert await stage.value("SELECT count(*) FROM timers") == 0
    assert await stage.instants(job) == [2]
