"""A change binds within one poll of the feed, inside the loaded window too; an edit loses no occurrence."""

from __future__ import annotations

from tests.integration.scheduler.simulated import START, instant
from tests.integration.scheduler.stage import Stage

MINUTELY = "* * * * *"


async def test_every_change_binds_within_one_poll_inside_the_loaded_window(stage: Stage) -> None:
    paused, deleted, edited, moved, urgent, untouched = [
        await stage.create(MINUTELY, payload="old") for _ in range(6)
    ]
    leader = await stage.leading()
    await stage.at(START + 59.5)
    await stage.registry.pause(stage.tenant, paused.id)
    await stage.registry.delete(stage.tenant, deleted.id)
    await stage.edit(edited, payload="new")
    await stage.edit(moved, schedule="2 12 * * *")
    await stage.edit(urgent, priority=9)
    created = await stage.create(MINUTELY)
    await leader.poll()
    for second in (60, 120, 180):
        await stage.at(START + second)
        await leader.fire()
    always = [60, 120, 180]
    assert await stage.all_instants() == {
        edited.id: always,
        moved.id: [120],
        urgent.id: always,
        untouched.id: always,
        created.id: always,
    }
    assert await stage.instants(urgent, "high") == always
    payloads = [m.job.payload() for _, m in await stage.published() if m.job.job_id == edited.id]
    assert payloads == ["new"] * 3


async def test_a_resumed_job_fires_from_its_resumption_on(stage: Stage) -> None:
    job = await stage.create(MINUTELY)
    await stage.registry.pause(stage.tenant, job.id)
    leader = await stage.leading()
    await stage.at(START + 61)
    await leader.live()
    await stage.at(START + 119.5)
    await stage.registry.resume(stage.tenant, job.id)
    await leader.poll()
    await stage.at(START + 120)
    await leader.live()
    assert await stage.instants(job) == [120]


async def test_an_edit_in_the_second_a_job_is_due_loses_nothing_and_doubles_nothing(stage: Stage) -> None:
    jobs = [await stage.create(MINUTELY, payload=0) for _ in range(3)]
    leader = await stage.leading()
    for second in (60, 120):
        await stage.at(START + second)
        await leader.live()
    await stage.at(START + 179.9)
    await stage.edit(jobs[0], payload=1)
    await stage.at(START + 180)
    await leader.fire()
    await stage.edit(jobs[1], payload=1)
    await leader.live()
    await stage.at(START + 180.1)
    await stage.edit(jobs[2], payload=1)
    await leader.live()
    await stage.at(START + 240)
    await leader.live()
    assert await stage.all_instants() == {job.id: [60, 120, 180, 240] for job in jobs}


async def test_an_edit_in_the_middle_of_a_bucket_loses_nothing_and_doubles_nothing(stage: Stage) -> None:
    job = await stage.create(MINUTELY, payload="old")
    leader = await stage.leading()
    for second in (60, 120):
        await stage.at(START + second)
        await leader.live()
    await stage.at(START + 180)

    async def it_is_edited() -> None:
        leader.publisher.before = None
        await stage.edit(job, payload="new", priority=9)
        await leader.feed.run_once()

    leader.publisher.before = it_is_edited
    await leader.live()
    await stage.at(START + 240)
    await leader.live()
    published = sorted((m.second - START, lane, m.job.payload()) for lane, m in await stage.published())
    assert published[2:] == [(180, "normal", "old"), (240, "high", "new")]


async def test_a_job_created_in_the_middle_of_the_bucket_in_which_it_is_due_is_fired(stage: Stage) -> None:
    await stage.make_cadence(MINUTELY)
    await stage.create(MINUTELY)
    leader = await stage.leading()
    await stage.at(START + 59.9)
    job = await stage.create(MINUTELY)
    await stage.at(START + 60)

    async def the_feed_shows_it() -> None:
        leader.publisher.before = None
        await leader.feed.run_once()

    leader.publisher.before = the_feed_shows_it
    await leader.fire()
    await leader.settle()
    await stage.at(START + 61)
    await leader.live()
    assert await stage.instants(job) == [60]


async def test_an_edit_of_a_job_whose_cadence_is_not_in_memory_fires_nothing_of_the_past(
    stage: Stage,
) -> None:
    job = await stage.create("*/15 * * * *", missed_window="SKIP")
    leader = await stage.leading()
    await stage.at(START + 899)
    await leader.live()
    await leader.extend()
    await stage.at(START + 900)
    await leader.live()
    await stage.at(START + 1080)
    await leader.live()
    await stage.edit(job, payload="new")
    await leader.live()
    assert await stage.instants(job) == [900]
    assert await stage.value("SELECT count(*) FROM missed") == 0


async def test_changes_to_a_one_off_bind_within_one_poll(stage: Stage) -> None:
    paused, deleted, moved, edited = [
        await stage.create(schedule="2030-01-01T12:00:05Z", payload="old") for _ in range(4)
    ]
    leader = await stage.leading()
    await stage.at(START + 4.5)
    await stage.registry.pause(stage.tenant, paused.id)
    await stage.registry.delete(stage.tenant, deleted.id)
    await stage.edit(moved, schedule=instant(START + 8).isoformat())
    await stage.edit(edited, payload="new")
    await leader.poll()
    for second in (5, 8):
        await stage.at(START + second)
        await leader.live()
    assert await stage.all_instants() == {moved.id: [8], edited.id: [5]}
    payloads = [m.job.payload() for _, m in await stage.published() if m.job.job_id == edited.id]
    assert payloads == ["new"]


async def test_a_cadence_becomes_a_one_off_and_a_one_off_a_cadence(stage: Stage) -> None:
    was_cadence = await stage.create("*/10 * * * * *")
    was_one_off = await stage.create(schedule="2030-01-01T12:00:30Z")
    leader = await stage.leading()
    await stage.at(START + 10.5)
    await leader.live()
    await stage.edit(was_cadence, schedule="2030-01-01T12:00:25Z")
    await stage.edit(was_one_off, schedule="*/10 * * * * *")
    for second in (20, 25, 30):
        await stage.at(START + second)
        await leader.live()
    assert await stage.all_instants() == {was_cadence.id: [10, 25], was_one_off.id: [20, 30]}
