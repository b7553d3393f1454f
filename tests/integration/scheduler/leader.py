"""A leader whose every step a test takes itself: the services of a process, without its loops and etcd.

The composition is that of mainspring.scheduler.process. A test polls, fires and settles by hand, so it
decides what happens between any two steps; what a leader does beside (loads) is waited for, not slept for.
"""

from __future__ import annotations

import asyncio
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Generator,
    Iterable,
    Iterator,
    Mapping,
)
from contextlib import contextmanager
from contextvars import Context
from itertools import cycle
from typing import Any, TypeVar, cast
from unittest.mock import patch

from mainspring.clock import Clock
from mainspring.etcd import LeaseKeeper
from mainspring.kafka.publisher import Load, Publisher, Refused, Why
from mainspring.kafka.topics import Topics
from mainspring.postgres import make_pool
from mainspring.scheduler.database_clock import DatabaseClock
from mainspring.scheduler.delivery import Delivery
from mainspring.scheduler.feed import Feed, WorldChanged
from mainspring.scheduler.firing import Firing
from mainspring.scheduler.leadership import Leadership
from mainspring.scheduler.loading import WINDOW, Loader
from mainspring.scheduler.marks import Marks
from mainspring.scheduler.metrics import Metrics
from mainspring.scheduler.reading import Reader
from mainspring.scheduler.rosters import JobRow
from mainspring.scheduler.settling import Settling
from mainspring.scheduler.takeover import Takeover
from mainspring.scheduler.terms import Term
from mainspring.settings import KafkaSettings, PostgresSettings
from tests.integration.scheduler.simulated import SHARDS, instant

_Result = TypeVar("_Result")
ALL = tuple(range(SHARDS))
PATIENCE = 60.0


class Keeper:
    """In the place of the lease: trusted as long as the test says so."""

    def __init__(self) -> None:
        self.trusted = True

    def is_trusted(self) -> bool:
        return self.trusted


class Beside(asyncio.TaskGroup):
    """What a leader does beside everything else, kept so that a test can wait for it or end it."""

    def __init__(self) -> None:
        super().__init__()
        self._under_way: set[asyncio.Task[Any]] = set()

    def create_task(
        self,
        coro: Generator[Any, None, _Result] | Coroutine[Any, Any, _Result],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> asyncio.Task[_Result]:
        task = asyncio.get_running_loop().create_task(coro, name=name, context=context)
        self._under_way.add(task)
        return task

    async def finish(self) -> None:
        """Wait for all of it, and raise what it raised."""
        async with asyncio.timeout(PATIENCE):
            while self._under_way:
                task = self._under_way.pop()
                await task

    async def end(self) -> None:
        for task in self._under_way:
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)
        self._under_way.clear()


class WatchedPublisher(Publisher):
    """The real producer; a test may look on in the middle of a bucket, or have partitions take nothing."""

    def __init__(self, settings: KafkaSettings, *, client_id: str) -> None:
        super().__init__(settings, client_id=client_id)
        self.before: Callable[[], Awaitable[None]] | None = None
        self.offline: set[tuple[str, int]] = set()
        """Partitions that take nothing, by topic and number: what would go there comes back as refused."""

    async def publish(
        self,
        loads: Iterable[Load],
        partitions: Mapping[str, int],
        avoid: Mapping[str, Collection[int]] | None = None,
    ) -> list[Refused]:
        if self.before is not None:
            await self.before()
        left_out = {topic: set((avoid or {}).get(topic, ())) for topic in partitions}
        turns = {topic: cycle(set(range(count)) - left_out[topic]) for topic, count in partitions.items()}
        refused, taken = list[Refused](), list[Load]()
        for load in loads:
            partition = next(turns[load.topic])
            if (load.topic, partition) in self.offline:
                values = [load.prefix + body for body in load.bodies]
                refused += [Refused(load.topic, partition, each, Why.PARTITION, "offline") for each in values]
            else:
                taken.append(load)
        for topic, partition in self.offline:
            if topic in {load.topic for load in taken}:
                left_out[topic].add(partition)
        return refused + await super().publish(taken, partitions, left_out)


