"""Pause and resume: what they move, and what becomes of a one-off in between."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

import pytest

from mainspring.schema.errors import InvalidInput, WrongStatus
from mainspring.schema.messages import decode_job
from mainspring.schema.states import Outcome
from tests.integration.registry.bench import Bench, record_runs


async def test_a_pause_keeps_valid_from_and_a_resume_moves_it(bench: Bench) -> None:
    job = await bench.create(name="a", schedule="@daily", missed_window="RUN_ALL")
    before = await bench.facts(job)
    await bench.registry.pause(bench.tenant, job.id)
    paused = await bench.facts(job)
    assert (paused.status, paused.version, paused.valid_from) == ("paused", 2, before.valid_from)
    assert paused.changed > before.changed
    assert paused.updated_at > before.updated_at
    await bench.registry.resume(bench.tenant, job.id)
    resumed = await bench.facts(job)
    assert (resumed.status, resumed.version) == ("active", 3)
    assert resumed.valid_from == resumed.updated_at > paused.updated_at
    assert resumed.changed > paused.changed
    assert decode_job(await bench.value("SELECT body FROM jobs WHERE id = $1", job.id)).version == 3


async def test_a_pause_may_have_a_reason_and_an_end(bench: Bench) -> None:
    job = await bench.create(name="a", schedule="@daily")
    until = await bench.in_one_hour()
    paused = await bench.registry.pause(bench.tenant, job.id, reason="holiday", until=until)
    assert (paused.paused_reason, paused.resume_at, paused.next_run_at) == ("holiday", until, None)
    resumed = await bench.registry.resume(bench.tenant, job.id)
    assert (resumed.paused_reason, resumed.resume_at) == (None, None)


async def test_pausing_again_changes_only_other_words(bench: Bench) -> None:
    job = await bench.create(name="a", schedule="@daily")
    await bench.registry.pause(bench.tenant, job.id, reason="holiday")
    before = await bench.facts(job)
    await bench.registry.pause(bench.tenant, job.id, reason="holiday")
    assert await bench.facts(job) == before
    again = await bench.registry.pause(bench.tenant, job.id, reason="strike")
    assert (again.paused_reason, again.version) == ("strike", 3)


async def test_resuming_an_active_job_changes_nothing(bench: Bench) -> None:
    job = await bench.create(name="a", schedule="@daily")
    before = await bench.facts(job)
    assert (await bench.registry.resume(bench.tenant, job.id)).version == 1
    assert await bench.facts(job) == before


async def test_a_pause_that_ends_before_it_begins_is_refused(bench: Bench) -> None:
    job = await bench.create(name="a", schedule="@daily")
    now = await bench.value("SELECT now()")
    with pytest.raises(InvalidInput, match="until: is not in the future"):
        await bench.registry.pause(bench.tenant, job.id, until=now)
    with pytest.raises(InvalidInput, match="until: needs an offset"):
        await bench.registry.pause(bench.tenant, job.id, until=datetime(2099, 1, 1))  # noqa: DTZ001
    with pytest.raises(InvalidInput, match="reason: has 0 characters"):
        await bench.registry.pause(bench.tenant, job.id, reason="")
    assert (await bench.facts(job)).version == 1


async def test_a_one_off_that_has_run_is_neither_paused_nor_resumed(bench: Bench) -> None:
    job = await bench.one_off()
    await bench.set_status(job, "completed")
    with pytest.raises(WrongStatus, match="cannot pause a job that is completed"):
        await bench.registry.pause(bench.tenant, job.id)
    with pytest.raises(WrongStatus, match="cannot resume a job that is completed"):
        await bench.registry.resume(bench.tenant, job.id)


async def test_a_pause_leaves_timers_alone(bench: Bench) -> None:
    job = await bench.one_off()
    timers = await bench.fetch("SELECT * FROM timers WHERE job_id = $1", job.id)
    await bench.registry.pause(bench.tenant, job.id)
    assert await bench.fetch("SELECT * FROM timers WHERE job_id = $1", job.id) == timers
    await bench.registry.resume(bench.tenant, job.id)
    assert await bench.fetch("SELECT * FROM timers WHERE job_id = $1", job.id) == timers


async def test_a_timer_that_came_due_in_the_pause_is_due_at_the_resume(bench: Bench) -> None:
    """Time spent paused is not missed: a missed-window policy of SKIP would otherwise drop it."""
    job = await bench.create(name="a", schedule="2001-01-01T00:00:00Z", missed_window="SKIP")
    await bench.registry.pause(bench.tenant, job.id)
    changed = await bench.value("SELECT changed FROM timers WHERE job_id = $1", job.id)
    resumed = await bench.registry.resume(bench.tenant, job.id)
    [(scheduled_at, due_at, attempt, cause)] = await bench.timers(job)
    assert (scheduled_at.year, attempt, cause) == (2001, 1, "one_off")
    assert due_at >= resumed.valid_from
    assert await bench.value("SELECT changed FROM timers WHERE job_id = $1", job.id) > changed


class Fired:
    """A one-off whose timer has been published and deleted, and which is paused."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench

    async def prepare(self, *outcomes: Outcome) -> datetime:
        self.job = await self.bench.one_off()
        run_at = self.job.definition.run_at
        assert run_at is not None
        await self.bench.fetch("DELETE FROM timers WHERE job_id = $1", self.job.id)
        await self.bench.registry.pause(self.bench.tenant, self.job.id)
        if outcomes:
            await self.bench.record_runs(self.job, run_at, *outcomes)
        return run_at

    async def resume(self) -> list[tuple[int, int, int, str]]:
        """The timers after a resume: attempt, retries, losses, cause."""
        resumed = await self.bench.registry.resume(self.bench.tenant, self.job.id)
        rows = await self.bench.fetch(
            "SELECT attempt, retries, losses, cause, due_at FROM timers WHERE job_id = $1 ORDER BY attempt",
            self.job.id,
        )
        assert all(abs(row[4] - resumed.valid_from) < timedelta(minutes=1) for row in rows)
        return [tuple(row[:4]) for row in rows]


