"""The scheduler process: builds everything once, runs it side by side, and stops it in order.

    signal ─▶ stop: firing finishes its bucket, settling writes what is left, the shards are handed back by
              revoking the lease, so that others take them at once

Each service is a loop of its own; what it expects to go wrong it logs and outlives. A fault that nobody
expected ends the terms of this process, which are then taken anew from what Postgres knows: a bucket
expanded and not published must not be forgotten.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, NamedTuple, NoReturn

import asyncpg
import structlog

from mainspring.clock import Clock, SystemClock
from mainspring.etcd import EtcdClient
from mainspring.kafka.publisher import Publisher
from mainspring.kafka.topics import Topics, TopicSettings
from mainspring.postgres import connect, database_errors, make_pool
from mainspring.scheduler.database_clock import ALARM, REFUSAL, DatabaseClock
from mainspring.scheduler.delivery import Delivery
from mainspring.scheduler.duties import Duties, Duty
from mainspring.scheduler.duties.bookkeeper import Bookkeeper, KafkaProgress
from mainspring.scheduler.duties.janitor import Janitor
from mainspring.scheduler.duties.reaper import Reaper
from mainspring.scheduler.duties.relay import DeadLetterRelay
from mainspring.scheduler.duties.resumer import Resumer
from mainspring.scheduler.election import Election
from mainspring.scheduler.feed import Feed, WorldChanged
from mainspring.scheduler.firing import Firing
from mainspring.scheduler.leadership import Leadership
from mainspring.scheduler.loading import WINDOW, Loader
from mainspring.scheduler.marks import Marks
from mainspring.scheduler.metrics import Metrics
from mainspring.scheduler.settling import Settling
from mainspring.scheduler.takeover import Takeover
from mainspring.scheduler.terms import Term
from mainspring.schema.cluster import verify_shards
from mainspring.schema.errors import DatabaseUnavailable, MainspringError
from mainspring.schema.queries import query
from mainspring.schema.states import Lane, topic_of
from mainspring.serving import Health, StatusServer
from mainspring.settings import Settings

FEED_SECONDS = 0.5
HORIZON_SECONDS = 60.0
TOPICS_SECONDS = 2.0
STOP_SECONDS = 10.0
"""How long a stop waits for the bucket in hand."""
AWAY_SECONDS = 10.0
"""Postgres silent for longer than this: the process takes no more shards."""

log = structlog.get_logger()


@dataclass(frozen=True, kw_only=True)
class SchedulerOptions:
    """What is particular to a scheduler process."""

    identity: str = field(default_factory=lambda: new_identity())
    status_address: str = "127.0.0.1:0"
    etcd_prefix: str = "/mainspring/"
    lease: timedelta = timedelta(seconds=3)
    topics: TopicSettings = field(default_factory=TopicSettings)


def new_identity() -> str:
    """Unique for each start: a process that comes back is somebody else."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"


