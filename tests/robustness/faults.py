"""Faults: what is broken, one after another, drawn like cards: each kind comes once before any comes again.

Between two faults there is time to settle, and enough must have run in it: a system that does nothing
breaks nothing. A step of the clock is no fault here: no process takes an offset from outside.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from mainspring.local.member import Member
from mainspring.schema.states import Lane, topic_of
from tests.acceptance.processes import MainspringProcess
from tests.acceptance.waiting import GENEROUS_SECONDS
from tests.robustness.world import World

LINES = 200
"""What handlers must have written between two faults: two lines for each run."""


KINDS = (
    "scheduler.kill",
    "scheduler.stop",
    "scheduler.terminate",
    "worker.kill",
    "worker.stop",
    "worker.terminate",
    "postgres.kill",
    "postgres.pause",
    "postgres.restart",
    "etcd.kill",
    "etcd.pause",
    "broker.kill",
    "broker.pause",
    "network.cut",
    "network.silence",
    "records.delete",
)


class Invalid(Exception):
    """Too little was going on: this run proves nothing."""


@dataclass(slots=True)
class Fault:
    """What was broken, and for how long."""

    kind: str
    target: str
    begin: float
    end: float = 0.0
    lines: int = 0
    """What handlers wrote since the last one."""

    @property
    def part(self) -> str:
        return self.kind.partition(".")[0]


@dataclass(slots=True)
class Faults:
    """Draws faults and makes them."""

    world: World
    dice: random.Random
    settle: tuple[float, float]
    longest: float
    kinds: tuple[str, ...] = ()
    """In this order; none of them named: all, shuffled."""
    done: list[Fault] = field(default_factory=list)
    _deck: list[str] = field(default_factory=list)
    _lines: int = 0

    async def next(self) -> Fault:
        """Let things settle, break something, and mend it."""
        await asyncio.sleep(self.dice.uniform(*self.settle))
        lines = await self._load()
        fault = Fault(self._draw(), "", time.time(), lines=lines)
        self.done.append(fault)
        await self._deeds()[fault.kind](fault)
        fault.end = time.time()
        self._lines = len(self.world.journal.lines)
        return fault

    def _draw(self) -> str:
        if not self._deck:
            self._deck = list(self.kinds) or self.dice.sample(KINDS, len(KINDS))
        return self._deck.pop(0)

    def _deeds(self) -> dict[str, Callable[[Fault], Awaitable[None]]]:
        return {
            "scheduler.kill": lambda fault: self._replace("scheduler", fault, gently=False),
            "scheduler.stop": lambda fault: self._stop("scheduler", fault),
            "scheduler.terminate": lambda fault: self._replace("scheduler", fault, gently=True),
            "worker.kill": lambda fault: self._replace("worker", fault, gently=False),
            "worker.stop": lambda fault: self._stop("worker", fault),
            "worker.terminate": lambda fault: self._replace("worker", fault, gently=True),
            "postgres.kill": lambda fault: self._kill(self._postgres, fault),
            "postgres.pause": lambda fault: self._pause(self._postgres, fault),
            "postgres.restart": lambda fault: self._restart(self._postgres, fault),
            "etcd.kill": lambda fault: self._kill(self.dice.choice(self.world.stack.etcd), fault),
            "etcd.pause": lambda fault: self._pause(self.dice.choice(self.world.stack.etcd), fault),
            "broker.kill": lambda fault: self._kill(self.dice.choice(self.world.stack.brokers), fault),
            "broker.pause": lambda fault: self._pause(self.dice.choice(self.world.stack.brokers), fault),
            "network.cut": self._cut,
            "network.silence": self._silence,
            "records.delete": self._delete_records,
        }

    @property
    def _postgres(self) -> Member:
        assert self.world.stack.postgres is not None
        return self.world.stack.postgres

    async def _load(self) -> int:
        """What has been written since the last fault, once it is enough."""
        deadline = time.monotonic() + GENEROUS_SECONDS
        while (lines := len(self.world.journal.lines) - self._lines) < LINES:
            if time.monotonic() > deadline:
                raise Invalid(f"handlers wrote {lines} lines since the last fault, and {LINES} are needed")
            await asyncio.sleep(0.1)
        return lines

    async def _wait(self) -> None:
        await asyncio.sleep(self.dice.uniform(0.3, self.longest))

    async def _replace(self, kind: str, fault: Fault, *, gently: bool) -> None:
        victim = self._victim(kind, fault)
        launch = self.world.launch(kind, behind_proxy=self.world.is_behind_proxy(victim))
        await launch.introduced()
        await (victim.terminate() if gently else victim.kill())

    async def _stop(self, kind: str, fault: Fault) -> None:
        victim = self._victim(kind, fault)
        victim.pause()
        try:
            await self._wait()
        finally:
            victim.resume()

    def _victim(self, kind: str, fault: Fault) -> MainspringProcess:
        victim = self.dice.choice(self.world.alive(kind))
        fault.target = victim.log.stem
        return victim

    async def _kill(self, member: Member, fault: Fault) -> None:
        fault.target = member.name
        await member.kill()
        try:
            await self._wait()
        finally:
            await member.start()

    async def _pause(self, member: Member, fault: Fault) -> None:
        fault.target = member.name
        member.pause()
        try:
            await self._wait()
        finally:
            member.resume()

    async def _restart(self, member: Member, fault: Fault) -> None:
        fault.target = member.name
        await member.restart()

    async def _cut(self, fault: Fault) -> None:
        async with self._network(fault):
            self.world.proxy.cut()
            await self._wait()

    async def _silence(self, fault: Fault) -> None:
        async with self._network(fault):
            self.world.proxy.silence()
            await self._wait()

    @asynccontextmanager
    async def _network(self, fault: Fault) -> AsyncIterator[None]:
        fault.target = ",".join(
            each.log.stem for each in self.world.alive("worker") if self.world.is_behind_proxy(each)
        )
        try:
            yield
        finally:
            self.world.proxy.restore()

    async def _delete_records(self, fault: Fault) -> None:
        """While nobody reads: so that they are lost."""
        victims = self.world.alive("worker")
        fault.target = ",".join(each.log.stem for each in victims)
        for each in victims:
            each.pause()
        try:
            await asyncio.sleep(min(3.0, self.longest))
            await asyncio.to_thread(self._empty_topics)
        finally:
            for each in victims:
                each.resume()

    def _empty_topics(self) -> None:
        with AdminClient(dict(self.world.kafka)) as admin:
            for lane in Lane:
                topic = topic_of(self.world.pool, lane)
                partitions = admin.list_topics(topic, timeout=30).topics[topic].partitions
                places = [TopicPartition(topic, partition, -1) for partition in partitions]
                for future in admin.delete_records(places, request_timeout=30).values():
                    future.result()
