"""What a run logs can be read while it goes on, and stands as it was when it has ended."""

from __future__ import annotations

import asyncio

from mainspring.schema.states import LogLevel
from mainspring.worker import Context
from mainspring.worker.context import PROGRESS_LINE
from tests.integration.worker.apps import app_of
from tests.integration.worker.bench import Bench


class Steps:
    """A handler that goes as far as it is let."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.go_on = asyncio.Event()
        self.app = app_of(self._work)

    async def _work(self, context: Context) -> None:
        context.log("began")
        context.progress(0.5)
        self.reached.set()
        await self.go_on.wait()
        context.log("ended")
        context.progress(1.0)


async def read(bench: Bench, job_id: int) -> list[tuple[int, LogLevel, str]]:
    lines = await bench.runs.logs(1, job_id, bench.now, 1)
    return [(each.line, each.level, each.message) for each in lines]


async def test_a_life_tells_what_a_run_has_logged_while_it_goes_on(bench: Bench) -> None:
    job, steps = await bench.job(), Steps()
    await bench.make_topic()
    async with bench.living(steps.app) as living:
        await bench.publish(await bench.raw(job))
        await bench.until_status(job, "running")

        async def told() -> bool:
            return await bench.count("run_logs") == 2

        await bench.until(told)
        before = [(0, LogLevel.INFO, "began"), (PROGRESS_LINE, LogLevel.PROGRESS, "50%")]
        assert await read(bench, job.id) == before
        assert await bench.statuses(job) == [(0, 1, "running")]
        steps.go_on.set()
        await bench.until_ended(job)
        living.stop.set()
        await living.ended()
    assert await read(bench, job.id) == [
        (0, LogLevel.INFO, "began"),
        (1, LogLevel.INFO, "ended"),
        (PROGRESS_LINE, LogLevel.PROGRESS, "100%"),
    ]


async def test_older_news_does_not_undo_the_end_and_a_reaped_claim_tells_nothing(bench: Bench) -> None:
    job, steps = await bench.job(), Steps()
    hands = await bench.hands(steps.app)
    batch = await hands.start(await bench.message(job))
    await steps.reached.wait()
    news = hands.executor.news()
    assert [(each.number, each.line.message) for each in news] == [(0, "began"), (PROGRESS_LINE, "50%")]
    assert hands.executor.news() == []
    await bench.execute("UPDATE claims SET reaped_at = now() WHERE id = $1", batch.id)
    await hands.reporter.tell(news)
    assert await bench.count("run_logs") == 0
    await bench.execute("UPDATE claims SET reaped_at = NULL WHERE id = $1", batch.id)
    steps.go_on.set()
    await hands.finish()
    ended = await read(bench, job.id)
    await hands.reporter.tell(news)
    assert await read(bench, job.id) == ended
    assert ended[-1] == (PROGRESS_LINE, LogLevel.PROGRESS, "100%")
