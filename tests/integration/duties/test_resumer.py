"""The resumer: a pause that has an end, ends."""

from __future__ import annotations

from datetime import timedelta

from mainspring.scheduler.duties.resumer import Resumed, Resumer
from mainspring.schema.states import JobStatus
from tests.integration.duties.conftest import SHARDS, House


async def paused_until(house: House, name: str, instant: str) -> int:
    """A job whose pause ends at an instant as Postgres writes it; one of the past cannot be asked for."""
    job = await house.job(name=name)
    await house.registry.pause(house.tenant, job.id, until=house.now + timedelta(days=1))
    await house.execute(f"UPDATE jobs SET resume_at = {instant} WHERE id = $1", job.id)
    return job.id


async def status_of(house: House, job_id: int) -> JobStatus:
    return (await house.registry.get(house.tenant, job_id)).status


async def test_a_pause_that_has_ended_ends_and_one_that_has_not_goes_on(house: House) -> None:
    over = await paused_until(house, "over", "now() - interval '1 second'")
    lasting = await paused_until(house, "lasting", "now() + interval '1 hour'")
    endless = await house.job(name="endless")
    await house.registry.pause(house.tenant, endless.id)
    assert await Resumer(house.pool, SHARDS).run_once() == Resumed(1)
    assert await status_of(house, over) is JobStatus.ACTIVE
    assert await status_of(house, lasting) is JobStatus.PAUSED
    assert await status_of(house, endless.id) is JobStatus.PAUSED
    assert await Resumer(house.pool, SHARDS).run_once() == Resumed(0)


async def test_a_resume_by_the_scheduler_is_in_the_audit(house: House) -> None:
    job_id = await paused_until(house, "over", "now() - interval '1 second'")
    await Resumer(house.pool, SHARDS).run_once()
    rows = await house.fetch("SELECT actor, action, reason FROM audit")
    assert rows == [("scheduler", "resume", "its pause has ended")]
    assert await status_of(house, job_id) is JobStatus.ACTIVE
