"""What is over a limit comes back later as the same attempt: it holds up nobody and is not lost."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg

from tests.integration.scheduler.line import Line
from tests.integration.worker.apps import Gate
from tests.integration.worker.bench import Bench, runs_of
from tests.integration.worker.waiting import mend_when_cut


async def deferred(bench: Bench) -> list[Any]:
    return await bench.fetch("SELECT job_id, attempt, retries, losses, cause FROM timers ORDER BY job_id")


async def test_a_handler_runs_as_often_at_once_as_it_allows_and_the_rest_comes_later(bench: Bench) -> None:
    jobs = await bench.jobs(7)
    gate = Gate(max_concurrency=2)
    hands = await bench.hands(gate.app)
    started = await hands.start(*[await bench.message(job, attempt=2, retries=1, losses=1) for job in jobs])
    assert len(started.runs) == 2
    assert await deferred(bench) == [(job.id, 2, 1, 1, "deferred") for job in jobs[2:]]
    assert await bench.value("SELECT bool_and(due_at > now()) FROM timers")
    assert sum((await bench.tallies()).values()) == 7
    gate.open.set()
    await hands.finish()
    rounds = 1
    while await bench.count("timers"):
        rounds += 1
        await hands.work(*[message for job in jobs for message in await bench.dispatch(job)])
    assert (rounds, gate.most, len(gate.entered)) == (4, 2, 7)
    assert await bench.value("SELECT count(*) FROM run_history WHERE status = 'succeeded'") == 7


async def test_a_tenant_runs_as_often_at_once_as_it_may(bench: Bench) -> None:
    others = await bench.jobs(3)
    bench.tenant = await bench.value(
        "INSERT INTO tenants (name, maximum_running) VALUES ('small', 1) RETURNING id"
    )
    small = await bench.jobs(3)
    gate = Gate()
    await bench.make_topic()
    async with bench.living(gate.app):
        await bench.publish(*[await bench.raw(job) for job in (*small, *others)])
        for job in others:
            await bench.until_status(job, "running")
        # In order of arrival: the first has the tenant's place.
        assert await deferred(bench) == [(job.id, 1, 0, 0, "deferred") for job in small[1:]]
        gate.open.set()
        await bench.until_ended(small[0])
        await bench.publish(*[await bench.raw(job) for job in small[1:2]])
        await bench.until_ended(small[1])


async def test_a_copy_takes_no_place_of_its_handler(bench: Bench) -> None:
    one, other = [await bench.message(job) for job in await bench.jobs(2)]
    gate = Gate(max_concurrency=1)
    gate.open.set()
    hands = await bench.hands(gate.app)
    await hands.work(one)
    await hands.work(one)
    assert runs_of(await hands.claim(other)) == [(other.job.job_id, bench.now, 1)]


async def test_a_claim_whose_commit_answer_was_lost_holds_its_place_once(bench: Bench) -> None:
    copy, one, other, late = [await bench.message(job) for job in await bench.jobs(4)]
    gate = Gate(max_concurrency=2)
    gate.open.set()
    async with Line(bench.dsn) as line, asyncpg.create_pool(line.dsn, min_size=0, max_size=2) as pool:
        await (await bench.hands(gate.app)).work(copy)
        gate.open.clear()
        hands = await bench.hands(gate.app, pool=pool)
        line.lose_answer_to(b"COMMIT;")
        first = asyncio.create_task(hands.start(copy, one))
        await mend_when_cut(line)
        assert runs_of(await first) == [(one.job.job_id, bench.now, 1)]
        second = await hands.start(other, late)
        assert runs_of(second) == [(other.job.job_id, bench.now, 1)]
        assert [job_id for job_id, *_ in await deferred(bench)] == [late.job.job_id]
        gate.open.set()
        await hands.finish()
        pool.terminate()