class Leader:
    """One process, by name; `lead`, then `poll`, `fire` and `settle`, or all three with `live`."""

    def __init__(self, name: str, dsn: str, kafka: KafkaSettings, topics: Topics, machine: Clock) -> None:
        self.name = name
        self.keeper = Keeper()
        self.beside = Beside()
        self.clock = DatabaseClock(machine)
        self._machine = machine
        settings = PostgresSettings(dsn=dsn)
        self.pools = [
            make_pool(settings, application=f"{name} {purpose}", size=4, command_seconds=20.0)
            for purpose in ("marks", "reading")
        ]
        marks_pool, reading_pool = self.pools
        self.ended: list[tuple[int, str]] = []
        self.marks = Marks(marks_pool, name)
        self.leadership = Leadership(self.marks, lambda term, reason: self.ended.append((term.shard, reason)))
        self.settling = Settling(self.marks, self.leadership)
        self.feed = Feed(reading_pool, self.leadership.terms, self.settling.discard)
        self.loader = Loader(
            reading_pool, self.marks, self.feed, self.leadership.terms, self.beside, self.settling.discard
        )
        self.feed.loader = self.loader
        self.publisher = WatchedPublisher(kafka, client_id=name)
        self.delivery = Delivery(self.publisher, topics, machine)
        self.metrics = Metrics()
        self.firing = Firing(
            self.clock, self.leadership, self.feed, self.delivery, self.settling, self.metrics
        )
        self.takeover = Takeover(
            self.marks, self.leadership, self.loader, self.firing, self.settling, self.clock, self.beside
        )

    @property
    def terms(self) -> Mapping[int, Term]:
        return self.leadership.terms

    def hear(self, second: float) -> None:
        """An answer of the database's clock."""
        moment = self._machine.monotonic()
        self.clock.add(asked=moment, answered=moment, database=instant(second))

    async def lead(self, shards: Collection[int] = ALL) -> None:
        """Take shards and load them."""
        await self.begin(shards)
        await self.beside.finish()

    async def begin(self, shards: Collection[int] = ALL) -> None:
        """Take shards; they are loaded beside."""
        await self.takeover.begin(shards, cast("LeaseKeeper", self.keeper))

    async def poll(self) -> None:
        """Look into the change feed, and load what it asks for; in another world, end every term."""
        try:
            await self.feed.run_once()
        except WorldChanged:
            self.leadership.end(list(self.terms), "transaction_ids")
            self.feed.forget()
        await self.beside.finish()

    async def extend(self) -> None:
        """Let the window reach ten minutes from now."""
        await self.loader.extend(int(self.clock.now()) + WINDOW)

    async def fire(self) -> None:
        """Publish all that is due now."""
        async with asyncio.timeout(PATIENCE):
            while await self.firing.run_once() is not None:
                pass

    async def settle(self) -> None:
        assert await self.settling.run_once()

    async def live(self) -> None:
        """What a process does each second."""
        await self.poll()
        await self.fire()
        await self.settle()

    async def die(self) -> None:
        """Nothing more is written, nothing more is sent."""
        await self.beside.end()
        for pool in self.pools:
            pool.terminate()


async def until(holds: Callable[[], bool]) -> None:
    """Wait for a fact."""
    async with asyncio.timeout(PATIENCE):
        while True:
            if holds():
                return
            await asyncio.sleep(0.001)


@contextmanager
def during_load(happens: Callable[[], Awaitable[None]]) -> Iterator[None]:
    """Let something happen once inside the next load: its snapshot is taken, its members are not yet read."""
    original, happened = Reader.members, False

    async def members(reader: Reader, cadence_ids: Collection[int]) -> AsyncIterator[list[JobRow]]:
        nonlocal happened
        if not happened:
            happened = True
            await happens()
        async for rows in original(reader, cadence_ids):
            yield rows

    with patch.object(Reader, "members", members):
        yield
    assert happened
