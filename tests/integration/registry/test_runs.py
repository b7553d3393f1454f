"""Runs as their owners see them: history, cancellation, backfill."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from mainspring.registry import DeadLetters, Job, Runs
from mainspring.registry.endings import Ended, end_runs
from mainspring.registry.letters import Letter, bury
from mainspring.schedule import format_instant
from mainspring.schema.errors import InvalidInput, NotFound, RunEnded, WrongStatus
from mainspring.schema.ids import RunKey, format_run_id, to_microseconds
from mainspring.schema.partitions import ensure_days
from mainspring.schema.states import DeadReason, LogLevel, Outcome, State
from tests.integration.registry.bench import SHARDS, Bench

HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)


async def stage(bench: Bench, schedule: str = "0 * * * *", **body: Any) -> tuple[Runs, Job, datetime]:
    """Runs, an hourly job, and the last full hour."""
    job = await bench.create(handler="h", schedule=schedule, **body)
    hour: datetime = await bench.value("SELECT date_trunc('hour', now())")
    async with bench.pool.acquire() as connection:
        await ensure_days(connection, [hour.date() - timedelta(days=1)])
    return Runs(bench.pool, SHARDS), job, hour


async def cancellations(bench: Bench, job: Job) -> list[Any]:
    return await bench.fetch(
        "SELECT scheduled_at, attempt, reason FROM cancellations WHERE job_id = $1 ORDER BY 1, 2", job.id
    )


async def stranger(bench: Bench, job: Job) -> int:
    tenant: int = await bench.value("INSERT INTO tenants (name) VALUES ($1) RETURNING id", f"s-{job.id}")
    return tenant


# History


async def test_a_run_is_read_as_it_ended(bench: Bench) -> None:
    runs, job, at = await stage(bench)
    await bench.record_runs(job, at, Outcome.FAILED, Outcome.PENDING)
    await bench.fetch(
        "INSERT INTO failures (job_id, scheduled_at, attempt, tenant_id, status, error)"
        " VALUES ($1, $2, 1, $3, 'failed', 'no')",
        job.id,
        at,
        bench.tenant,
    )
    await bench.fetch(
        "INSERT INTO results (job_id, scheduled_at, attempt, value) VALUES ($1, $2, 2, '[1]')", job.id, at
    )
    first = await runs.get(bench.tenant, job.id, at, 1)
    assert (first.status, first.error, first.result, first.worker_id) == ("failed", "no", None, "w")
    assert first.run_id == format_run_id(RunKey(job.id, at, 1))
    second = await runs.get(bench.tenant, job.id, at, 2)
    assert (second.status, second.error, second.result) == ("running", None, "[1]")


async def test_runs_are_listed_newest_first_page_by_page(bench: Bench) -> None:
    runs, job, at = await stage(bench)
    await bench.record_runs(job, at, Outcome.FAILED, Outcome.LOST, Outcome.SUCCEEDED)
    await bench.record_runs(job, at + timedelta(days=1), Outcome.SUCCEEDED)
    newest = await runs.list(bench.tenant, job.id, 2)
    assert [(run.scheduled_at, run.attempt) for run in newest] == [(at + timedelta(days=1), 1), (at, 3)]
    rest = await runs.list(bench.tenant, job.id, 2, newest[-1].key)
    assert [(run.attempt, run.status) for run in rest] == [(2, "lost"), (1, "failed")]
    assert await runs.list(bench.tenant, job.id, 2, rest[-1].key) == ()


async def test_log_lines_come_in_order_page_by_page(bench: Bench) -> None:
    runs, job, at = await stage(bench)
    for line in (2, 0, 1):
        await bench.fetch(
            "INSERT INTO run_logs (job_id, scheduled_at, attempt, line, at, level, message)"
            " VALUES ($1, $2, 1, $3, now(), 'info', $4)",
            job.id,
            at,
            line,
            f"line {line}",
        )
    first = await runs.logs(bench.tenant, job.id, at, 1, 2)
    assert [(line.line, line.level, line.message) for line in first] == [
        (0, LogLevel.INFO, "line 0"),
        (1, LogLevel.INFO, "line 1"),
    ]
    assert [line.line for line in await runs.logs(bench.tenant, job.id, at, 1, 2, first[-1].line)] == [2]
    assert await runs.logs(bench.tenant, job.id, at, 2) == ()


async def test_the_history_of_a_deleted_job_stays_readable(bench: Bench) -> None:
    runs, job, at = await stage(bench)
    await bench.record_runs(job, at, Outcome.SUCCEEDED)
    await bench.registry.delete(bench.tenant, job.id)
    assert (await runs.get(bench.tenant, job.id, at, 1)).status == "succeeded"
    assert len(await runs.list(bench.tenant, job.id)) == 1


async def test_another_tenant_sees_and_changes_nothing(bench: Bench) -> None:
    runs, job, at = await stage(bench)
    await bench.record_runs(job, at, Outcome.PENDING)
    other = await stranger(bench, job)
    for attempted in (
        runs.get(other, job.id, at, 1),
        runs.list(other, job.id),
        runs.logs(other, job.id, at, 1),
        runs.cancel(other, job.id, at, 1),
        runs.backfill(other, job.id, at - HOUR, at),
    ):
        with pytest.raises(NotFound):
            await attempted
    assert (await cancellations(bench, job), await bench.timers(job)) == ([], [])


async def test_keys_and_limits_that_nothing_can_have_are_refused(bench: Bench) -> None:
    runs, job, at = await stage(bench)
    for attempted in (
        runs.list(bench.tenant, job.id, 0),
        runs.get(bench.tenant, job.id, at, 0),
        runs.get(bench.tenant, job.id, at.replace(tzinfo=None), 1),
        runs.cancel(bench.tenant, job.id, at, 1, "x" * 501),
        runs.backfill(bench.tenant, job.id, at - HOUR, at, 10_001),
    ):
        with pytest.raises(InvalidInput):
            await attempted


# Cancelling


async def test_a_running_run_is_cancelled(bench: Bench) -> None:
    runs, job, at = await stage(bench)
    await bench.record_runs(job, at, Outcome.FAILED, Outcome.PENDING)
    cancelled = await runs.cancel(bench.tenant, job.id, at, 2, "too long")
    assert (cancelled.key, cancelled.state) == (RunKey(job.id, at, 2), State.RUNNING)
    assert cancelled.reason == "too long"
    assert await cancellations(bench, job) == [(at, 2, "too long")]


async def test_a_run_that_waits_as_a_timer_is_made_due(bench: Bench) -> None:
    """So that a worker records it soon; the timer itself stays, or nobody would."""
    runs, job, at = await stage(bench)
    for attempt in (2, 3):
        await bench.add_timer(job, at, attempt, "retry")
    await bench.fetch("UPDATE timers SET due_at = now() + interval '1 hour' WHERE job_id = $1", job.id)
    cancelled = await runs.cancel(bench.tenant, job.id, at, 2)
    assert cancelled.state is State.SCHEDULED
    due = await bench.fetch(
        "SELECT attempt, due_at <= clock_timestamp() FROM timers WHERE job_id = $1 ORDER BY 1", job.id
    )
    assert due == [(2, True), (3, False)]
    assert await cancellations(bench, job) == [(at, 2, None)]


@pytest.mark.parametrize("outcome", [outcome for outcome in Outcome if outcome not in (0, 9)])
async def test_a_run_that_has_ended_is_refused_with_its_outcome(bench: Bench, outcome: Outcome) -> None:
    runs, job, at = await stage(bench)
    await bench.record_runs(job, at, outcome)
    with pytest.raises(RunEnded) as refusal:
        await runs.cancel(bench.tenant, job.id, at, 1)
    assert (refusal.value.action, refusal.value.status) == ("cancel", outcome.word)
    assert str(refusal.value) == f"cannot cancel a run that has ended: it is {outcome.word}"
    assert await cancellations(bench, job) == []


async def test_two_cancellations_at_once_are_one(bench: Bench) -> None:
    runs, job, at = await stage(bench)
    await bench.record_runs(job, at, Outcome.PENDING)
    made = await asyncio.gather(*(runs.cancel(bench.tenant, job.id, at, 1, f"{n}") for n in range(6)))
    assert len(set(made)) == 1
    assert await cancellations(bench, job) == [(at, 1, made[0].reason)]


async def test_an_occurrence_that_has_left_for_kafka_is_queued(bench: Bench) -> None:
    runs, job, at = await stage(bench)
    assert (await runs.cancel(bench.tenant, job.id, at, 1)).state is State.QUEUED
    assert (await runs.cancel(bench.tenant, job.id, at + HOUR, 1)).state is State.SCHEDULED


async def test_a_trigger_that_has_left_for_kafka_is_queued(bench: Bench) -> None:
    runs, job, _ = await stage(bench)
    key = await bench.registry.trigger(bench.tenant, job.id)
    await bench.fetch("DELETE FROM timers WHERE job_id = $1", job.id)
    assert (await runs.cancel(bench.tenant, *key)).state is State.QUEUED


async def test_a_one_off_that_has_left_for_kafka_is_queued(bench: Bench) -> None:
    runs, _, at = await stage(bench)
    job = await bench.create(handler="h", schedule=format_instant(at))
    await bench.fetch("DELETE FROM timers WHERE job_id = $1", job.id)
    assert (await runs.cancel(bench.tenant, job.id, at, 1)).state is State.QUEUED


async def test_the_attempt_after_one_that_failed_is_queued(bench: Bench) -> None:
    runs, job, at = await stage(bench)
    await bench.record_runs(job, at, Outcome.FAILED, Outcome.LOST)
    assert (await runs.cancel(bench.tenant, job.id, at, 3)).state is State.QUEUED


async def test_a_redriven_run_is_queued(bench: Bench) -> None:
    runs, job, at = await stage(bench)
    letter = Letter(
        bench.tenant, job.id, to_microseconds(at), 1, "default", "h", DeadReason.EXHAUSTED, "", None, b"b"
    )
    await bench.record_runs(job, at, Outcome.DEAD)
    async with bench.pool.acquire() as connection:
        await bury(connection, [letter])
    with pytest.raises(NotFound):
        await runs.cancel(bench.tenant, job.id, at, 2)
    letters = DeadLetters(bench.pool, SHARDS)
    await letters.redrive(bench.tenant, [(await letters.find(bench.tenant))[0].id])
    await bench.fetch("DELETE FROM timers WHERE job_id = $1", job.id)
    assert (await runs.cancel(bench.tenant, job.id, at, 2)).state is State.QUEUED


async def test_a_dependent_is_cancelled_while_it_waits_and_when_it_is_released(bench: Bench) -> None:
    runs, _, at = await stage(bench)
    parents = [await bench.create(name=name, schedule="@daily") for name in ("a", "b")]
    child = await bench.create(name="c", after=["a", "b"])

    async def end(parent: Job, instant: datetime, outcome: Outcome) -> None:
        async with bench.pool.acquire() as connection, connection.transaction():
            ended = Ended(parent.id, to_microseconds(instant), 1, outcome, overlaps=False, one_off=False)
            await end_runs(connection, [ended])

    await end(parents[0], at, Outcome.SUCCEEDED)
    assert (await runs.cancel(bench.tenant, child.id, at, 1)).state is State.WAITING
    await end(parents[1], at, Outcome.SUCCEEDED)
    assert (await runs.cancel(bench.tenant, child.id, at, 1)).state is State.SCHEDULED
    await bench.fetch("DELETE FROM timers WHERE job_id = $1", child.id)
    assert (await runs.cancel(bench.tenant, child.id, at, 1)).state is State.QUEUED
    for parent in parents:
        await end(parent, at + HOUR, Outcome.DEAD)
    with pytest.raises(NotFound):
        await runs.cancel(bench.tenant, child.id, at + HOUR, 1)


async def test_what_the_job_cannot_have_is_not_found(bench: Bench) -> None:
    runs, job, at = await stage(bench, starts_at="2020-01-01T00:00:00Z", ends_at="2199-01-01T00:00:00Z")
    waits = await bench.create(name="waits", after=[job.job_id])
    once = await bench.create(handler="h", schedule=format_instant(at - HOUR))
    ended = await bench.create(handler="h", schedule="0 * * * *", ends_at=format_instant(at + HOUR))
    await bench.record_runs(job, at, Outcome.SUCCEEDED)
    in_the_future = at + HOUR + timedelta(microseconds=1)
    for key in (
        (job.id, at, 2),  # after one that succeeded
        (job.id, at + SECOND, 1),  # no occurrence of the schedule
        (job.id, at - timedelta(days=4000), 1),  # of a day that is not kept
        (job.id, at - timedelta(microseconds=1), 1),  # a trigger from before the job existed
        (job.id, in_the_future, 1),
        (waits.id, at, 1),
        (once.id, at, 1),
        (ended.id, at + HOUR, 1),
        (1, at, 1),
    ):
        with pytest.raises(NotFound) as refusal:
            await runs.cancel(bench.tenant, *key)
        assert refusal.value.key == format_run_id(RunKey(*key))
    assert await cancellations(bench, job) == []


async def test_a_running_run_of_a_deleted_job_can_be_cancelled(bench: Bench) -> None:
    runs, job, at = await stage(bench)
    await bench.record_runs(job, at, Outcome.PENDING)
    await bench.registry.delete(bench.tenant, job.id)
    assert (await runs.cancel(bench.tenant, job.id, at, 1)).state is State.RUNNING
    with pytest.raises(NotFound):
        await runs.cancel(bench.tenant, job.id, at - HOUR, 1)


# Backfill


async def test_a_backfill_makes_one_timer_per_occurrence(bench: Bench) -> None:
    """From the first instant on, up to the second, before the job existed."""
    runs, job, at = await stage(bench)
    assert await runs.backfill(bench.tenant, job.id, at - 3 * HOUR, at) == 3
    timers = await bench.timers(job)
    assert [(instant, attempt, cause) for instant, _, attempt, cause in timers] == [
        (at - n * HOUR, 1, "backfill") for n in (3, 2, 1)
    ]
    assert await bench.value("SELECT max(due_at) <= clock_timestamp() FROM timers WHERE job_id = $1", job.id)
    assert await bench.value("SELECT min(shard) FROM timers WHERE job_id = $1", job.id) == job.shard


async def test_what_has_a_run_or_a_timer_is_not_made_again(bench: Bench) -> None:
    runs, job, at = await stage(bench)
    await bench.record_runs(job, at - HOUR, Outcome.DEAD)
    await bench.add_timer(job, at - 2 * HOUR, 2, "retry")
    assert await runs.backfill(bench.tenant, job.id, at - 4 * HOUR, at) == 2
    assert await runs.backfill(bench.tenant, job.id, at - 4 * HOUR, at) == 0
    assert [timer[0] for timer in await bench.timers(job)] == [at - n * HOUR for n in (4, 3, 2)]


async def test_two_backfills_at_once_are_one(bench: Bench) -> None:
    runs, job, at = await stage(bench)
    made = await asyncio.gather(*(runs.backfill(bench.tenant, job.id, at - 24 * HOUR, at) for _ in range(4)))
    assert sum(made) == 24
    assert len(await bench.timers(job)) == 24


async def test_a_backfill_stays_between_start_and_end_of_the_job(bench: Bench) -> None:
    runs, _, at = await stage(bench)
    job = await bench.create(
        handler="h",
        schedule="0 * * * *",
        starts_at=format_instant(at - 3 * HOUR),
        ends_at=format_instant(at - HOUR),
    )
    assert await runs.backfill(bench.tenant, job.id, at - 9 * HOUR, at) == 2
    assert [timer[0] for timer in await bench.timers(job)] == [at - 3 * HOUR, at - 2 * HOUR]


async def test_a_backfill_makes_the_days_that_are_missing(bench: Bench) -> None:
    """Days nobody made ahead: each occurrence can have its run."""
    runs, job, at = await stage(bench, "0 12 * * *")
    start = (at - timedelta(days=500)).replace(hour=0)
    assert await runs.backfill(bench.tenant, job.id, start, start + timedelta(days=2)) == 2
    for instant, *_ in await bench.timers(job):
        await bench.record_runs(job, instant, Outcome.SUCCEEDED)


async def test_too_many_occurrences_are_refused_before_anything_is_made(bench: Bench) -> None:
    runs, job, at = await stage(bench, "* * * * *")
    assert await runs.backfill(bench.tenant, job.id, at - 60 * SECOND * 10, at, 10) == 10
    with pytest.raises(InvalidInput) as refusal:
        await runs.backfill(bench.tenant, job.id, at - 60 * SECOND * 11, at, 10)
    assert (refusal.value.field, refusal.value.rule) == (
        "end",
        "there are more than 10 occurrences before it; take a shorter range",
    )
    assert len(await bench.timers(job)) == 10


async def test_only_the_past_of_a_recurring_job_is_backfilled(bench: Bench) -> None:
    runs, job, at = await stage(bench)
    once = await bench.one_off()
    waits = await bench.create(name="waits", after=[job.job_id])
    refused = [
        (once.id, at - HOUR, at, "job_id"),
        (waits.id, at - HOUR, at, "job_id"),
        (job.id, at, at, "end"),
        (job.id, at, at + 2 * HOUR, "end"),
        (job.id, at.replace(tzinfo=None), at, "start"),
    ]
    for job_id, start, end, field in refused:
        with pytest.raises(InvalidInput) as refusal:
            await runs.backfill(bench.tenant, job_id, start, end)
        assert refusal.value.field == field


async def test_a_paused_job_is_not_backfilled(bench: Bench) -> None:
    runs, job, at = await stage(bench)
    await bench.registry.pause(bench.tenant, job.id, reason="broken")
    with pytest.raises(WrongStatus) as refusal:
        await runs.backfill(bench.tenant, job.id, at - HOUR, at)
    assert (refusal.value.action, refusal.value.status, refusal.value.reason) == (
        "backfill",
        "paused",
        "broken",
    )


async def test_a_range_without_occurrences_makes_nothing(bench: Bench) -> None:
    runs, job, at = await stage(bench)
    assert await runs.backfill(bench.tenant, job.id, at - HOUR + SECOND, at) == 0


async def test_instants_in_any_zone_are_the_same_instants(bench: Bench) -> None:
    runs, job, at = await stage(bench)
    await bench.record_runs(job, at, Outcome.PENDING)
    elsewhere = at.astimezone(datetime.now().astimezone().tzinfo or UTC)
    assert (await runs.cancel(bench.tenant, job.id, elsewhere, 1)).key == RunKey(job.id, at, 1)
