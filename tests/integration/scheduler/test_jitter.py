"""Trap: jitter of 240 s, the leader dies at +60 s. And what finds such a cadence again: its lower bound."""

from __future__ import annotations

from datetime import timedelta

from mainspring.schedule import jitter_offset
from tests.integration.scheduler.leader import during_load
from tests.integration.scheduler.simulated import START, instant
from tests.integration.scheduler.stage import Stage

HOURLY = "5 * * * *"
FIRST = START + 300


def due_after(job_id: int, jitter: int) -> int:
    """How many seconds after its nominal instant a job of this cadence is due."""
    offset = jitter_offset(job_id, timedelta(seconds=jitter), instant(FIRST), instant(FIRST + 3600))
    return int(offset.total_seconds())


async def next_at(stage: Stage, schedule: str = HOURLY) -> list[float]:
    """The stored lower bounds, in seconds after START; -infinity is left out."""
    rows = await stage.fetch(
        "SELECT next_at FROM cadences WHERE expression = $1 AND next_at > '-infinity'", schedule
    )
    return sorted({row[0].timestamp() - START for row in rows})


async def test_jitter_of_240_s_and_the_leader_dies_at_60_s(stage: Stage) -> None:
    jobs = await stage.create_many(30, HOURLY, jitter_seconds=240)
    first = await stage.leading("first")
    await stage.at(FIRST + 60)
    await first.live()
    await first.extend()
    await first.die()
    early = {job for job in jobs if due_after(job, 240) <= 60}
    assert {each.message.job.job_id for each in await stage.published()} == early
    await stage.at(FIRST + 62)
    second = await stage.leading("second")
    await second.live()
    await stage.at(FIRST + 240)
    await second.live()
    published = [each.message for each in await stage.published()]
    assert sorted(message.job.job_id for message in published) == sorted(jobs)
    assert {message.second - FIRST for message in published} == {due_after(job, 240) for job in jobs}
    assert {message.scheduled_at for message in published} == {FIRST * 1_000_000}


async def test_next_at_is_raised_only_when_the_longest_jitter_lies_behind_the_mark(stage: Stage) -> None:
    await stage.create_many(10, HOURLY, jitter_seconds=240)
    leader = await stage.leading()
    for second in (299, 300, 360, 539):
        await stage.at(START + second)
        await leader.live()
        await leader.extend()
        assert await next_at(stage) == []
    await stage.at(START + 540)
    await leader.poll()
    await leader.fire()
    await stage.at(START + 541)
    await leader.extend()
    assert await next_at(stage) == []  # fired, but the mark does not say so yet
    await leader.settle()
    await stage.at(START + 542)
    await leader.extend()
    assert await next_at(stage) == [3900]


async def test_next_at_is_never_raised_past_a_jitter_that_came_after_it_was_read(stage: Stage) -> None:
    await stage.create_many(10, HOURLY)
    first = await stage.leading("first")
    jobs: list[int] = []

    async def a_longer_jitter_comes_and_the_mark_moves() -> None:
        await stage.at(START + 299.5)
        jobs.extend(await stage.create_many(20, HOURLY, jitter_seconds=240))
        await first.feed.run_once()
        await stage.at(FIRST + 60)
        await first.fire()
        await first.settle()

    await stage.at(START + 299)
    with during_load(a_longer_jitter_comes_and_the_mark_moves):
        await first.extend()
    await stage.at(FIRST + 61)
    await first.live()  # from here on the jobs are seen, and only the bound can find their cadence
    await first.die()
    await stage.at(FIRST + 62)
    second = await stage.leading("second")
    await second.live()
    await stage.at(FIRST + 240)
    await second.live()
    instants = await stage.all_instants()
    assert {job: set(instants.get(job, ())) for job in jobs} == {job: {300.0} for job in jobs}


async def test_a_jitter_as_long_as_the_period_loses_no_occurrence(stage: Stage) -> None:
    jobs = await stage.create_many(20, "*/15 * * * *")
    jobs += await stage.create_many(20, "*/15 * * * *", jitter_seconds=900)
    leader = await stage.leading()
    for second in (400, 900, 1500, 1799, 1800, 2400, 2699):
        await stage.at(START + second)
        await leader.live()
        if second % 100 == 0:  # not in the second between the last jitter and the next occurrence
            await leader.extend()
    assert await stage.all_instants() == {job: [900.0, 1800.0] for job in jobs}


async def test_a_job_edited_while_its_jitter_runs_is_fired_once_as_it_is_now(stage: Stage) -> None:
    jobs = await stage.create_many(12, HOURLY, jitter_seconds=240, payload="old")
    leader = await stage.leading()
    await stage.at(FIRST)
    await leader.live()
    late = [job for job in jobs if due_after(job, 240) > 1]
    for job in late:
        await stage.registry.edit(stage.tenant, job, {"payload": "new"})
    await leader.poll()
    await stage.at(FIRST + 240)
    await leader.live()
    messages = [each.message for each in await stage.published() if each.message.job.job_id in late]
    assert sorted(message.job.job_id for message in messages) == sorted(late)
    assert {message.job.payload() for message in messages} == {"new"}