class Scheduler:
    """One process; `run` returns after an orderly stop."""

    def __init__(self, settings: Settings, options: SchedulerOptions, clock: Clock | None = None) -> None:
        self._settings = settings
        self._options = options
        self._machine = clock or SystemClock()
        self._clock = DatabaseClock(self._machine)
        self._metrics = Metrics()
        self._heard = self._machine.monotonic()
        self._foreign = False
        self.status_address = ""

    async def run(self, stop: asyncio.Event) -> None:
        """Lead shards until told to stop."""
        shards = await self._verify()
        # A leader stopped between two statements would hold the rows of its shards against its successor.
        marks_pool = self._pool("marks", size=2, command_seconds=5.0, idle_seconds=2.0)
        reading_pool = self._pool("reading", size=6, command_seconds=30.0, idle_seconds=30.0)
        # Of their own: a sweep that takes long must not keep the feed waiting for a connection.
        duties_pool = self._pool("duties", size=4, command_seconds=60.0, idle_seconds=30.0)
        server = StatusServer(
            self._options.status_address, health=self._health, registry=self._metrics.registry
        )
        self.status_address = await server.start()
        log.info("scheduler_started", identity=self._options.identity, status=self.status_address)
        try:
            async with EtcdClient(self._settings.etcd) as client:
                await self._lead(client, _Pools(marks_pool, reading_pool, duties_pool), shards, stop)
        finally:
            await server.stop()
            for pool in (marks_pool, reading_pool, duties_pool):
                pool.terminate()
        log.info("scheduler_stopped", identity=self._options.identity)

    async def _lead(self, client: EtcdClient, pools: _Pools, shards: int, stop: asyncio.Event) -> None:
        publisher = Publisher(self._settings.kafka, client_id=self._options.identity)
        letters = Publisher(self._settings.kafka, client_id=f"{self._options.identity}-letters")
        try:
            async with pools.marks, pools.reading, pools.duties, asyncio.TaskGroup() as background:
                duties = self._duties(pools.duties, letters, shards)
                parts = _Parts.build(
                    self,
                    client,
                    publisher,
                    pools,
                    Duties(duties, background, self._metrics.duty_done),
                    background,
                    shards,
                )
                await self._first_sample(pools.reading)
                async with asyncio.TaskGroup() as services:
                    for name, service in parts.services(self, stop):
                        services.create_task(service, name=name)
                await parts.election.resign()
                _end_background()
        except* _Stopped:
            await publisher.close()
            await letters.close()

    def _duties(self, pool: asyncpg.Pool[asyncpg.Record], letters: Publisher, shards: int) -> dict[str, Duty]:
        topics = Topics(self._settings.kafka, self._options.topics)
        return {
            "reaper": Reaper(pool, self._machine),
            "bookkeeper": Bookkeeper(pool, KafkaProgress(self._settings.kafka)),
            "janitor": Janitor(pool),
            "relay": DeadLetterRelay(pool, letters, topics, self._machine),
            "resumer": Resumer(pool, shards),
        }

    async def _verify(self) -> int:
        connection = await connect(self._settings.postgres, application="mainspring scheduler")
        try:
            return await verify_shards(connection, self._settings.shards)
        finally:
            await connection.close()

    def _pool(
        self, purpose: str, *, size: int, command_seconds: float, idle_seconds: float
    ) -> asyncpg.Pool[asyncpg.Record]:
        return make_pool(
            self._settings.postgres,
            application=f"mainspring scheduler {purpose} {self._options.identity}"[:63],
            size=size,
            command_seconds=command_seconds,
            idle_seconds=idle_seconds,
        )

    def unfit(self) -> str | None:
        """Why this process cannot lead; None when it can."""
        if not self._clock.known:
            return "the database's clock is not known yet"
        if self._machine.monotonic() - self._heard > AWAY_SECONDS:
            return "postgres does not answer"
        if self._clock.offset().beyond(REFUSAL):
            return f"the clock is more than {REFUSAL.total_seconds():g} s off the database's"
        if self._foreign:
            return "rows carry transaction ids from the future; run `mainspring rebase`"
        return None

    async def sample_clock(self, pool: asyncpg.Pool[asyncpg.Record]) -> None:
        """Ask the database for its time."""
        with database_errors():
            async with pool.acquire() as connection:
                asked = self._machine.monotonic()
                database = await connection.fetchval(query("database_time"))
                answered = self._machine.monotonic()
        self._clock.add(asked=asked, answered=answered, database=database)
        self._heard = answered
        offset = self._clock.offset()
        self._metrics.clock_offset(offset.low, offset.high)
        if offset.beyond(ALARM):
            log.warning("clock_offset", low=round(offset.low, 3), high=round(offset.high, 3))

    async def _first_sample(self, pool: asyncpg.Pool[asyncpg.Record]) -> None:
        try:
            await self.sample_clock(pool)
        except DatabaseUnavailable as error:
            log.warning("postgres_away", reason=str(error))

    async def look_for_the_future(self, marks: Marks) -> None:
        self._foreign = await marks.is_from_the_future()

    def _health(self) -> Health:
        reason = self.unfit()
        return Health(alive=True, ready=reason is None, reasons=() if reason is None else (reason,))

    @property
    def machine(self) -> Clock:
        return self._machine

    @property
    def clock(self) -> DatabaseClock:
        return self._clock

    @property
    def metrics(self) -> Metrics:
        return self._metrics

    @property
    def options(self) -> SchedulerOptions:
        return self._options

    @property
    def settings(self) -> Settings:
        return self._settings


class _Stopped(Exception):
    """Ends the background work when everything else has stopped."""


def _end_background() -> NoReturn:
    raise _Stopped


class _Pools(NamedTuple):
    """Connections by what they are for."""

    marks: asyncpg.Pool[asyncpg.Record]
    reading: asyncpg.Pool[asyncpg.Record]
    duties: asyncpg.Pool[asyncpg.Record]


