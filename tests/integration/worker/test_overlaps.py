"""Jobs that do not overlap themselves: who runs, who waits, who is skipped."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import pytest

from mainspring.registry import Job
from mainspring.schema.states import Outcome
from tests.integration.scheduler.line import Line
from tests.integration.worker.apps import Gate, app_of, nothing
from tests.integration.worker.bench import Bench, runs_of
from tests.integration.worker.waiting import mend_when_cut

LIMITED = ("skip", "queue_one", "cancel_running")


async def cancellations(bench: Bench) -> list[Any]:
    """Seconds after `now`, attempt."""
    rows = await bench.fetch("SELECT scheduled_at, attempt FROM cancellations ORDER BY 1, 2")
    return [(round((at - bench.now).total_seconds()), attempt) for at, attempt in rows]


async def queued(bench: Bench, job: Job) -> Any:
    return await bench.value('SELECT queued_at FROM "overlaps" WHERE job_id = $1', job.id)


async def test_runs_of_a_job_that_allows_it_overlap(bench: Bench) -> None:
    job = await bench.job()
    gate = Gate()
    hands = await bench.hands(gate.app)
    await hands.start(await bench.message(job, 0), await bench.message(job, 1))
    await hands.start(await bench.message(job, 2))
    gate.open.set()
    await hands.finish()
    assert len(gate.entered) == gate.most == 3


async def test_skip_records_the_later_run_and_does_not_execute_it(bench: Bench) -> None:
    job = await bench.job(overlap="skip")
    gate = Gate()
    one, other = await bench.hands(gate.app), await bench.hands(gate.app)
    await one.start(await bench.message(job, 0))
    await other.work(await bench.message(job, 1))
    assert await bench.statuses(job) == [(0, 1, "running"), (1, 1, "skipped")]
    assert await bench.failures(job) == [(1, "skipped", "another run of the job was under way")]
    gate.open.set()
    await one.finish()
    await other.work(await bench.message(job, 2))
    assert await bench.statuses(job) == [(0, 1, "succeeded"), (1, 1, "skipped"), (2, 1, "succeeded")]


async def test_the_queue_has_one_place_and_who_waits_in_it_is_due_when_the_run_ends(bench: Bench) -> None:
    job = await bench.job(overlap="queue_one")
    gate = Gate()
    hands = await bench.hands(gate.app)
    await hands.start(await bench.message(job, 0))
    await hands.start(await bench.message(job, 1), await bench.message(job, 2))
    assert await bench.statuses(job) == [(0, 1, "running"), (2, 1, "skipped")]
    assert await bench.timers(job) == [(1, 1, 0, 0, "deferred")]
    assert not await bench.value("SELECT due_at <= now() FROM timers")
    gate.open.set()
    await hands.finish()
    assert await bench.value("SELECT due_at <= now() FROM timers")
    await hands.work(*await bench.dispatch(job))
    assert await bench.statuses(job) == [(0, 1, "succeeded"), (1, 1, "succeeded"), (2, 1, "skipped")]
    assert await bench.count('"overlaps"') == 0


async def test_under_cancel_running_the_run_is_stopped_and_the_newest_waits(bench: Bench) -> None:
    job = await bench.job(overlap="cancel_running")
    gate = Gate()
    hands = await bench.hands(gate.app)
    await hands.start(await bench.message(job, 0))
    await hands.start(await bench.message(job, 1))
    await hands.start(await bench.message(job, 3))
    await hands.start(await bench.message(job, 2))
    assert await cancellations(bench) == [(0, 1)]
    assert await queued(bench, job) == bench.at(3)
    assert await bench.statuses(job) == [(0, 1, "running"), (2, 1, "skipped")]


async def test_under_cancel_running_the_newest_runs_once_the_other_has_stopped(bench: Bench) -> None:
    job = await bench.job(overlap="cancel_running")
    gate = Gate()
    await bench.make_topic()
    async with bench.living(gate.app):
        await bench.publish(await bench.raw(job, 0))
        await bench.until_status(job, "running")
        await bench.publish(await bench.raw(job, 1))
        await bench.until_ended(job)
        assert await bench.statuses(job) == [(0, 1, "cancelled")]
        assert await bench.failures(job) == [(1, "cancelled", "a newer run of the job is due")]
        assert await bench.value("SELECT due_at <= now() FROM timers WHERE job_id = $1", job.id)
        gate.open.set()
        await bench.publish(*await bench.dispatch_raw(job))
        await bench.until_ended(job, 2)
    assert await bench.statuses(job) == [(0, 1, "cancelled"), (1, 1, "succeeded")]
    assert await bench.count('"overlaps"') == 0


async def test_what_was_overtaken_in_the_queue_stops_no_newer_run(bench: Bench) -> None:
    """Its timer stands; when it comes back, the one that overtook it is running."""
    job = await bench.job(overlap="cancel_running")
    gate = Gate()
    hands = await bench.hands(gate.app)
    await hands.start(await bench.message(job, 0))
    await hands.start(await bench.message(job, 1))
    await hands.start(await bench.message(job, 2))
    gate.open.set()
    await hands.finish()
    gate.open.clear()
    overtaken, newest = await bench.dispatch(job)
    await hands.start(newest)
    await hands.start(overtaken)
    assert await cancellations(bench) == [(0, 1)]
    assert await bench.statuses(job) == [(0, 1, "succeeded"), (1, 1, "skipped"), (2, 1, "running")]


@pytest.mark.parametrize("overlap", LIMITED)
async def test_two_claims_that_meet_in_the_same_moment_let_one_run(bench: Bench, overlap: str) -> None:
    jobs = await bench.jobs(20, overlap=overlap)
    gate = Gate()
    one, other = await bench.hands(gate.app), await bench.hands(gate.app)
    first = [await bench.message(job, 0) for job in jobs]
    second = [await bench.message(job, 1) for job in reversed(jobs)]
    batches = await asyncio.gather(one.claim(*first), other.claim(*second))
    assert [job_id for job_id, _, _ in runs_of(*batches)] == sorted(job.id for job in jobs)
    assert await bench.count('"overlaps"') == 20


async def test_a_slot_that_somebody_else_makes_in_this_very_moment_is_respected(bench: Bench) -> None:
    job = await bench.job(overlap="skip")
    one, other = await bench.hands(Gate().app), await bench.hands(Gate().app)
    await one.start(await bench.message(job, 0))
    [slot] = await bench.fetch(
        'DELETE FROM "overlaps" RETURNING job_id, claim_id, position, scheduled_at, attempt'
    )
    made = 'INSERT INTO "overlaps" VALUES ($1, $2, $3, $4, $5)'
    async with bench.holding(made, *slot, undo=False):
        claim = asyncio.create_task(other.claim(await bench.message(job, 1)))
        await bench.until_blocked()
    await claim
    assert await bench.statuses(job) == [(0, 1, "running"), (1, 1, "skipped")]


@pytest.mark.parametrize("overlap", LIMITED)
async def test_two_runs_in_one_claim_let_the_first_run(bench: Bench, overlap: str) -> None:
    job = await bench.job(overlap=overlap)
    hands = await bench.hands(Gate().app)
    batch = await hands.claim(await bench.message(job, 1), await bench.message(job, 0))
    assert runs_of(batch) == [(job.id, bench.now, 1)]


@pytest.mark.parametrize("overlap", LIMITED)
async def test_a_copy_of_the_run_under_way_neither_waits_nor_stops_it(bench: Bench, overlap: str) -> None:
    job = await bench.job(overlap=overlap)
    hands = await bench.hands(Gate().app)
    message = await bench.message(job, 0)
    await hands.start(message, message)
    await hands.start(message)
    assert await bench.statuses(job) == [(0, 1, "running")]
    assert await queued(bench, job) is None
    assert await cancellations(bench) == []
    assert await bench.count("timers") == 0
    assert sum((await bench.tallies()).values()) == 1


@pytest.mark.parametrize("overlap", LIMITED)
async def test_a_copy_of_a_run_long_over_neither_waits_nor_stops_another(bench: Bench, overlap: str) -> None:
    job = await bench.job(overlap=overlap)
    gate = Gate()
    gate.open.set()
    hands = await bench.hands(gate.app)
    earlier, later = await bench.message(job, 0), await bench.message(job, 2)
    await hands.work(earlier)
    await hands.work(later)
    gate.open.clear()
    await hands.start(await bench.message(job, 1))
    await hands.start(earlier, later)
    assert await queued(bench, job) is None
    assert await cancellations(bench) == []
    assert sum((await bench.tallies()).values()) == 3


@pytest.mark.parametrize("overlap", LIMITED)
async def test_the_commit_answer_is_lost_and_the_retry_does_not_meet_itself(
    bench: Bench, overlap: str
) -> None:
    job = await bench.job(overlap=overlap)
    async with Line(bench.dsn) as line, asyncpg.create_pool(line.dsn, min_size=0, max_size=2) as pool:
        hands = await bench.hands(Gate().app, pool=pool)
        message = await bench.message(job)
        line.lose_answer_to(b"COMMIT;")
        claim = asyncio.create_task(hands.claim(message))
        await mend_when_cut(line)
        batch = await claim
        pool.terminate()
    assert runs_of(batch) == [(job.id, bench.now, 1)]
    assert await bench.outcomes(batch.id) == [Outcome.PENDING]
    assert await queued(bench, job) is None
    assert await cancellations(bench) == []


async def test_a_run_whose_worker_died_does_not_keep_its_slot(bench: Bench) -> None:
    job = await bench.job(overlap="skip")
    one, other = await bench.hands(Gate().app), await bench.hands(app_of(nothing))
    await one.start(await bench.message(job, 0))
    await bench.execute("UPDATE claims SET reaped_at = now()")
    await other.work(await bench.message(job, 1))
    assert (1, 1, "succeeded") in await bench.statuses(job)
