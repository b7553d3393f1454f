"""The timer of a job with one instant follows every edit."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from mainspring.registry import Job
from mainspring.schedule import format_instant, jitter_hash
from mainspring.schema.states import Outcome
from tests.integration.registry.bench import Bench

HOUR = timedelta(hours=1)


def run_at(job: Job) -> Any:
    assert job.definition.run_at is not None
    return job.definition.run_at


async def test_another_instant_replaces_the_timer(bench: Bench) -> None:
    job = await bench.one_off()
    later = run_at(job) + HOUR
    edited = await bench.edit(job, schedule=format_instant(later))
    assert await bench.timers(job) == [(later, later, 1, "one_off")]
    assert edited.next_run_at == later


async def test_another_jitter_moves_the_timer(bench: Bench) -> None:
    job = await bench.one_off()
    await bench.edit(job, jitter_seconds=3600)
    due = run_at(job) + timedelta(seconds=jitter_hash(job.id) % 3600)
    assert await bench.timers(job) == [(run_at(job), due, 1, "one_off")]
    assert await bench.value(
        "SELECT timers.changed = jobs.changed FROM timers, jobs WHERE job_id = $1 AND jobs.id = $1", job.id
    )


async def test_another_payload_leaves_the_timer_alone(bench: Bench) -> None:
    job = await bench.one_off()
    before = await bench.fetch("SELECT * FROM timers WHERE job_id = $1", job.id)
    await bench.edit(job, payload=1)
    assert await bench.fetch("SELECT * FROM timers WHERE job_id = $1", job.id) == before


async def test_a_fired_one_off_is_not_fired_again_by_another_jitter(bench: Bench) -> None:
    job = await bench.one_off()
    await bench.fetch("DELETE FROM timers WHERE job_id = $1", job.id)
    await bench.edit(job, jitter_seconds=5)
    assert await bench.timers(job) == []


async def test_a_one_off_becomes_a_cron_job_and_back(bench: Bench) -> None:
    job = await bench.one_off()
    recurring = await bench.edit(job, schedule="@daily")
    assert await bench.timers(job) == []
    assert recurring.cadence_id is not None
    assert await bench.value("SELECT run_at FROM jobs WHERE id = $1", job.id) is None
    once = await bench.edit(job, schedule=format_instant(run_at(job)))
    assert await bench.timers(job) == [(run_at(job), run_at(job), 1, "one_off")]
    assert once.cadence_id is None


async def test_retries_of_the_old_instant_go_and_what_was_asked_for_stays(bench: Bench) -> None:
    job = await bench.one_off()
    await bench.fetch("DELETE FROM timers WHERE job_id = $1", job.id)
    for attempt, cause in enumerate(("retry", "deferred", "redrive"), start=2):
        await bench.add_timer(job, run_at(job), attempt, cause)
    await bench.registry.trigger(bench.tenant, job.id)
    await bench.edit(job, schedule=format_instant(run_at(job) + HOUR))
    assert {timer[3] for timer in await bench.timers(job)} == {"trigger", "redrive", "one_off"}


async def test_a_one_off_that_has_run_is_active_again_with_another_instant(bench: Bench) -> None:
    job = await bench.one_off()
    await bench.fetch("DELETE FROM timers WHERE job_id = $1", job.id)
    await bench.record_runs(job, run_at(job), Outcome.SUCCEEDED)
    await bench.set_status(job, "completed")
    unchanged = await bench.edit(job, payload=1)
    assert (unchanged.status, unchanged.next_run_at) == ("completed", None)
    later = run_at(job) + HOUR
    edited = await bench.edit(job, schedule=format_instant(later))
    assert (edited.status, edited.closed_at, edited.next_run_at) == ("active", None, later)
    assert await bench.timers(job) == [(later, later, 1, "one_off")]


async def test_an_instant_that_had_runs_goes_on_with_the_next_attempt(bench: Bench) -> None:
    """Its first attempts have rows in `runs`: a timer with the same number would never run."""
    job = await bench.one_off()
    await bench.record_runs(job, run_at(job), Outcome.FAILED, Outcome.SUCCEEDED)
    await bench.edit(job, schedule="@daily")
    await bench.edit(job, schedule=format_instant(run_at(job)))
    assert await bench.timers(job) == [(run_at(job), run_at(job), 3, "one_off")]


async def test_a_paused_one_off_can_be_moved(bench: Bench) -> None:
    job = await bench.one_off()
    await bench.registry.pause(bench.tenant, job.id)
    later = run_at(job) + HOUR
    edited = await bench.edit(job, schedule=format_instant(later))
    assert edited.status == "paused"
    assert await bench.timers(job) == [(later, later, 1, "one_off")]
