"""Trap: RUN_ALL fires instants from before the job existed or while it was paused."""

from __future__ import annotations

from tests.integration.scheduler.simulated import START
from tests.integration.scheduler.stage import Stage


async def test_run_all_fires_nothing_from_before_the_job_existed(stage: Stage) -> None:
    await stage.at(START + 20.5)
    job = await stage.create(missed_window="RUN_ALL")
    await stage.at(START + 25)
    leader = await stage.leading()
    await leader.live()
    assert await stage.instants(job) == [21, 22, 23, 24, 25]


async def test_run_all_fires_nothing_from_while_it_was_paused(stage: Stage) -> None:
    job = await stage.create(missed_window="RUN_ALL")
    leader = await stage.leading()
    await stage.at(START + 2.5)
    await leader.live()
    await stage.registry.pause(stage.tenant, job.id)
    await stage.at(START + 5)
    await leader.live()
    await stage.at(START + 7.5)
    await stage.registry.resume(stage.tenant, job.id)
    await stage.at(START + 9)
    await leader.live()
    assert await stage.instants(job) == [1, 2, 8, 9]


async def test_run_all_fires_nothing_from_while_it_was_paused_and_nobody_led(stage: Stage) -> None:
    job = await stage.create(missed_window="RUN_ALL")
    first = await stage.leading("first")
    await stage.at(START + 2)
    await first.live()
    await first.die()
    await stage.at(START + 2.5)
    await stage.registry.pause(stage.tenant, job.id)
    await stage.at(START + 7.5)
    await stage.registry.resume(stage.tenant, job.id)
    await stage.at(START + 9)
    second = await stage.leading("second")
    await second.live()
    assert await stage.instants(job) == [1, 2, 8, 9]


async def test_a_job_moved_to_another_cadence_owns_nothing_of_it_from_before(stage: Stage) -> None:
    job = await stage.create("0 0 1 1 *", missed_window="RUN_ALL")
    await stage.create("* * * * * *")
    leader = await stage.leading()
    await stage.at(START + 3.5)
    await leader.live()
    await stage.edit(job, schedule="* * * * * *")
    await stage.at(START + 6)
    await leader.live()
    assert await stage.instants(job) == [4, 5, 6]
