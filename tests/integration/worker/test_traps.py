"""Traps found on paper that concern the worker: each a test by name.

Of the others, the tests of the registry have two parents that end in the same moment; those of the claim, the
lost answer to COMMIT; those of the scheduler, a timer that is re-timed.
"""

from __future__ import annotations

import asyncio

import pytest

from mainspring.schema.states import Outcome
from mainspring.worker import Context
from tests.integration.worker.apps import Gate, Recorder, app_of, nothing
from tests.integration.worker.bench import Bench


async def test_a_payload_edit_between_publication_and_claim_does_not_drop_the_occurrence(
    bench: Bench,
) -> None:
    known, unknown = await bench.jobs(2, payload="old")
    recorder = Recorder()
    early = await bench.hands(recorder.app)
    await early.claimer.listen()
    messages = [await bench.message(job) for job in (known, unknown)]
    for job in (known, unknown):
        await bench.registry.edit(1, job.id, {"payload": "new"})
    # One worker has followed the feed since before the messages; the other begins after the edits.
    await early.work(messages[0])
    await (await bench.hands(recorder.app)).work(messages[1])
    assert recorder.payloads == ["new", "new"]
    for job in (known, unknown):
        assert await bench.statuses(job) == [(0, 1, "succeeded")]


async def test_a_run_whose_day_has_no_partition_does_not_poison_its_batch(bench: Bench) -> None:
    jobs = await bench.jobs(3)
    hands = await bench.hands(app_of(nothing))
    far = 400 * 86_400.0
    await bench.drop_day(far)
    await hands.work(
        await bench.message(jobs[0]), await bench.message(jobs[1], far), await bench.message(jobs[2])
    )
    assert await bench.statuses(jobs[0]) == [(0, 1, "succeeded")]
    assert await bench.statuses(jobs[1]) == [(far, 1, "succeeded")]
    assert await bench.statuses(jobs[2]) == [(0, 1, "succeeded")]


@pytest.mark.parametrize("kind", ["one_off", "recurring"])
async def test_a_job_paused_its_queued_run_dropped_resumed_the_topic_replayed(
    bench: Bench, kind: str
) -> None:
    """What was recalled has its row, which the replay meets; a one-off is repeated as its next attempt."""
    recorder = Recorder()
    one_off = kind == "one_off"
    job = await bench.job(schedule=bench.at(1).isoformat() if one_off else "0 0 * * *")
    hands = await bench.hands(recorder.app)
    message = (await bench.dispatch(job))[0] if one_off else await bench.message(job, 1)
    await bench.registry.pause(1, job.id)
    await hands.work(message)
    await bench.registry.resume(1, job.id)
    await hands.work(message)
    assert recorder.runs == []
    repeated = await bench.dispatch(job)
    assert len(repeated) == one_off
    if one_off:
        await hands.work(*repeated)
        await hands.work(message, *repeated)
        assert await bench.statuses(job) == [(1, 1, "recalled"), (1, 2, "succeeded")]
        assert (await bench.registry.get(1, job.id)).status == "completed"
    else:
        assert await bench.statuses(job) == [(1, 1, "recalled")]
    assert len(recorder.runs) == one_off


async def test_the_handlers_transaction_commits_and_the_worker_dies_before_the_flush(bench: Bench) -> None:
    await bench.execute("CREATE TABLE IF NOT EXISTS payments (run text)")
    await bench.execute("DELETE FROM payments")
    entered: list[int] = []

    async def pay(context: Context) -> None:
        entered.append(context.attempt)
        async with context.transaction() as connection:
            await connection.execute("INSERT INTO payments VALUES ($1)", context.run_id)

    job, other = await bench.jobs(2)
    dead = await bench.hands(app_of(pay))
    await dead.start(await bench.message(job), await bench.message(other))
    await dead.until_idle()
    assert await bench.statuses(job) == [(0, 1, "running")]
    await bench.execute("UPDATE claims SET reaped_at = now(), outcomes = $1", bytes([Outcome.LOST] * 2))
    heir = await bench.hands(app_of(pay))
    await heir.work(
        await bench.message(job, attempt=2, losses=1), await bench.message(other, attempt=2, losses=1)
    )
    assert entered == [1, 1]
    assert await bench.count("payments") == 2
    assert await bench.statuses(job) == [(0, 1, "lost"), (0, 2, "succeeded")]
    assert (await dead.reporter.run_once(hurry=True)).lost
    assert await bench.statuses(job) == [(0, 1, "lost"), (0, 2, "succeeded")]


