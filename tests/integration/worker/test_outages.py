"""While Postgres is out of reach a worker keeps what it holds: nothing is lost or done twice by it."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from tests.integration.scheduler.line import Line
from tests.integration.worker.apps import Gate, Recorder
from tests.integration.worker.bench import Bench


async def test_what_runs_and_what_arrives_while_postgres_is_away_is_in_the_books_afterwards(
    bench: Bench,
) -> None:
    running, behind = await bench.jobs(2)
    gate = Gate()
    await bench.make_topic()
    async with Line(bench.dsn) as line, bench.living(gate.app, dsn=line.dsn) as living:
        await bench.publish(await bench.raw(running))
        await bench.until_status(running, "running")
        line.cut()
        gate.open.set()
        await bench.publish(await bench.raw(behind))

        async def ended_unwritten() -> bool:
            return not living.life.executor.running and line.refused > 0

        await bench.until(ended_unwritten)
        assert await bench.statuses(running) == [(0, 1, "running")]
        assert await bench.committed() in (-1001, 1)
        line.mend()
        for job in (running, behind):
            await bench.until_status(job, "succeeded")
        living.stop.set()
        await living.ended()
    assert len(gate.entered) == len(set(gate.entered)) == 2
    assert sum((await bench.tallies()).values()) == 2


async def test_a_life_whose_commit_answers_are_lost_executes_nothing_twice(bench: Bench) -> None:
    """Each answer that is lost ends every connection of the worker: claims, flushes and heartbeat."""
    jobs = await bench.jobs(30)
    recorder = Recorder()
    await bench.make_topic()
    async with Line(bench.dsn) as line, bench.living(recorder.app, dsn=line.dsn) as living:
        for start in range(0, 30, 10):
            line.lose_answer_to(b"COMMIT;")
            before = line.refused
            await bench.publish(*[await bench.raw(job) for job in jobs[start : start + 10]])

            async def refused(before: int = before) -> bool:
                return line.refused > before

            await bench.until(refused)
            line.mend()
        for job in jobs:
            await bench.until_status(job, "succeeded")
        living.stop.set()
        await living.ended()
    assert len(recorder.runs) == len(set(recorder.runs)) == 30
    assert sum((await bench.tallies()).values()) == 30


async def test_a_stop_while_postgres_is_away_ends_and_what_was_not_claimed_comes_again(
    bench: Bench, events: list[MutableMapping[str, Any]]
) -> None:
    job = await bench.job(overlap="skip")
    await bench.execute('INSERT INTO "overlaps" VALUES ($1, 1, 0, now(), 1)', job.id)
    recorder = Recorder()
    await bench.make_topic()
    # Cut in the middle of its claim: a worker whose heartbeat has failed for a while does not begin any.
    async with (
        Line(bench.dsn) as line,
        bench.living(recorder.app, dsn=line.dsn, grace=0.5) as living,
        bench.holding('SELECT FROM "overlaps" WHERE job_id = $1 FOR UPDATE', job.id),
    ):
        await bench.publish(await bench.raw(job))
        await bench.until_blocked()
        line.cut()

        async def it_tries_again() -> bool:
            return any(each["event"] == "claim_waits" for each in events)

        await bench.until(it_tries_again)
        living.stop.set()
        await living.ended()
    assert await bench.committed() == -1001
    async with bench.living(recorder.app, name="next"):
        await bench.until_status(job, "succeeded")
    assert len(recorder.runs) == 1
