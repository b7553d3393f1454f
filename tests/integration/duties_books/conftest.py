"""A cluster on the test's own clock, with workers that are played by the test: `Desk`.

The leader, Kafka and Postgres are real. A test lets jobs fire, loses or takes their messages, lets time pass,
and calls the bookkeeper; nothing is waited for but answers.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, MutableMapping
from datetime import timedelta
from typing import Any

import asyncpg
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from structlog.testing import capture_logs

from mainspring.local import LocalStack
from mainspring.registry import Job
from mainspring.scheduler.duties.bookkeeper import Balanced, Bookkeeper, KafkaProgress
from mainspring.schema.ids import from_microseconds, new_claim_id
from mainspring.schema.messages import Message, decode
from mainspring.settings import KafkaSettings
from tests.integration.scheduler.leader import PATIENCE, Leader
from tests.integration.scheduler.simulated import START, create, drop, instant, reset
from tests.integration.scheduler.stage import PARTITIONS, Stage

ROUND = 40
"""Seconds from one round to the next: longer than claims may be under way."""

_NOT_READY = {
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
}
_EMPTY = """
SET LOCAL session_replication_role = replica;
DELETE FROM claims; DELETE FROM runs; DELETE FROM failures; DELETE FROM arrivals; DELETE FROM workers;
DELETE FROM deferrals;
"""


class Desk(Stage):
    """A stage with a bookkeeper, and hands that do what workers do."""

    def __init__(self, dsn: str, pool: Any, kafka: KafkaSettings) -> None:
        super().__init__(dsn, pool, kafka)
        self.keeper = self.bookkeeper()
        self._brokers = AdminClient({**kafka.librdkafka(), "log_level": 0})

    def bookkeeper(self, *, patience: timedelta = timedelta(minutes=2)) -> Bookkeeper:
        """As another process would have it."""
        return Bookkeeper(self.pool, KafkaProgress(self.kafka), patience=patience)

    async def hire(self, pool: str | None = None) -> None:
        """Let the pool be known to have workers."""
        statement = "INSERT INTO workers (id, pool, lanes, concurrency) VALUES ($1, $1, '{normal}', 1)"
        await self.execute(statement, (pool or self.name)[:40])

    async def fire(self, leader: Leader, *seconds: float) -> None:
        """Let the leader live at these seconds after START."""
        for second in seconds:
            await self.at(START + second)
            await leader.live()

    async def rounds(self, count: int, keeper: Bookkeeper | None = None) -> Balanced:
        """Let time pass and the bookkeeper do its rounds: all they did together."""
        total = Balanced()
        for _ in range(count):
            await self.at(self.second + ROUND)
            done = await (keeper or self.keeper).run_once()
            for field in Balanced.__slots__:
                setattr(total, field, getattr(total, field) + getattr(done, field))
        return total

    async def take(
        self, lane: str = "normal", pool: str | None = None, *, claimed: bool = True
    ) -> list[Message]:
        """Read what waits in a lane, bring it into the books, and commit, as a worker does."""
        messages = await asyncio.to_thread(self._consume, f"mainspring.{pool or self.name}.{lane}")
        if claimed:
            await self.claim(messages)
        return messages

    async def claim(self, messages: Iterable[Message]) -> None:
        """Win those that nobody has won, and tally them."""
        claim, tally, position = new_claim_id(instant(self.second)), Counter[tuple[int, int]](), 0
        for message in messages:
            done = await self.pool.execute(
                "INSERT INTO runs (job_id, scheduled_at, attempt, claim_id, position)"
                " VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING",
                message.job.job_id,
                from_microseconds(message.scheduled_at),
                message.attempt,
                claim,
                position,
            )
            if done == "INSERT 0 1":
                tally[message.shard, message.second] += 1
                position += 1
        if tally:
            await self.execute(
                "INSERT INTO claims (id, worker_id, outcomes, tally_shards, tally_seconds, tally_counts)"
                " VALUES ($1, 'w', $2, $3, $4, $5)",
                claim,
                bytes([1]) * position,
                [shard for shard, _ in tally],
                [instant(second) for _, second in tally],
                list(tally.values()),
            )

    async def lose(self, lane: str = "normal", pool: str | None = None) -> None:
        """The broker loses all that its partitions hold."""
        name = f"mainspring.{pool or self.name}.{lane}"
        places = [TopicPartition(name, partition, -1) for partition in range(PARTITIONS)]
        for future in self._brokers.delete_records(places).values():
            await asyncio.wrap_future(future)

    async def timers(self) -> list[tuple[int, float, int, float]]:
        """Standing timers: job, scheduled and due in seconds after START, attempt."""
        rows = await self.fetch(
            "SELECT job_id, scheduled_at, attempt, due_at FROM timers WHERE cause = 'deferred'"
            " ORDER BY scheduled_at, job_id"
        )
        return [
            (job, at.timestamp() - START, attempt, due.timestamp() - START) for job, at, attempt, due in rows
        ]

    async def runs_of(self, job: Job | int) -> list[float]:
        """For which instants a job has a run, in seconds after START."""
        job_id = job if isinstance(job, int) else job.id
        rows = await self.fetch("SELECT scheduled_at FROM runs WHERE job_id = $1 ORDER BY 1", job_id)
        return [at.timestamp() - START for (at,) in rows]

    async def is_balanced(self) -> bool:
        short = "SELECT count(*) FROM ledger WHERE published - written_off > claimed + repaired"
        return bool(await self.value(short) == 0)

    def _consume(self, topic: str) -> list[Message]:
        settings = {"group.id": topic, "enable.auto.commit": False, "fetch.wait.max.ms": 10, "log_level": 0}
        consumer = Consumer({**self.kafka.librdkafka(), **settings})
        try:
            if topic not in consumer.list_topics(timeout=PATIENCE).topics:
                return []
            places = committed(consumer, topic)
            bounds = [consumer.get_watermark_offsets(place, timeout=PATIENCE) for place in places]
            found: list[Message] = []
            for place, (low, high) in zip(places, bounds, strict=True):
                place.offset = max(place.offset, low)
                consumer.assign([place])
                while place.offset < high:
                    [record] = consumer.consume(1, timeout=PATIENCE)
                    value, offset = record.value(), record.offset()
                    assert value is not None, record.error()
                    assert offset is not None
                    found.append(decode(value))
                    place.offset = offset + 1
            consumer.commit(offsets=places, asynchronous=False)
            return found
        finally:
            consumer.close()


def committed(consumer: Consumer, topic: str) -> list[TopicPartition]:
    """Where the group stands; a broker that is not yet ready to say so is asked again."""
    places = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
    while True:
        try:
            return consumer.committed(places, timeout=PATIENCE)
        except KafkaException as error:
            if error.args[0].code() not in _NOT_READY:
                raise


@pytest.fixture(scope="session")
def books_database(stack: LocalStack) -> Iterator[str]:
    server = stack.environment()["MAINSPRING_POSTGRES_DSN"]
    dsn = asyncio.run(create(server))
    kafka = KafkaSettings.from_environment(stack.environment())
    consumer = Consumer({**kafka.librdkafka(), "group.id": "first", "log_level": 0})
    committed(consumer, "first")  # a new Kafka makes its topic of offsets when it is first asked
    consumer.close()
    yield dsn
    asyncio.run(drop(server, dsn))


@pytest.fixture
async def desk(stack: LocalStack, books_database: str) -> AsyncIterator[Desk]:
    await reset(books_database)
    async with asyncpg.create_pool(books_database, min_size=1, max_size=6) as pool:
        async with pool.acquire() as connection, connection.transaction():
            await connection.execute(_EMPTY)
            await connection.execute("UPDATE books SET counted_through = $1", instant(START))
        made = Desk(books_database, pool, KafkaSettings.from_environment(stack.environment()))
        yield made
        await made.close()


@pytest.fixture(autouse=True)
def events() -> Iterator[list[MutableMapping[str, Any]]]:
    """What was logged, in place of a log."""
    with capture_logs() as captured:
        yield captured
