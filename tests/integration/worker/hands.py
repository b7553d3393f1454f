"""A worker in two forms: its parts, moved by the test (`Hands`), and a whole life (`Living`)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from mainspring.clock import Clock, SystemClock
from mainspring.postgres import make_pool
from mainspring.schema.messages import Message
from mainspring.schema.states import Lane
from mainspring.settings import KafkaSettings, PostgresSettings
from mainspring.worker import Mainspring
from mainspring.worker.batches import Batch
from mainspring.worker.claiming import Claimer
from mainspring.worker.context import ContextServices
from mainspring.worker.executing import Executor
from mainspring.worker.intake import Intake, LaneReader
from mainspring.worker.life import Life
from mainspring.worker.limits import Limits
from mainspring.worker.metrics import Metrics
from mainspring.worker.reporting import Reported, Reporter

ENDING = 60.0
"""Seconds in which a life ends once it is told to."""


class Hands:
    """Claimer, executor and reporter of one worker, which do nothing by themselves."""

    def __init__(
        self,
        pool: Any,
        worker_id: str,
        worker_pool: str,
        app: Mainspring,
        *,
        concurrency: int = 100,
        clock: Clock | None = None,
    ) -> None:
        clock = clock or SystemClock()
        self.worker_id = worker_id
        self.metrics = Metrics()
        handlers = app.handlers
        limited = {name: each.max_concurrency for name, each in handlers.items() if each.max_concurrency}
        self.limits = Limits(limited, clock)
        self.claimer = Claimer(
            pool,
            worker_id=worker_id,
            worker_pool=worker_pool,
            handlers=handlers,
            limits=self.limits,
            metrics=self.metrics,
            clock=clock,
        )
        self.reporter = Reporter(pool, worker_id=worker_id, worker_pool=worker_pool, clock=clock)
        self.executor = Executor(
            handlers,
            ContextServices(clock, pool),
            concurrency=concurrency,
            limits=self.limits,
            metrics=self.metrics,
            clock=clock,
            on_end=self.reporter.wake.set,
        )

    async def claim(self, *messages: Message) -> Batch:
        return await self.claimer.claim(messages)

    async def start(self, *messages: Message) -> Batch:
        """Claim, and begin to execute."""
        batch = await self.claim(*messages)
        self.reporter.add(batch)
        self.executor.start(batch)
        return batch

    async def finish(self) -> Reported:
        """Wait until everything has ended, and write it down."""
        await self.until_idle()
        return await self.reporter.run_once(hurry=True)

    async def until_idle(self) -> None:
        async with asyncio.timeout(ENDING):
            while self.executor.in_flight:
                self.executor.changed.clear()
                await self.executor.changed.wait()

    async def work(self, *messages: Message) -> Batch:
        """All of it: claimed, executed, written down."""
        batch = await self.start(*messages)
        await self.finish()
        return batch

    async def close(self) -> None:
        self.executor.close()


@dataclass(slots=True)
class Living:
    """A life under way."""

    life: Life
    metrics: Metrics
    task: asyncio.Task[None]
    stop: asyncio.Event
    abort: asyncio.Event

    async def ended(self) -> None:
        """Wait until it is over; raises what ended it."""
        async with asyncio.timeout(ENDING):
            await self.task


@asynccontextmanager
async def start_life(
    dsn: str,
    kafka: KafkaSettings,
    worker_pool: str,
    app: Mainspring,
    *,
    name: str = "alive",
    concurrency: int = 10,
    lanes: Sequence[Lane] = (Lane.NORMAL,),
    grace: float = 60.0,
    run_retention: timedelta = timedelta(days=30),
) -> AsyncIterator[Living]:
    """A life of its own name, with pools and consumers as the process gives them to it."""
    clock, metrics = SystemClock(), Metrics()
    stop, abort = asyncio.Event(), asyncio.Event()
    async with AsyncExitStack() as stack:
        claims, reports, heart, own = [
            await stack.enter_async_context(_pool(dsn, f"{name} {purpose}", size))
            for purpose, size in (("claims", 4), ("reports", 2), ("heart", 1), ("handlers", 4))
        ]
        intake = Intake([LaneReader(kafka, worker_pool, lane, name) for lane in lanes])
        stack.push_async_callback(intake.close)
        life = Life(
            worker_id=name,
            worker_pool=worker_pool,
            handlers=app.handlers,
            concurrency=concurrency,
            grace_seconds=grace,
            run_retention=run_retention.total_seconds(),
            intake=intake,
            claims_pool=claims,
            reports_pool=reports,
            heart_pool=heart,
            services=ContextServices(clock, own),
            metrics=metrics,
            clock=clock,
        )
        living = Living(life, metrics, asyncio.create_task(life.run(stop, abort), name=name), stop, abort)
        try:
            yield living
        except BaseException:
            living.task.cancel()
            await asyncio.wait([living.task])
            raise
        stop.set()
        abort.set()
        if not living.task.done():
            await living.ended()


@asynccontextmanager
async def _pool(dsn: str, application: str, size: int) -> AsyncIterator[Any]:
    pool = make_pool(PostgresSettings(dsn=dsn), application=application, size=size, command_seconds=30.0)
    try:
        async with pool:
            yield pool
            pool.terminate()
    finally:
        pool.terminate()
