"""What can keep a claimed message from being executed, and what becomes of it instead."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from mainspring.schema.errors import RunEnded
from mainspring.schema.states import DeadReason, Outcome
from mainspring.worker import Mainspring
from mainspring.worker.gates import Gates
from tests.integration.worker.apps import Gate, Recorder, app_of, nothing
from tests.integration.worker.bench import Bench

APP = app_of(nothing)


async def test_a_pause_binds_what_nobody_has_claimed(bench: Bench) -> None:
    job = await bench.job()
    hands = await bench.hands(APP)
    message = await bench.message(job)
    await bench.registry.pause(1, job.id)
    batch = await hands.work(message)
    assert await bench.outcomes(batch.id) == [Outcome.RECALLED]
    assert await bench.failures(job) == [(1, "recalled", "the job is paused")]
    assert sum((await bench.tallies()).values()) == 1


async def test_a_deletion_binds_what_nobody_has_claimed(bench: Bench) -> None:
    job = await bench.job()
    hands = await bench.hands(APP)
    await hands.claim(await bench.message(await bench.job()))  # from here on the recall list knows
    message = await bench.message(job)
    await bench.registry.delete(1, job.id)
    await hands.work(message)
    assert await bench.statuses(job) == [(0, 1, "recalled")]
    assert await bench.failures(job) == [(1, "recalled", "the job is deleted")]


async def test_a_pause_binds_also_where_the_recall_list_does_not_reach(bench: Bench) -> None:
    """The message is older than the worker's first look at the feed, and so is the pause."""
    job = await bench.job()
    message = await bench.message(job)
    await bench.registry.pause(1, job.id)
    hands = await bench.hands(APP)
    await hands.claim(await bench.message(await bench.job()))
    await hands.work(message)
    assert await bench.statuses(job) == [(0, 1, "recalled")]


async def test_an_edit_binds_the_older_of_two_messages_of_one_claim(bench: Bench) -> None:
    """Both are looked at, the newer one changes nothing, and must not speak for the other."""
    job = await bench.job(payload="old")
    older = await bench.message(job)
    edited = await bench.registry.edit(1, job.id, {"payload": "new"})
    newer = await bench.message(edited, 1)
    recorder = Recorder()
    hands = await bench.hands(recorder.app)
    await hands.work(older, newer)
    assert recorder.payloads == ["new", "new"]


async def test_what_was_resumed_before_the_claim_runs(bench: Bench) -> None:
    job = await bench.job()
    message = await bench.message(job)
    await bench.registry.pause(1, job.id)
    await bench.registry.resume(1, job.id)
    await (await bench.hands(APP)).work(message)
    assert await bench.statuses(job) == [(0, 1, "succeeded")]


async def test_a_pause_does_not_touch_what_is_running(bench: Bench) -> None:
    job = await bench.job()
    gate = Gate()
    hands = await bench.hands(gate.app)
    await hands.start(await bench.message(job))
    await bench.registry.pause(1, job.id)
    gate.open.set()
    await hands.finish()
    assert await bench.statuses(job) == [(0, 1, "succeeded")]


