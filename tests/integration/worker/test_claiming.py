"""A claim decides who executes what, and nothing that was published is lost or taken twice by it."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any

import asyncpg
import pytest

from mainspring.schema.states import Outcome
from mainspring.worker.claiming import DeclaredDead
from tests.integration.scheduler.line import Line
from tests.integration.worker.apps import Recorder, app_of, nothing
from tests.integration.worker.bench import Bench, runs_of
from tests.integration.worker.waiting import mend_when_cut

PENDING, VOID = Outcome.PENDING, Outcome.VOID


APP = app_of(nothing)


async def test_a_claim_is_one_row_and_the_runs_it_has_won(bench: Bench) -> None:
    jobs = await bench.jobs(3)
    batch = await (await bench.hands(APP)).claim(*[await bench.message(job) for job in jobs])
    rows = await bench.fetch("SELECT job_id, claim_id, position FROM runs ORDER BY position")
    assert rows == [(job.id, batch.id, position) for position, job in enumerate(jobs)]
    assert await bench.outcomes(batch.id) == [PENDING] * 3
    assert runs_of(batch) == sorted((job.id, bench.now, 1) for job in jobs)


async def test_a_copy_in_the_same_batch_is_void_and_not_counted(bench: Bench) -> None:
    one, other = await bench.jobs(2)
    message, alone = await bench.message(one), await bench.message(other)
    batch = await (await bench.hands(APP)).claim(message, alone, message)
    assert await bench.outcomes(batch.id) == [PENDING, PENDING, VOID]
    assert runs_of(batch) == sorted((job.id, bench.now, 1) for job in (one, other))
    assert sum((await bench.tallies()).values()) == 2


async def test_a_copy_in_a_later_batch_is_void_and_not_counted(bench: Bench) -> None:
    one, other = await bench.jobs(2)
    hands = await bench.hands(APP)
    await hands.work(await bench.message(one))
    batch = await hands.claim(await bench.message(one), await bench.message(other))
    assert await bench.outcomes(batch.id) == [VOID, PENDING]
    assert runs_of(batch) == [(other.id, bench.now, 1)]
    assert sum((await bench.tallies()).values()) == 2


async def test_two_workers_with_the_same_messages_share_them(bench: Bench) -> None:
    jobs = await bench.jobs(50)
    messages = [await bench.message(job) for job in jobs]
    one, other = await bench.hands(APP), await bench.hands(APP)
    batches = await asyncio.gather(one.claim(*messages), other.claim(*messages))
    assert runs_of(*batches) == sorted((job.id, bench.now, 1) for job in jobs)
    assert sum((await bench.tallies()).values()) == 50


async def test_a_claim_of_nothing_but_copies_is_finished(bench: Bench) -> None:
    job = await bench.job()
    hands = await bench.hands(APP)
    await hands.work(await bench.message(job))
    batch = await hands.claim(await bench.message(job))
    assert batch.runs == []
    assert await bench.value("SELECT finished_at IS NOT NULL FROM claims WHERE id = $1", batch.id)


async def test_two_claims_that_wait_for_each_other_lose_nothing(
    bench: Bench, events: list[MutableMapping[str, Any]]
) -> None:
    first, between, last = [await bench.message(job) for job in await bench.jobs(3)]
    async with asyncpg.create_pool(bench.dsn, server_settings={"deadlock_timeout": "50ms"}) as pool:
        one, other = await bench.hands(APP, pool=pool), await bench.hands(APP, pool=pool)
        # `one` has `first` and waits; `other` has `last` and waits for `one`, who then wants `last`.
        a_run = (
            "INSERT INTO runs (job_id, scheduled_at, attempt, claim_id, position) VALUES ($1, $2, 1, 1, 0)"
        )
        async with bench.holding(a_run, between.job.job_id, bench.now):
            forth = asyncio.create_task(one.claim(first, between, last))
            await bench.until_blocked()
            back = asyncio.create_task(other.claim(last, first))
            await bench.until_blocked(2)
        batches = await asyncio.gather(forth, back)
    assert "deadlock detected" in str([each for each in events if each["event"] == "claim_waits"])
    assert runs_of(*batches) == sorted((each.job.job_id, bench.now, 1) for each in (first, between, last))
    assert sum((await bench.tallies()).values()) == 3


async def test_tallies_count_what_was_published_by_shard_and_second(bench: Bench) -> None:
    jobs = await bench.jobs(40)
    hands = await bench.hands(APP)
    on_time = [await bench.message(job) for job in jobs]
    late = [await bench.message(job, 1, late=3) for job in jobs[:10]]
    await asyncio.gather(hands.claim(*on_time, *late[:5]), hands.claim(*late, *on_time[:20]))
    expected: dict[Any, int] = {}
    for job in jobs:
        expected[job.shard, bench.now] = expected.get((job.shard, bench.now), 0) + 1
    for job in jobs[:10]:
        expected[job.shard, bench.at(-2)] = expected.get((job.shard, bench.at(-2)), 0) + 1
    assert await bench.tallies() == expected


async def test_a_worker_that_was_declared_dead_gets_no_claim(bench: Bench) -> None:
    job = await bench.job()
    hands = await bench.hands(APP)
    await bench.execute("UPDATE workers SET dead_at = now() WHERE id = $1", hands.worker_id)
    with pytest.raises(DeclaredDead):
        await hands.claim(await bench.message(job))
    assert (await bench.count("claims"), await bench.count("runs")) == (0, 0)


async def test_the_commit_answer_of_a_claim_is_lost_and_the_worker_retries(bench: Bench) -> None:
    taken, *jobs = await bench.jobs(4)
    await (await bench.hands(APP)).work(await bench.message(taken))
    async with Line(bench.dsn) as line, asyncpg.create_pool(line.dsn, min_size=0, max_size=2) as pool:
        hands = await bench.hands(APP, pool=pool)
        stopped = await bench.job()
        messages = [await bench.message(job) for job in (taken, *jobs, stopped)]
        await bench.registry.pause(1, stopped.id)
        line.lose_answer_to(b"COMMIT;")
        claim = asyncio.create_task(hands.claim(*messages))
        await mend_when_cut(line)
        batch = await claim
        pool.terminate()
    assert await bench.count("claims") == 2
    assert await bench.outcomes(batch.id) == [VOID, PENDING, PENDING, PENDING, Outcome.RECALLED]
    assert runs_of(batch) == sorted((job.id, bench.now, 1) for job in jobs)
    assert sum((await bench.tallies()).values()) == 5


async def test_a_worker_declared_dead_before_its_retry_has_no_claim_and_says_so(bench: Bench) -> None:
    """The commit did not happen, and by the time of the retry the worker is dead."""
    job = await bench.job()
    async with Line(bench.dsn) as line, asyncpg.create_pool(line.dsn, min_size=0, max_size=2) as pool:
        hands = await bench.hands(APP, pool=pool)
        line.cut()
        claim = asyncio.create_task(hands.claim(await bench.message(job)))
        await bench.execute("UPDATE workers SET dead_at = now() WHERE id = $1", hands.worker_id)
        await mend_when_cut(line)
        with pytest.raises(DeclaredDead):
            await claim
        pool.terminate()
    assert await bench.count("runs") == 0


async def test_a_replay_of_the_whole_topic_executes_nothing_twice(bench: Bench) -> None:
    recorder = Recorder()
    jobs = await bench.jobs(200)
    await bench.make_topic(partitions=2)
    messages = [await bench.raw(job) for job in jobs]
    await bench.publish(*messages[:100], partition=0)
    await bench.publish(*messages[100:], partition=1)

    async def all_written() -> bool:
        done: int = await bench.value("SELECT count(*) FROM run_history WHERE status = 'succeeded'")
        return done == 200

    async with bench.living(recorder.app, name="first"):
        await bench.until(all_written)
    await bench.rewind()
    marker = await bench.job()
    await bench.publish(await bench.raw(marker), partition=0)
    await bench.publish(await bench.raw(marker, 1), partition=1)
    async with bench.living(recorder.app, name="second"):
        await bench.until_ended(marker, 2)
    assert len(recorder.runs) == len(set(recorder.runs)) == 202
    assert sum((await bench.tallies()).values()) == 202


async def test_offsets_are_committed_after_the_claim_and_in_order(bench: Bench) -> None:
    slow = await bench.job(overlap="skip")
    quick = await bench.job()
    await bench.make_topic()
    await (await bench.hands(APP)).work(await bench.message(slow, 5))
    await bench.execute(
        'INSERT INTO "overlaps" (job_id, claim_id, position, scheduled_at, attempt)'
        " VALUES ($1, 1, 0, now(), 1)",
        slow.id,
    )
    async with bench.living(APP):
        lock = 'SELECT FROM "overlaps" WHERE job_id = $1 FOR UPDATE'
        async with bench.holding(lock, slow.id):
            await bench.publish(await bench.raw(slow))
            await bench.until_blocked()
            await bench.publish(await bench.raw(quick))
            await bench.until_ended(quick)
            assert await bench.committed() == -1001

        async def both_committed() -> bool:
            return await bench.committed() == 2

        await bench.until(both_committed)
        assert await bench.statuses(slow) == [(0, 1, "succeeded"), (5, 1, "succeeded")]