@dataclass(slots=True)
class _Parts:
    """The services of one process, wired together."""

    pool: asyncpg.Pool[asyncpg.Record]
    marks: Marks
    leadership: Leadership
    feed: Feed
    loader: Loader
    settling: Settling
    firing: Firing
    election: Election
    topics: Topics
    warned: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def build(
        cls,
        process: Scheduler,
        client: EtcdClient,
        publisher: Publisher,
        pools: _Pools,
        duties: Duties,
        background: asyncio.TaskGroup,
        shards: int,
    ) -> _Parts:
        options, metrics, pool = process.options, process.metrics, pools.reading
        marks = Marks(pools.marks, options.identity)

        def ended(_: Term, reason: str) -> None:
            metrics.step_downs.labels(reason).inc()

        leadership = Leadership(marks, ended)
        settling = Settling(marks, leadership)
        feed = Feed(pool, leadership.terms, settling.discard)
        loader = Loader(pool, marks, feed, leadership.terms, background, settling.discard)
        feed.loader = loader
        topics = Topics(process.settings.kafka, options.topics)
        delivery = Delivery(publisher, topics, process.machine)
        firing = Firing(process.clock, leadership, feed, delivery, settling, metrics)
        takeover = Takeover(marks, leadership, loader, firing, settling, process.clock, background)
        election = Election(
            client,
            process.settings.etcd,
            prefix=options.etcd_prefix,
            identity=options.identity,
            shards=shards,
            leadership=leadership,
            takeover=takeover,
            duties=duties,
            unfit=process.unfit,
            clock=process.machine,
            lease=options.lease,
        )
        return cls(pool, marks, leadership, feed, loader, settling, firing, election, topics)

    def services(
        self, process: Scheduler, stop: asyncio.Event
    ) -> list[tuple[str, Coroutine[Any, Any, None]]]:
        return [
            ("feed", self._repeat(stop, FEED_SECONDS, lambda: self._feed_once(process))),
            ("horizon", self._repeat(stop, HORIZON_SECONDS, lambda: self._horizon_once(process))),
            ("topics", self._repeat(stop, TOPICS_SECONDS, self._topics_once)),
            ("firing", self._guard(stop, self.firing.run)),
            ("settling", self._guard(stop, self.settling.run)),
            ("election", self._guard(stop, self.election.run)),
            ("stop", self._wake_all(stop)),
        ]

    async def _feed_once(self, process: Scheduler) -> None:
        began = process.clock.monotonic()
        await process.sample_clock(self.pool)
        try:
            await self.feed.run_once()
        except WorldChanged as error:
            log.warning("world_changed", reason=str(error))
            self.leadership.end(list(self.leadership.terms), "transaction_ids")
            self.feed.forget()
            await process.look_for_the_future(self.marks)
        terms = self.leadership.terms
        if any(term.has_owed for term in terms.values()):
            self.firing.wake.set()
        process.metrics.feed_poll.observe(process.clock.monotonic() - began)
        process.metrics.terms(terms, process.clock.now())
        if self.feed.applied is not None:
            process.metrics.feed_delay.set(process.clock.now() - self.feed.applied.at.timestamp())

    async def _horizon_once(self, process: Scheduler) -> None:
        await process.look_for_the_future(self.marks)
        if process.clock.known:
            began = process.clock.monotonic()
            await self.loader.extend(int(process.clock.now()) + WINDOW)
            process.metrics.horizon_load.observe(process.clock.monotonic() - began)
            process.metrics.set_aside.set(self.loader.set_aside)

    async def _topics_once(self) -> None:
        """Make and look after the topics before a bucket needs them: asking would cost the hot second."""
        pools = {pool for term in self.leadership.terms.values() for pool in term.pools}
        names = [topic_of(pool, lane) for pool in sorted(pools) for lane in Lane]
        for report in await self.topics.ensure(names):
            if report.created:
                log.info("topic_created", topic=report.name, partitions=report.partitions)
            if report.warnings != self.warned.get(report.name, ()):
                log.warning("topic_warning", topic=report.name, warnings=report.warnings)
                self.warned[report.name] = report.warnings

    async def _repeat(
        self, stop: asyncio.Event, pause: float, once: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        while not stop.is_set():
            try:
                await once()
            except DatabaseUnavailable as error:
                log.warning("postgres_away", reason=str(error))
            except MainspringError as error:
                log.warning("service_failed", reason=str(error))
            except Exception:
                log.exception("service_fault")
            await _sleep(stop, min(pause, 1.0) if not self.leadership.terms else pause)

    async def _guard(
        self, stop: asyncio.Event, run: Callable[[asyncio.Event], Coroutine[Any, Any, None]]
    ) -> None:
        """Run a loop; a fault that it did not expect ends the terms, which are then taken anew."""
        while not stop.is_set():
            try:
                await run(stop)
            except Exception:
                log.exception("service_fault")
                self.leadership.end(list(self.leadership.terms), "fault")
                await _sleep(stop, 1.0)

    async def _wake_all(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self.firing.hurry(STOP_SECONDS)
        self.settling.wake.set()
        self.election.changed.set()


async def _sleep(stop: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        return