async def test_a_one_off_recalled_by_the_pause_runs_after_the_resume(bench: Bench) -> None:
    fired = Fired(bench)
    await fired.prepare(Outcome.RECALLED)
    assert await fired.resume() == [(2, 0, 0, "one_off")]


async def test_a_recalled_retry_keeps_what_it_has_spent(bench: Bench) -> None:
    fired = Fired(bench)
    await fired.prepare(Outcome.FAILED, Outcome.LOST, Outcome.FAILED, Outcome.RECALLED)
    assert await fired.resume() == [(5, 2, 1, "one_off")]


@pytest.mark.parametrize(
    "outcomes",
    [
        (),
        (Outcome.PENDING,),
        (Outcome.SUCCEEDED,),
        (Outcome.FAILED,),
        (Outcome.DEAD,),
        (Outcome.CANCELLED,),
        (Outcome.RECALLED, Outcome.PENDING),
        (Outcome.SUCCEEDED, Outcome.RECALLED),
        (Outcome.PENDING, Outcome.RECALLED),
    ],
)
async def test_a_resume_repeats_nothing_else(bench: Bench, outcomes: tuple[Outcome, ...]) -> None:
    fired = Fired(bench)
    await fired.prepare(*outcomes)
    assert await fired.resume() == []


async def test_a_recalled_one_off_with_its_next_attempt_under_way_gets_no_other(bench: Bench) -> None:
    fired = Fired(bench)
    run_at = await fired.prepare(Outcome.RECALLED)
    await bench.add_timer(fired.job, run_at, 2, "redrive")
    assert await fired.resume() == [(2, 0, 0, "redrive")]


async def test_a_timer_that_the_leader_has_yet_to_delete_hides_no_recalled_run(bench: Bench) -> None:
    """Published, recalled, and its timer not yet deleted: that timer will never make another run."""
    fired = Fired(bench)
    run_at = await fired.prepare(Outcome.RECALLED)
    await bench.add_timer(fired.job, run_at, 1, "one_off")
    assert (2, 0, 0, "one_off") in await fired.resume()


async def test_a_resume_waits_for_a_worker_that_is_recalling_the_run(bench: Bench) -> None:
    """The worker sees the pause and holds the row; the resume must see what it wrote."""
    fired = Fired(bench)
    run_at = await fired.prepare()
    async with bench.holding("SELECT FROM jobs WHERE id = $1 FOR SHARE", fired.job.id) as worker:
        resume = asyncio.create_task(fired.resume())
        await bench.until_waiting(worker)
        await record_runs(worker, fired.job, run_at, Outcome.RECALLED)
    assert await resume == [(2, 0, 0, "one_off")]


async def test_a_recalled_run_of_a_recurring_job_is_not_repeated(bench: Bench) -> None:
    job = await bench.create(name="a", schedule="@daily")
    await bench.registry.pause(bench.tenant, job.id)
    await bench.record_runs(job, await bench.in_one_hour(), Outcome.RECALLED)
    await bench.registry.resume(bench.tenant, job.id)
    assert await bench.timers(job) == []
