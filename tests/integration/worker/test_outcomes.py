"""How a run ended, and what follows from it, becomes durable together or not at all."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from mainspring.registry import Job
from mainspring.schedule import retry_delay
from mainspring.schema.errors import DatabaseUnavailable
from mainspring.schema.ids import from_microseconds, to_microseconds
from mainspring.schema.messages import Message, decode_job
from mainspring.schema.states import Backoff, DeadReason, Outcome
from mainspring.worker import Cancel, Context, NotRetryable, Retry
from mainspring.worker.context import PROGRESS_LINE
from tests.integration.scheduler.line import Line
from tests.integration.worker.apps import app_of, fail, nothing
from tests.integration.worker.bench import Bench
from tests.integration.worker.hands import Hands

SECONDARY = ("failures", "timers", "dead_letters", "results", "run_logs")


async def told(bench: Bench) -> dict[str, int]:
    """What there is besides claims and runs."""
    return {table: number for table in SECONDARY if (number := await bench.count(table))}


async def due_after(bench: Bench, job: Job) -> timedelta:
    """How long after the run's end its next attempt is due."""
    ended = await bench.value("SELECT ended_at FROM run_history WHERE job_id = $1", job.id)
    due = await bench.value("SELECT due_at FROM timers WHERE job_id = $1", job.id)
    wait: timedelta = due - ended
    return wait


async def test_a_success_is_one_byte_and_no_other_row(bench: Bench) -> None:
    jobs = await bench.jobs(3)
    hands = await bench.hands(app_of(nothing))
    batch = await hands.work(*[await bench.message(job) for job in jobs])
    assert await bench.outcomes(batch.id) == [Outcome.SUCCEEDED] * 3
    assert await told(bench) == {}
    [row] = await bench.fetch(
        "SELECT finished_at IS NOT NULL, cardinality(started_ms), cardinality(ended_ms) FROM claims"
    )
    assert row == (True, 3, 3)


async def test_a_failure_has_a_row_and_a_next_attempt_by_the_backoff(bench: Bench) -> None:
    job = await bench.job(retry_backoff="linear", payload=17)
    await (await bench.hands(app_of(fail))).work(await bench.message(job, attempt=3, retries=1, losses=1))
    assert await bench.failures(job) == [(3, "failed", "ValueError: attempt 3 of order 17 failed")]
    assert await bench.timers(job) == [(0, 4, 2, 1, "retry")]
    wait = retry_delay(Backoff.LINEAR, 1, job.id, to_microseconds(bench.now))
    assert await due_after(bench, job) == wait
    [row] = await bench.fetch(
        "SELECT tenant_id, worker_id, started_at <= ended_at FROM failures WHERE job_id = $1", job.id
    )
    assert row == (1, "hands-0", True)
    assert await told(bench) == {"failures": 1, "timers": 1}


async def test_a_retry_of_the_handlers_own_comes_when_it_says(bench: Bench) -> None:
    async def later(context: Context) -> None:
        raise Retry(after=timedelta(hours=2), reason="not yet")

    job = await bench.job()
    await (await bench.hands(app_of(later))).work(await bench.message(job))
    assert await bench.failures(job) == [(1, "failed", "Retry: not yet")]
    assert await bench.timers(job) == [(0, 2, 1, 0, "retry")]
    assert await due_after(bench, job) == timedelta(hours=2)


async def test_a_run_that_cancels_itself_has_no_next_attempt_and_no_letter(bench: Bench) -> None:
    async def give_up(context: Context) -> None:
        raise Cancel("nothing to do")

    job = await bench.job()
    await (await bench.hands(app_of(give_up))).work(await bench.message(job))
    assert await bench.statuses(job) == [(0, 1, "cancelled")]
    assert await bench.failures(job) == [(1, "cancelled", "nothing to do")]
    assert await told(bench) == {"failures": 1}


async def test_what_is_not_retryable_is_dead_whatever_is_left(bench: Bench) -> None:
    async def hopeless(context: Context) -> None:
        raise NotRetryable("no such account")

    job = await bench.job(max_retries=9)
    await (await bench.hands(app_of(hopeless))).work(await bench.message(job))
    assert await bench.statuses(job) == [(0, 1, "dead")]
    assert await told(bench) == {"failures": 1, "dead_letters": 1}


