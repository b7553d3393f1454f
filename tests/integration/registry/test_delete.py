"""A deleted job is a tombstone that nothing hangs on."""

from __future__ import annotations

import asyncio

import pytest

from mainspring.schema.errors import InvalidInput, NotFound
from mainspring.schema.messages import decode_job
from tests.integration.registry.bench import Bench


async def test_a_deleted_job_leaves_a_tombstone_for_the_feed(bench: Bench) -> None:
    job = await bench.create(name="a", schedule="@daily")
    await bench.registry.pause(bench.tenant, job.id, reason="holiday", until=await bench.in_one_hour())
    before = await bench.facts(job)
    await bench.registry.delete(bench.tenant, job.id)
    after = await bench.facts(job)
    assert (after.status, after.version, after.valid_from) == ("deleted", 3, before.valid_from)
    assert after.changed > before.changed
    assert await bench.value("SELECT closed_at FROM jobs WHERE id = $1", job.id) == after.updated_at
    assert decode_job(await bench.value("SELECT body FROM jobs WHERE id = $1", job.id)).version == 2


async def test_a_job_whose_time_zone_is_unknown_can_still_be_deleted(bench: Bench) -> None:
    job = await bench.create(name="a", schedule="@daily")
    await bench.value("UPDATE cadences SET timezone = 'Mars/Olympus' WHERE id = $1", job.cadence_id)
    with pytest.raises(InvalidInput, match="Mars/Olympus"):
        await bench.registry.get(bench.tenant, job.id)
    await bench.registry.delete(bench.tenant, job.id)
    assert (await bench.facts(job)).status == "deleted"


async def test_what_is_deleted_is_not_found(bench: Bench) -> None:
    job = await bench.create(name="a", schedule="@daily")
    await bench.registry.delete(bench.tenant, job.id)
    for act in (
        bench.registry.get(bench.tenant, job.id),
        bench.registry.get_by_name(bench.tenant, "a"),
        bench.registry.delete(bench.tenant, job.id),
        bench.registry.pause(bench.tenant, job.id),
        bench.registry.resume(bench.tenant, job.id),
        bench.registry.trigger(bench.tenant, job.id),
    ):
        with pytest.raises(NotFound):
            await act
    assert (await bench.facts(job)).version == 2


async def test_the_name_is_free_at_once(bench: Bench) -> None:
    first = await bench.create(name="a", schedule="@daily")
    await bench.registry.delete(bench.tenant, first.id)
    second = await bench.create(name="a", schedule="@daily")
    await bench.registry.delete(bench.tenant, second.id)
    assert await bench.value("SELECT count(*) FROM jobs WHERE tenant_id = $1", bench.tenant) == 2


async def test_its_timers_go_and_no_others(bench: Bench) -> None:
    job, other = await bench.one_off(), await bench.one_off()
    await bench.registry.trigger(bench.tenant, job.id)
    await bench.registry.delete(bench.tenant, job.id)
    assert await bench.timers(job) == []
    assert len(await bench.timers(other)) == 1


async def test_its_dependencies_go_in_both_directions(bench: Bench) -> None:
    first = await bench.create(name="first", schedule="@daily")
    other = await bench.create(name="other", schedule="@daily")
    second = await bench.create(name="second", after=["first", "other"])
    third = await bench.create(name="third", after=["second", "other"])
    await bench.registry.delete(bench.tenant, second.id)
    left = await bench.fetch(
        "SELECT job_id, parent_id FROM dependencies WHERE parent_id = ANY($1)",
        [first.id, other.id, second.id],
    )
    assert left == [(third.id, other.id)]


async def test_a_trigger_waits_for_a_delete_under_way(bench: Bench) -> None:
    job = await bench.create(name="a", schedule="@daily")
    tombstone = "UPDATE jobs SET status = 'deleted', closed_at = now() WHERE id = $1"
    async with bench.holding(tombstone, job.id) as delete:
        trigger = asyncio.create_task(bench.registry.trigger(bench.tenant, job.id))
        await bench.until_waiting(delete)
    with pytest.raises(NotFound):
        await trigger
    assert await bench.timers(job) == []


async def test_of_two_deletes_at_once_one_finds_nothing(bench: Bench) -> None:
    job = await bench.create(name="a", schedule="@daily")
    answers = await asyncio.gather(
        *(bench.registry.delete(bench.tenant, job.id) for _ in range(4)), return_exceptions=True
    )
    assert sum(answer is None for answer in answers) == 1
    assert sum(isinstance(answer, NotFound) for answer in answers) == 3


async def test_a_deadlock_is_survived(bench: Bench) -> None:
    """Somebody holds a timer and wants the job; the delete holds the job and wants the timer."""
    job = await bench.one_off()
    async with bench.holding("SELECT FROM timers WHERE job_id = $1 FOR UPDATE", job.id) as other:
        await other.execute("SET LOCAL deadlock_timeout = '1min'")  # so that the delete is the one to give up
        delete = asyncio.create_task(bench.registry.delete(bench.tenant, job.id))
        await bench.until_waiting(other)
        await other.execute("SELECT FROM jobs WHERE id = $1 FOR UPDATE", job.id)
    await delete
    assert (await bench.facts(job)).status == "deleted"


async def test_a_trigger_before_a_delete_leaves_no_timer_behind(bench: Bench) -> None:
    """The delete waits for a trigger that has looked at the job, and removes what it made."""
    job = await bench.create(name="a", schedule="@daily")
    async with bench.holding("SELECT FROM jobs WHERE id = $1 FOR SHARE", job.id) as trigger:
        delete = asyncio.create_task(bench.registry.delete(bench.tenant, job.id))
        await bench.until_waiting(trigger)
        await trigger.execute(
            "INSERT INTO timers (shard, due_at, job_id, scheduled_at, cause)"
            " VALUES ($1, now(), $2, now(), 'trigger')",
            job.shard,
            job.id,
        )
    await delete
    assert await bench.timers(job) == []