async def test_a_resume_waits_for_the_claim_that_recalls_and_repeats_its_run(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A resume that came between would find nothing to repeat, and the one-off would never run."""
    job = await bench.job(schedule=bench.at(1).isoformat())
    [message] = await bench.dispatch(job)
    await bench.registry.pause(1, job.id)
    hands = await bench.hands(APP)
    decided, go_on = asyncio.Event(), asyncio.Event()
    effects = Gates.effects

    async def held_up(gates: Gates, *arguments: object) -> object:
        decided.set()
        await go_on.wait()
        return await effects(gates, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Gates, "effects", held_up)
    claim = asyncio.create_task(hands.work(message))
    await decided.wait()
    resume = asyncio.create_task(bench.registry.resume(1, job.id))
    try:
        await bench.until_blocked()
    finally:
        go_on.set()
    await asyncio.gather(claim, resume)
    assert await bench.statuses(job) == [(1, 1, "recalled")]
    assert [attempt for _, attempt, *_ in await bench.timers(job)] == [2]


async def test_what_was_to_be_cancelled_before_its_claim_is_never_executed(bench: Bench) -> None:
    job = await bench.job(schedule=bench.at(1).isoformat())
    recorder = Recorder()
    await bench.runs.cancel(1, job.id, bench.at(1), 1, "not needed")
    await (await bench.hands(recorder.app)).work(*await bench.dispatch(job))
    assert recorder.runs == []
    assert await bench.statuses(job) == [(1, 1, "cancelled")]
    assert await bench.failures(job) == [(1, "cancelled", "not needed")]
    assert (await bench.registry.get(1, job.id)).status == "completed"


async def test_another_attempt_of_a_cancelled_one_is_not_cancelled_with_it(bench: Bench) -> None:
    job = await bench.job()
    await bench.execute("INSERT INTO cancellations VALUES ($1, $2, 1, 'this one')", job.id, bench.now)
    await (await bench.hands(APP)).work(await bench.message(job, attempt=2, retries=1))
    assert await bench.statuses(job) == [(0, 2, "succeeded")]


async def test_a_running_run_hears_of_its_cancellation(bench: Bench) -> None:
    job, other = await bench.jobs(2)
    gate = Gate()
    await bench.make_topic()
    async with bench.living(gate.app) as living:
        await bench.publish(await bench.raw(job), await bench.raw(other))
        await bench.until_status(job, "running")
        await bench.runs.cancel(1, job.id, bench.now, 1, "wrong data")
        await bench.until_ended(job)
        assert living.life.executor.running == 1
        assert len(gate.stopped) == 1
        gate.open.set()
        await bench.until_ended(other)
    assert await bench.failures(job) == [(1, "cancelled", "wrong data")]
    assert await bench.timers(job) == []
    assert await bench.statuses(other) == [(0, 1, "succeeded")]


async def test_two_cancellations_at_once_are_one_request(bench: Bench) -> None:
    job = await bench.job()
    hands = await bench.hands(Gate().app)
    await hands.start(await bench.message(job))
    requests = [bench.runs.cancel(1, job.id, bench.now, 1, reason) for reason in ("one", "two")]
    one, two = await asyncio.gather(*requests)
    assert one == two
    assert await bench.count("cancellations") == 1


async def test_what_has_ended_cannot_be_cancelled(bench: Bench) -> None:
    job = await bench.job()
    await (await bench.hands(APP)).work(await bench.message(job))
    with pytest.raises(RunEnded) as refused:
        await bench.runs.cancel(1, job.id, bench.now, 1)
    assert refused.value.status == "succeeded"
    assert await bench.count("cancellations") == 0


async def test_a_run_without_its_handler_is_put_off_longer_each_time(bench: Bench) -> None:
    job = await bench.job()
    hands = await bench.hands(Mainspring())
    waits = []
    message = await bench.message(job, retries=1, attempt=2, losses=1)
    for _ in range(3):
        await hands.work(message)
        waits.append(
            await bench.value(
                "SELECT round(extract(epoch FROM due_at - max(claimed_at)))::integer"
                " FROM timers, claims GROUP BY due_at"
            )
        )
        assert await bench.timers(job) == [(0, 2, 1, 1, "deferred")]
        [message] = await bench.dispatch(job)
    assert waits == [5, 10, 15]
    assert await bench.statuses(job) == []


async def test_a_run_that_was_put_off_runs_where_its_handler_is(bench: Bench) -> None:
    job = await bench.job()
    await (await bench.hands(Mainspring())).work(await bench.message(job))
    await (await bench.hands(APP)).work(*await bench.dispatch(job))
    assert await bench.statuses(job) == [(0, 1, "succeeded")]


async def test_after_ten_minutes_without_its_handler_a_run_is_a_dead_letter(bench: Bench) -> None:
    job = await bench.job()
    hands = await bench.hands(Mainspring())
    await hands.work(await bench.message(job))
    await bench.execute("UPDATE deferrals SET first_at = now() - interval '9 minutes 50 seconds'")
    await hands.work(*await bench.dispatch(job))
    assert await bench.count("timers") == 1
    await bench.execute("UPDATE deferrals SET first_at = now() - interval '10 minutes 1 second'")
    await hands.work(*await bench.dispatch(job))
    assert await bench.statuses(job) == [(0, 1, "dead")]
    assert (await bench.count("timers"), await bench.count("deferrals")) == (0, 0)
    [letter] = await bench.letters.find(1)
    assert (letter.reason, letter.attempt) == (DeadReason.UNKNOWN_HANDLER, 1)
    assert letter.error == f"no worker of the pool {bench.name!r} has the handler 'work'"


async def test_a_copy_without_its_handler_is_no_dead_letter(bench: Bench) -> None:
    """The run was executed where the handler is; its message comes again where it is not."""
    job = await bench.job()
    message = await bench.message(job)
    await (await bench.hands(APP)).work(message)
    hands = await bench.hands(Mainspring())
    await hands.work(message)
    assert await bench.count("timers") == 0
    await bench.execute("UPDATE deferrals SET first_at = now() - interval '11 minutes'")
    batch = await hands.work(message)
    assert await bench.outcomes(batch.id) == [Outcome.VOID]
    assert await bench.count("dead_letters") == 0
    assert await bench.statuses(job) == [(0, 1, "succeeded")]


@pytest.mark.parametrize(
    ("policy", "following", "status"),
    [
        ("SKIP", timedelta(days=1), "missed"),
        ("RUN_ONCE", timedelta(days=1), "succeeded"),
        ("RUN_ONCE", timedelta(seconds=1), "missed"),
        ("RUN_ONCE", None, "succeeded"),
        ("RUN_ALL", timedelta(seconds=1), "succeeded"),
    ],
)
async def test_too_late_at_the_claim_is_decided_by_the_policy(
    bench: Bench, policy: str, following: timedelta | None, status: str
) -> None:
    job = await bench.job(missed_window=policy, grace_seconds=60)
    message = await bench.message(job, -61, following=following)
    await (await bench.hands(APP)).work(message)
    assert await bench.statuses(job) == [(-61, 1, status)]
    if status == "missed":
        assert await bench.failures(job) == [(1, "missed", "later than its grace")]


async def test_within_its_grace_a_late_run_is_executed(bench: Bench) -> None:
    job = await bench.job(missed_window="SKIP", grace_seconds=3600)
    await (await bench.hands(APP)).work(await bench.message(job, -600))
    assert await bench.statuses(job) == [(-600, 1, "succeeded")]