async def test_the_last_failure_is_a_dead_letter_with_all_that_is_known(bench: Bench) -> None:
    one, other = await bench.job(max_retries=2, payload=17), await bench.job(max_retries=2, payload=4711)
    hands = await bench.hands(app_of(fail))
    await hands.work(*[await bench.message(job, attempt=3, retries=2) for job in (one, other)])
    assert await bench.statuses(one) == [(0, 3, "dead")]
    assert await bench.timers(one) == []
    letters = await bench.letters.find(1)
    assert len({each.fingerprint for each in letters}) == 1
    letter = await bench.letters.get(1, next(each.id for each in letters if each.job_id == one.id))
    assert (letter.scheduled_at, letter.attempt, letter.pool) == (bench.now, 3, bench.name)
    assert (letter.handler, letter.reason) == ("work", DeadReason.EXHAUSTED)
    assert letter.error == "ValueError: attempt 3 of order 17 failed"
    assert letter.traceback is not None
    assert "in fail\n" in letter.traceback
    assert letter.body is not None
    assert decode_job(letter.body).payload() == 17


async def test_a_death_and_its_letter_are_written_together_or_not_at_all(bench: Bench) -> None:
    job = await bench.job(max_retries=0)
    hands = await bench.hands(app_of(fail))
    await bench.execute("ALTER TABLE dead_letters ADD CONSTRAINT refused CHECK (pool = 'another') NOT VALID")
    batch = await hands.start(await bench.message(job))
    with pytest.raises(asyncpg.CheckViolationError):
        await hands.finish()
    assert await bench.outcomes(batch.id) == [Outcome.PENDING]
    assert await told(bench) == {}
    await bench.execute("ALTER TABLE dead_letters DROP CONSTRAINT refused")
    await hands.finish()
    assert await bench.outcomes(batch.id) == [Outcome.DEAD]
    assert await told(bench) == {"failures": 1, "dead_letters": 1}


async def test_a_flush_of_a_reaped_claim_writes_nothing(bench: Bench) -> None:
    async def everything(context: Context) -> Any:
        context.log("a line")
        if context.payload == "succeed":
            return {"a": "result"}
        raise (ValueError if context.payload == "fail" else NotRetryable)("it went wrong")

    jobs = [await bench.job(payload=how) for how in ("succeed", "fail", "die")]
    for job in jobs:
        await bench.dependent(job, on_failure="run")
    hands = await bench.hands(app_of(everything))
    batch = await hands.start(*[await bench.message(job) for job in jobs])
    await bench.execute("UPDATE claims SET reaped_at = now()")
    reported = await hands.finish()
    assert reported.lost == [batch]
    assert reported.runs == 0
    assert await bench.outcomes(batch.id) == [Outcome.PENDING] * 3
    assert await told(bench) == {}
    assert await bench.count("arrivals") == 0


async def test_a_reaped_claim_does_not_hold_up_another_one(bench: Bench) -> None:
    one, other = await bench.jobs(2)
    hands = await bench.hands(app_of(fail))
    reaped = await hands.start(await bench.message(one))
    kept = await hands.start(await bench.message(other))
    await bench.execute("UPDATE claims SET reaped_at = now() WHERE id = $1", reaped.id)
    reported = await hands.finish()
    assert (reported.lost, reported.runs) == ([reaped], 1)
    assert await bench.outcomes(kept.id) == [Outcome.FAILED]
    assert await bench.failures(one) == []


