"""The worker process: builds everything once, lives until it is told to stop, and begins anew when taken for
dead.

A *life* has a name, a row in `workers` and connections that carry the name, so that the reaper can end
them. What outlives it: the app with its hooks, the status server and the counts.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

import asyncpg
import structlog

from mainspring.clock import Clock, SystemClock
from mainspring.kafka.topics import Topics, TopicSettings
from mainspring.postgres import connect, make_pool
from mainspring.schema.cluster import verify_shards
from mainspring.schema.errors import DatabaseUnavailable, KafkaUnavailable, TopicRefused
from mainspring.schema.states import Lane, dead_topic_of, topic_of
from mainspring.serving import Health, StatusServer
from mainspring.settings import WorkerSettings
from mainspring.worker.app import Handler, Mainspring
from mainspring.worker.claiming import DeclaredDead
from mainspring.worker.context import ContextServices
from mainspring.worker.heartbeat import Fitness
from mainspring.worker.intake import Intake, LaneReader
from mainspring.worker.life import Life
from mainspring.worker.metrics import Metrics
from mainspring.worker.watchdog import Watchdog

Pool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"

_GAUGES_SECONDS = 1.0
_TOPICS_SECONDS = 5.0
_BIRTH_SECONDS = 1.0
_LONGEST_ID = 40
_HANDLER_IDLE_SECONDS = 3600.0

log = structlog.get_logger()


@dataclass(frozen=True, kw_only=True)
class WorkerOptions:
    """What is particular to a worker process."""

    pool: str = "default"
    lanes: tuple[Lane, ...] = tuple(Lane)
    concurrency: int = 100
    grace_seconds: float = 30.0
    status_address: str = "127.0.0.1:0"
    transactions: int = 10
    """Connections for `context.transaction()`."""
    topics: TopicSettings = field(default_factory=TopicSettings)


def new_worker_id() -> str:
    """Unique for each life; at most 40 characters that every place it is shown in can take."""
    tail = f"-{os.getpid()}-{secrets.token_hex(4)}"
    host = re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname())
    return host[: _LONGEST_ID - len(tail)] + tail


class Worker:
    """One process; `run` returns after an orderly stop."""

    def __init__(
        self,
        settings: WorkerSettings,
        options: WorkerOptions,
        app: Mainspring,
        handlers: Mapping[str, Handler],
        clock: Clock | None = None,
    ) -> None:
        self._settings = settings
        self._options = options
        self._app = app
        self._handlers = handlers
        self._clock = clock or SystemClock()
        self._metrics = Metrics()
        self._life: Life | None = None
        self.status_address = ""

    async def run(self, stop: asyncio.Event, abort: asyncio.Event) -> None:
        """Execute runs until told to stop; `abort` hands back at once what is running."""
        await self._verify()
        server = StatusServer(
            self._options.status_address, health=self._health, registry=self._metrics.registry()
        )
        watchdog = Watchdog(self._clock, self._handler_of, self._blocked)
        self.status_address = await server.start()
        log.info("worker_started", status=self.status_address, handlers=sorted(self._handlers))
        try:
            async with asyncio.TaskGroup() as background:
                beside = [
                    background.create_task(self._make_topics(), name="topics"),
                    background.create_task(self._show(), name="gauges"),
                ]
                watchdog.start()
                await self._app.start()
                try:
                    await self._live(stop, abort)
                finally:
                    await self._app.stop()
                    for task in beside:
                        task.cancel()
        finally:
            watchdog.stop()
            await server.stop()
        log.info("worker_stopped")

    async def _live(self, stop: asyncio.Event, abort: asyncio.Event) -> None:
        while not stop.is_set():
            try:
                async with self._born() as life:
                    self._life = life
                    await life.run(stop, abort)
            except* DeclaredDead:
                log.warning("declared_dead", worker=self._life.worker_id if self._life else "")
            except* DatabaseUnavailable as group:
                log.warning("postgres_away", reason=str(group.exceptions[0]))
                await asyncio.sleep(_BIRTH_SECONDS)
            finally:
                self._life = None

    @asynccontextmanager
    async def _born(self) -> AsyncIterator[Life]:
        options, worker_id = self._options, new_worker_id()
        intake = Intake(
            LaneReader(self._settings.kafka, options.pool, lane, worker_id) for lane in options.lanes
        )
        async with AsyncExitStack() as stack:
            claims = await stack.enter_async_context(self._pool(worker_id, "claims", 4, 30.0, 10.0))
            reports = await stack.enter_async_context(self._pool(worker_id, "reports", 2, 30.0, 10.0))
            heart = await stack.enter_async_context(self._pool(worker_id, "heart", 1, 4.0, 4.0))
            own = await stack.enter_async_context(
                self._pool(worker_id, "handlers", options.transactions, 3600.0, _HANDLER_IDLE_SECONDS)
            )
            stack.push_async_callback(intake.close)
            yield Life(
                worker_id=worker_id,
                worker_pool=options.pool,
                handlers=self._handlers,
                concurrency=options.concurrency,
                grace_seconds=options.grace_seconds,
                run_retention=options.topics.run_retention.total_seconds(),
                intake=intake,
                claims_pool=claims,
                reports_pool=reports,
                heart_pool=heart,
                services=ContextServices(self._clock, own),
                metrics=self._metrics,
                clock=self._clock,
            )

    @asynccontextmanager
    async def _pool(
        self, worker_id: str, purpose: str, size: int, command: float, idle: float
    ) -> AsyncIterator[Pool]:
        pool = make_pool(
            self._settings.postgres,
            application=f"mainspring worker {worker_id} {purpose}"[:63],
            size=size,
            command_seconds=command,
            idle_seconds=idle,
        )
        try:
            async with pool:
                yield pool
                pool.terminate()  # a connection that hangs must not hold up the end of a life
        finally:
            pool.terminate()

    async def _verify(self) -> None:
        connection = await connect(self._settings.postgres, application="mainspring worker")
        try:
            await verify_shards(connection, self._settings.shards)
        finally:
            await connection.close()

    async def _make_topics(self) -> None:
        """Topics exist before the first message does, and are such that nothing is lost in them.

        What lies in one that is refused is executed all the same: its leaders put nothing more there.
        """
        topics = Topics(self._settings.kafka, self._options.topics)
        pool, lanes = self._options.pool, self._options.lanes
        # With what they were refused for.
        missing = dict.fromkeys([*(topic_of(pool, lane) for lane in lanes), dead_topic_of(pool)], "")
        while missing:
            for name, before in list(missing.items()):
                try:
                    [report] = await topics.ensure([name])
                except TopicRefused as error:
                    if error.reason != before:
                        log.error("topic_refused", topic=name, reason=error.reason)  # noqa: TRY400
                    missing[name] = error.reason
                except KafkaUnavailable as error:
                    log.warning("kafka_away", reason=str(error))
                    break
                else:
                    del missing[name]
                    if report.warnings:
                        log.warning("topic_warning", topic=name, warnings=report.warnings)
            if missing:
                await asyncio.sleep(_TOPICS_SECONDS)

    async def _show(self) -> None:
        """What is measured by looking."""
        while True:
            life = self._life
            if life is not None:
                life.show()
            await asyncio.sleep(_GAUGES_SECONDS)

    def _health(self) -> Health:
        life = self._life
        reason = "it has no life at the moment" if life is None else None
        if life is not None and life.heartbeat.fitness is not Fitness.FIT:
            reason = f"its heartbeat is {life.heartbeat.age:.0f} s old: postgres does not answer"
        return Health(alive=True, ready=reason is None, reasons=() if reason is None else (reason,))

    def _handler_of(self, task: asyncio.Task[object] | None) -> str | None:
        life = self._life
        return None if life is None else life.executor.handler_of(task)

    def _blocked(self, handler: str) -> None:
        self._metrics.blocked[handler] += 1
