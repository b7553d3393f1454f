"""Trap: a streamed load of members adds a job deleted meanwhile. The last committed change counts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from unittest.mock import patch

import pytest

from mainspring.scheduler.reading import Reader
from mainspring.scheduler.rosters import JobRow
from tests.integration.scheduler.leader import PATIENCE, during_load
from tests.integration.scheduler.simulated import START
from tests.integration.scheduler.stage import Stage

EVERY_MINUTE = "* * * * *"
OTHER = "1-59/2 * * * *"  # also at 12:01, and by then in memory


@pytest.mark.parametrize("polled", [True, False], ids=["feed-during-the-load", "feed-after-the-load"])
async def test_a_streamed_load_equals_the_last_committed_state(stage: Stage, polled: bool) -> None:
    deleted, paused, edited, moved, untouched = [
        await stage.create(EVERY_MINUTE, payload="old") for _ in range(5)
    ]
    arriving = await stage.create(OTHER)
    made = []
    leader = await stage.leader()

    async def others_change_everything() -> None:
        await stage.registry.delete(stage.tenant, deleted.id)
        await stage.registry.pause(stage.tenant, paused.id)
        await stage.edit(edited, payload="new")
        await stage.edit(moved, schedule=OTHER)
        await stage.edit(arriving, schedule=EVERY_MINUTE)
        made.append(await stage.create(EVERY_MINUTE))
        if polled:
            await leader.feed.run_once()

    with during_load(others_change_everything):
        await leader.lead()
    await leader.poll()
    for second in (60, 120, 180):
        await stage.at(START + second)
        await leader.live()
    [created] = made
    assert await stage.all_instants() == {
        edited.id: [60, 120, 180],
        moved.id: [60, 180],
        untouched.id: [60, 120, 180],
        arriving.id: [60, 120, 180],
        created.id: [60, 120, 180],
    }
    payloads = {
        each.message.job.payload() for each in await stage.published() if each.message.job.job_id == edited.id
    }
    assert payloads == {"new"}


async def test_jobs_created_in_bulk_while_their_cadence_is_loaded_are_all_fired(stage: Stage) -> None:
    before = await stage.create_many(500, EVERY_MINUTE)
    leader = await stage.leader()
    during: list[int] = []

    async def many_are_created() -> None:
        during.extend(await stage.create_many(500, EVERY_MINUTE))
        await leader.feed.run_once()
        during.extend(await stage.create_many(500, EVERY_MINUTE))

    with during_load(many_are_created):
        await leader.lead()
    await stage.at(START + 60)
    await leader.live()
    instants = await stage.all_instants()
    assert instants == {job: [60.0] for job in (*before, *during)}


async def test_jobs_created_in_bulk_in_the_second_they_are_due_are_all_fired(stage: Stage) -> None:
    leader = await stage.leading()
    await stage.at(START + 59.5)
    first = await stage.create_many(200, EVERY_MINUTE)
    second: list[int] = []

    async def more_are_created_and_the_second_comes() -> None:
        second.extend(await stage.create_many(200, EVERY_MINUTE))
        await leader.feed.run_once()
        await stage.at(START + 60)
        await leader.fire()
        await leader.settle()

    with during_load(more_are_created_and_the_second_comes):
        await leader.poll()
    await leader.live()
    instants = await stage.all_instants()
    assert {job: set(instants.get(job, ())) for job in (*first, *second)} == {
        job: {60.0} for job in (*first, *second)
    }


async def test_a_job_deleted_between_two_batches_of_its_load_is_not_fired(stage: Stage) -> None:
    """Of the members some are read already, some are not; both kinds change."""
    jobs = await stage.create_many(3000, EVERY_MINUTE)
    leader = await stage.leader()
    original = Reader.members

    async def members(reader: Reader, cadence_ids: Collection[int]) -> AsyncIterator[list[JobRow]]:
        batches = 0
        async for rows in original(reader, cadence_ids):
            yield rows
            batches += 1
            if batches == 1:
                for job in jobs[::30]:
                    await stage.registry.delete(stage.tenant, job)
                await leader.feed.run_once()
        assert batches > 1

    with patch.object(Reader, "members", members):
        await leader.lead()
    await stage.at(START + 60)
    await leader.live()
    assert set(await stage.all_instants()) == set(jobs) - set(jobs[::30])


async def test_a_shard_is_not_fired_before_it_is_loaded(stage: Stage) -> None:
    job = await stage.create()
    leader = await stage.leader()

    async def seconds_pass() -> None:
        await stage.at(START + 2)
        await leader.fire()
        await leader.settle()

    with during_load(seconds_pass):
        await leader.lead()
    assert await stage.mark(job.shard) == 0
    await leader.live()
    assert await stage.instants(job) == [1, 2]


async def test_a_request_that_comes_before_its_shard_is_loaded_takes_nothing_from_it(stage: Stage) -> None:
    """The feed may ask for a cadence of a shard that is not loaded yet: it is loaded all the same."""
    others = await stage.create_many(20, EVERY_MINUTE)
    leader = await stage.leader()
    await stage.at(START + 130)
    taken = await leader.marks.take(range(4))
    leader.leadership.begin([each.term for each in taken], leader.keeper)  # type: ignore[arg-type]
    await leader.feed.run_once()
    await stage.at(START + 130.5)
    job = await stage.create(EVERY_MINUTE)
    await leader.poll()
    await leader.loader.take_over(taken, START + 730)
    for second in (135, 180, 240):
        await stage.at(START + second)
        await leader.live()
    assert await stage.instants(job) == [180, 240]
    instants = await stage.all_instants()
    assert all({120.0, 180.0, 240.0} <= set(instants[other]) for other in others)


async def test_a_job_left_to_a_load_that_failed_is_not_forgotten(stage: Stage) -> None:
    leader = await stage.leading()
    await stage.at(START + 50)
    await stage.make_cadence(EVERY_MINUTE)
    made = []

    async def a_job_is_created_and_the_load_fails() -> None:
        made.append(await stage.create(EVERY_MINUTE))
        await leader.feed.run_once()
        raise asyncio.CancelledError

    with during_load(a_job_is_created_and_the_load_fails), pytest.raises(asyncio.CancelledError):
        await leader.extend()
    async with asyncio.timeout(PATIENCE):
        await leader.poll()
    await stage.at(START + 60)
    await leader.live()
    [job] = made
    assert await stage.instants(job) == [60]