async def test_results_and_lines_are_kept_and_shown_with_the_run(bench: Bench) -> None:
    async def talk(context: Context) -> Any:
        context.log("begun", order=17)
        context.progress(0.25)
        context.log("careful", level="warning")
        context.progress(0.5)
        return {"sent": 2}

    job = await bench.job()
    await (await bench.hands(app_of(talk))).work(await bench.message(job))
    run = await bench.runs.get(1, job.id, bench.now, 1)
    assert (run.status, run.worker_id, run.result, run.error) == ("succeeded", "hands-0", '{"sent":2}', None)
    assert run.started_at is not None
    assert run.ended_at is not None
    assert run.claimed_at <= run.started_at <= run.ended_at
    lines = await bench.runs.logs(1, job.id, bench.now, 1)
    assert [(each.line, each.level, each.message) for each in lines] == [
        (0, "info", "begun order=17"),
        (1, "warning", "careful"),
        (PROGRESS_LINE, "progress", "50%"),
    ]


async def test_results_and_lines_are_bounded(bench: Bench) -> None:
    async def babble(context: Context) -> str:
        for number in range(1500):
            context.log(f"{number} " + "ä" * 20_000)
        return "x" * 300_000

    job = await bench.job()
    await (await bench.hands(app_of(babble))).work(await bench.message(job))
    run = await bench.runs.get(1, job.id, bench.now, 1)
    assert (run.status, run.result) == ("succeeded", None)
    [row] = await bench.fetch(
        "SELECT max(octet_length(message)), sum(octet_length(message)), count(*) FROM run_logs"
    )
    assert row[0] <= 8192
    assert row[1] <= 70_000
    *_, dropped, not_kept = await bench.runs.logs(1, job.id, bench.now, 1)
    assert "1492 more lines were dropped" in dropped.message
    assert "the result was not kept" in not_kept.message


async def test_a_traceback_or_an_error_of_any_size_and_kind_can_be_written(bench: Bench) -> None:
    async def nasty(context: Context) -> None:
        raise ValueError("\0\ud800" + "ä" * 50_000)

    job = await bench.job(max_retries=0)
    await (await bench.hands(app_of(nasty))).work(await bench.message(job))
    assert await bench.statuses(job) == [(0, 1, "dead")]
    [letter] = await bench.letters.find(1)
    assert letter.error is not None
    assert len(letter.error.encode()) <= 8192


async def test_a_flush_while_postgres_is_away_is_kept_and_written_later(bench: Bench) -> None:
    job, last = await bench.job(payload=17), await bench.job(max_retries=0)
    async with Line(bench.dsn) as line, asyncpg.create_pool(line.dsn, min_size=0, max_size=2) as pool:
        hands = await bench.hands(app_of(fail), pool=pool)
        await hands.start(*[await bench.message(each) for each in (job, last)])
        await hands.until_idle()
        line.cut()
        with pytest.raises(DatabaseUnavailable):
            await hands.reporter.run_once(hurry=True)
        line.mend()
        assert (await hands.finish()).runs == 2
        assert not hands.reporter.unwritten
        pool.terminate()
    assert await bench.statuses(job) == [(0, 1, "failed")]
    assert await bench.timers(job) == [(0, 2, 1, 0, "retry")]
    assert await told(bench) == {"failures": 2, "timers": 1, "dead_letters": 1}


async def test_a_flush_whose_commit_answer_is_lost_is_repeated_without_effect(bench: Bench) -> None:
    parent, failing = await bench.job(), await bench.job(payload="fail")

    async def mixed(context: Context) -> None:
        context.log("a line")
        if context.payload == "fail":
            raise ValueError("it went wrong")

    dependent = await bench.dependent(parent)
    async with Line(bench.dsn) as line, asyncpg.create_pool(line.dsn, min_size=0, max_size=2) as pool:
        hands = await bench.hands(app_of(mixed), pool=pool)
        batch = await hands.start(await bench.message(parent), await bench.message(failing))
        await hands.until_idle()
        line.lose_answer_to(b"COMMIT;")
        with pytest.raises(DatabaseUnavailable):
            await hands.reporter.run_once(hurry=True)

        async def written() -> bool:
            return await bench.outcomes(batch.id) == [Outcome.SUCCEEDED, Outcome.FAILED]

        await bench.until(written)  # the server goes on after the line was cut
        [released] = await bench.dispatch(dependent)
        line.mend()
        await hands.finish()
        await hands.work(released)
        pool.terminate()
    assert await bench.timers(dependent) == []
    assert await bench.statuses(dependent) == [(0, 1, "succeeded")]
    assert await bench.timers(failing) == [(0, 2, 1, 0, "retry")]
    assert await told(bench) == {"failures": 1, "timers": 1, "run_logs": 3}


