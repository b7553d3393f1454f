"""What the tests of a leader share: jobs, a database on the test's clock, topics, and what was published."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, NamedTuple, cast
from uuid import uuid4

import asyncpg
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource  # type: ignore[attr-defined]
from confluent_kafka.cimpl import NewTopic

from mainspring.clock import ManualClock
from mainspring.kafka.topics import Topics, TopicSettings
from mainspring.registry import Job, JobRequest, Registry
from mainspring.registry.cadences import CadenceKey, Cadences
from mainspring.schedule import Cadence
from mainspring.schema.messages import Message, decode
from mainspring.settings import KafkaSettings
from tests.integration.scheduler.leader import PATIENCE, Leader
from tests.integration.scheduler.simulated import SHARDS, START, instant

PARTITIONS = 2


class Published(NamedTuple):
    """One message as a worker would read it."""

    lane: str
    message: Message


class _Within:
    """In the place of a pool: always the same connection."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    @asynccontextmanager
    async def acquire(self) -> AsyncIterator[Any]:
        yield self._connection


class Stage:
    """A cluster of a test's own."""

    def __init__(self, dsn: str, pool: Any, kafka: KafkaSettings) -> None:
        self.dsn = dsn
        self.pool = pool
        self.kafka = kafka
        self.name = f"p{uuid4().hex}"
        """Of the pool of workers, and so of the topics."""
        self.registry = Registry(pool, shards=SHARDS)
        self.tenant = 1
        self.topics = Topics(kafka, TopicSettings(partitions=PARTITIONS))
        self.machine = ManualClock(instant(START))
        self.second: float = START
        self.leaders: list[Leader] = []
        self._admin = AdminClient({**kafka.librdkafka(), "log_level": 0})

    async def leader(self, name: str = "first", *, dsn: str | None = None) -> Leader:
        """A process that leads nothing yet."""
        made = Leader(name, dsn or self.dsn, self.kafka, self.topics, self.machine)
        made.hear(self.second)
        self.leaders.append(made)
        for pool in made.pools:
            await pool
        return made

    async def leading(self, name: str = "first") -> Leader:
        """A process that leads every shard."""
        made = await self.leader(name)
        await made.lead()
        return made

    async def at(self, second: float, *, heard: bool = True) -> None:
        """Let time pass up to this second; unless `heard`, leaders go by their own clock and its drift."""
        self.machine.advance(timedelta(seconds=second - self.second))
        self.second = second
        await self.execute("UPDATE simulated_clock SET at = $1", instant(second))
        for leader in self.leaders:
            if heard:
                leader.hear(second)

    async def create(self, schedule: str = "* * * * * *", **body: Any) -> Job:
        """A job, by default one of every second."""
        return await self.registry.create(self.tenant, self.request(schedule=schedule, **body))

    async def create_many(self, count: int, schedule: str = "* * * * * *", **body: Any) -> list[int]:
        request = self.request(schedule=schedule, **body)
        return await self.registry.create_many(self.tenant, [request] * count)

    async def make_cadence(self, schedule: str) -> None:
        """The rows of a cadence in every shard, without members."""
        cadence = Cadence.parse(schedule)
        await Cadences(self.pool).ensure({CadenceKey(shard, cadence): 0 for shard in range(SHARDS)})

    def within(self, connection: Any) -> Registry:
        """A registry whose changes belong to a transaction that somebody else ends."""
        return Registry(cast("Any", _Within(connection)), shards=SHARDS)

    def request(self, **body: Any) -> JobRequest:
        return JobRequest.from_mapping({"handler": "work", "pool": self.name, **body})

    async def edit(self, job: Job, **changes: Any) -> Job:
        return await self.registry.edit(self.tenant, job.id, changes)

    async def published(self) -> list[Published]:
        """Everything in this test's topics, in the order of each partition."""
        return await asyncio.to_thread(self._read)

    async def instants(self, job: Job | int, lane: str | None = None) -> list[float]:
        """For which instants a job was published, in seconds after START, copies included."""
        job_id = job if isinstance(job, int) else job.id
        return sorted(
            message.scheduled_at / 1_000_000 - START
            for in_lane, message in await self.published()
            if message.job.job_id == job_id and lane in (None, in_lane)
        )

    async def all_instants(self) -> dict[int, list[float]]:
        """The same for every job that was published at all."""
        found = defaultdict[int, list[float]](list)
        for _, message in await self.published():
            found[message.job.job_id].append(message.scheduled_at / 1_000_000 - START)
        return {job_id: sorted(instants) for job_id, instants in found.items()}

    async def make_topic(self, lane: str = "normal", **configuration: str) -> None:
        """A topic as somebody else made it: `cleanup_policy="compact"`."""
        config = {key.replace("_", "."): value for key, value in configuration.items()}
        topic = NewTopic(self.topic(lane), num_partitions=PARTITIONS, config=config)
        await asyncio.wrap_future(self._admin.create_topics([topic])[topic.topic])

    async def set_topic(self, lane: str = "normal", **configuration: str) -> None:
        """Somebody changes a topic; shown by the time this returns."""
        wanted = {key.replace("_", "."): value for key, value in configuration.items()}
        entries = [
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
            for key, value in wanted.items()
        ]
        resource = ConfigResource(ConfigResource.Type.TOPIC, self.topic(lane), incremental_configs=entries)
        await asyncio.wrap_future(self._admin.incremental_alter_configs([resource])[resource])
        async with asyncio.timeout(PATIENCE):
            while True:
                shown = await asyncio.wrap_future(self._admin.describe_configs([resource])[resource])
                if all(shown[key].value == value for key, value in wanted.items()):
                    return

    async def delete_topic(self, lane: str = "normal") -> None:
        name = self.topic(lane)
        await asyncio.wrap_future(self._admin.delete_topics([name])[name])
        async with asyncio.timeout(PATIENCE):
            while name in (await asyncio.to_thread(self._admin.list_topics, timeout=PATIENCE)).topics:
                pass

    def topic(self, lane: str = "normal") -> str:
        return f"mainspring.{self.name}.{lane}"

    async def execute(self, statement: str, *arguments: Any) -> None:
        await self.pool.execute(statement, *arguments)

    async def fetch(self, statement: str, *arguments: Any) -> list[Any]:
        return [tuple(row) for row in await self.pool.fetch(statement, *arguments)]

    async def value(self, statement: str, *arguments: Any) -> Any:
        return await self.pool.fetchval(statement, *arguments)

    async def mark(self, shard: int) -> float:
        """The mark in seconds after START."""
        mark = await self.value("SELECT fired_through FROM shards WHERE shard = $1", shard)
        return float(mark.timestamp() - START)

    async def behind_its_back(self, statement: str, *arguments: Any) -> None:
        """A statement that no trigger hears of."""
        async with self.pool.acquire() as connection, connection.transaction():
            await connection.execute("SET LOCAL session_replication_role = replica")
            await connection.execute(statement, *arguments)

    @asynccontextmanager
    async def open_transaction(self) -> AsyncIterator[Any]:
        """Another session in the middle of a transaction, which commits when the block ends."""
        connection = await asyncpg.connect(self.dsn)
        try:
            async with connection.transaction():
                yield connection
        finally:
            await connection.close()

    async def close(self) -> None:
        for leader in self.leaders:
            await leader.die()
            await leader.publisher.close()

    def _read(self) -> list[Published]:
        settings = {"group.id": self.name, "enable.auto.commit": False, "fetch.wait.max.ms": 10}
        consumer = Consumer({**self.kafka.librdkafka(), **settings})
        try:
            ends = _ends(consumer, f"mainspring.{self.name}.")
            consumer.assign([TopicPartition(topic, partition, 0) for topic, partition in ends])
            total, found = sum(ends.values()), list[Published]()
            while len(found) < total:
                for each in consumer.consume(total - len(found), timeout=PATIENCE):
                    topic, value = each.topic(), each.value()
                    assert topic is not None
                    assert value is not None, each.error()
                    found.append(Published(topic.rpartition(".")[2], decode(value)))
            return found
        finally:
            consumer.close()


def _ends(consumer: Consumer, prefix: str) -> dict[tuple[str, int], int]:
    """How many messages each partition holds."""
    ends = {}
    for name, topic in consumer.list_topics(timeout=PATIENCE).topics.items():
        if name.startswith(prefix):
            for partition in topic.partitions:
                place = TopicPartition(name, partition)
                ends[name, partition] = consumer.get_watermark_offsets(place, timeout=PATIENCE)[1]
    return {place: end for place, end in ends.items() if end}