async def test_an_attempt_that_meets_the_effect_while_it_runs_does_nothing_again(bench: Bench) -> None:
    """The attempt before it commits between the claim and the handler's transaction."""
    await bench.execute("CREATE TABLE IF NOT EXISTS payments (run text)")
    await bench.execute("DELETE FROM payments")
    inside, go_on = asyncio.Event(), asyncio.Event()

    async def pay(context: Context) -> None:
        if context.attempt == 2:
            inside.set()
            await go_on.wait()
        async with context.transaction() as connection:
            await connection.execute("INSERT INTO payments VALUES ($1)", context.run_id)

    job = await bench.job()
    first, second = await bench.hands(app_of(pay)), await bench.hands(app_of(pay))
    await second.start(await bench.message(job, attempt=2))
    await inside.wait()
    await first.work(await bench.message(job))
    go_on.set()
    await second.finish()
    assert await bench.count("payments") == 1
    assert await bench.statuses(job) == [(0, 1, "succeeded"), (0, 2, "succeeded")]


async def test_long_runs_on_one_worker_do_not_hold_its_partitions(bench: Bench, long_sessions: None) -> None:
    """All slots are taken for hours: the messages behind them go to a worker that has one."""
    long_ones = await bench.jobs(4)
    behind = await bench.jobs(2)
    gate, free = Gate(), Recorder()
    await bench.make_topic(partitions=2)
    async with bench.living(gate.app, name="full", concurrency=4):
        await bench.publish(*[await bench.raw(job) for job in long_ones[:2]], partition=0)
        await bench.publish(*[await bench.raw(job) for job in long_ones[2:]], partition=1)
        for job in long_ones:
            await bench.until_status(job, "running")
        async with bench.living(free.app, name="free"):
            for partition, job in enumerate(behind):
                await bench.publish(await bench.raw(job), partition=partition)
            for job in behind:
                await bench.until_ended(job)
        # With a slot free again it joins again.
        gate.open.set()
        last = await bench.job()
        await bench.publish(await bench.raw(last))
        await bench.until_ended(last)
    assert len(free.runs) == 2
    assert await bench.value("SELECT count(*) FROM run_history WHERE status = 'succeeded'") == 7


async def test_what_came_before_the_first_worker_ever_joined_is_executed(bench: Bench) -> None:
    jobs = await bench.jobs(3)
    await bench.make_topic()
    await bench.publish(*[await bench.raw(job) for job in jobs])
    async with bench.living(app_of(nothing)):
        for job in jobs:
            await bench.until_ended(job)


async def test_a_killer_takes_no_innocents_along(bench: Bench) -> None:
    """What has lost a worker before is claimed alone."""
    innocents = await bench.jobs(20)
    killers = await bench.jobs(2)
    gate = Gate()
    await bench.make_topic()
    messages = [await bench.raw(job) for job in innocents]
    messages[7:7] = [await bench.raw(killer, attempt=2, losses=1) for killer in killers]
    await bench.publish(*messages)
    async with bench.living(gate.app, concurrency=50):
        for job in (*innocents, *killers):
            await bench.until_status(job, "running")
        gate.open.set()
        for job in (*innocents, *killers):
            await bench.until_ended(job)
    alone = await bench.fetch(
        "SELECT octet_length(outcomes) FROM claims JOIN runs ON claim_id = claims.id WHERE job_id = ANY ($1)",
        [killer.id for killer in killers],
    )
    assert alone == [(1,), (1,)]


async def test_a_loss_counts_from_attempt_to_attempt(bench: Bench) -> None:
    """A failure after a loss keeps it in mind, so that the next attempt is claimed alone too."""

    async def fail_again(context: Context) -> None:
        raise ValueError("again")

    job = await bench.job(retry_backoff="none")
    hands = await bench.hands(app_of(fail_again))
    await hands.work(await bench.message(job, attempt=2, losses=1))
    [message] = await bench.dispatch(job)
    assert (message.attempt, message.retries, message.losses) == (3, 1, 1)