async def test_a_redriven_run_that_dies_again_has_a_letter_that_names_the_one_before(bench: Bench) -> None:
    job = await bench.job(max_retries=0)
    hands = await bench.hands(app_of(fail))
    await hands.work(await bench.message(job))
    [first] = await bench.letters.find(1)
    await bench.letters.redrive(1, [first.id])
    await hands.work(*await bench.dispatch(job))
    [_, second] = await bench.letters.find(1)
    assert (second.attempt, second.previous_id) == (2, first.id)
    assert await bench.statuses(job) == [(0, 1, "dead"), (0, 2, "dead")]


async def test_a_one_off_is_completed_by_its_last_run(bench: Bench) -> None:
    results: list[Exception | None] = [ValueError("once"), None]

    async def second_time(context: Context) -> None:
        if (error := results.pop(0)) is not None:
            raise error

    job = await bench.job(schedule=bench.at(1).isoformat(), retry_backoff="none")
    hands = await bench.hands(app_of(second_time))
    await hands.work(*await bench.dispatch(job))
    assert (await bench.registry.get(1, job.id)).status == "active"
    await hands.work(*await bench.dispatch(job))
    assert (await bench.registry.get(1, job.id)).status == "completed"
    assert await bench.statuses(job) == [(1, 1, "failed"), (1, 2, "succeeded")]


async def test_a_dependent_runs_for_the_instant_of_its_parents_once_all_have_succeeded(bench: Bench) -> None:
    one, other = await bench.jobs(2)
    dependent = await bench.dependent(one, other)
    hands = await bench.hands(app_of(nothing))
    await hands.work(await bench.message(one, 7))
    assert await bench.timers(dependent) == []
    await hands.work(await bench.message(other, 7))
    [message] = await bench.dispatch(dependent)
    assert from_microseconds(message.scheduled_at) == bench.at(7)
    await hands.work(message)
    assert await bench.statuses(dependent) == [(7, 1, "succeeded")]


async def test_two_parents_of_one_dependent_finish_in_the_same_moment(bench: Bench) -> None:
    """At two workers: neither flush may believe that the other parent is still missing."""
    parents = await bench.jobs(2)
    dependent = await bench.dependent(*parents)
    workers: list[Hands] = [await bench.hands(app_of(nothing)) for _ in parents]
    for hands, parent in zip(workers, parents, strict=True):
        await hands.start(await bench.message(parent))
        await hands.until_idle()
    # Both flushes have begun before one of them can end.
    async with bench.holding(
        "INSERT INTO arrivals (job_id, scheduled_at) VALUES ($1, $2)", dependent.id, bench.now
    ):
        flushes = [asyncio.create_task(hands.finish()) for hands in workers]
        await bench.until_blocked(2)
    await asyncio.gather(*flushes)
    assert await bench.timers(dependent) == [(0, 1, 0, 0, "dependency")]


async def test_a_partial_flush_tells_of_what_has_ended_and_leaves_the_rest_open(bench: Bench) -> None:
    go_on = asyncio.Event()

    async def some_wait(context: Context) -> None:
        if context.payload == "wait":
            await go_on.wait()

    quick, slow = await bench.job(), await bench.job(payload="wait")
    hands = await bench.hands(app_of(some_wait))
    messages: list[Message] = [await bench.message(each) for each in (quick, slow)]
    batch = await hands.start(*messages)
    await hands.executor.changed.wait()
    assert batch.open == 1
    await hands.reporter.run_once(hurry=True)
    assert await bench.statuses(quick) == [(0, 1, "succeeded")]
    assert await bench.statuses(slow) == [(0, 1, "running")]
    go_on.set()
    await hands.finish()
    assert await bench.statuses(slow) == [(0, 1, "succeeded")]
    assert await bench.value("SELECT finished_at IS NOT NULL FROM claims")
