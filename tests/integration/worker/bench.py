"""What the tests of a worker share: jobs, messages as a leader would send them, workers played or alive."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import asyncpg
from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from mainspring.registry import Job, JobRequest, Registry
from mainspring.registry.letters import DeadLetters
from mainspring.registry.runs import Runs
from mainspring.schema.ids import from_microseconds, to_microseconds
from mainspring.schema.messages import Message, decode, encode_prefix
from mainspring.schema.partitions import drop_day
from mainspring.schema.states import Lane, Outcome, topic_of
from mainspring.settings import KafkaSettings
from mainspring.worker import Mainspring
from mainspring.worker.batches import Batch
from tests.integration.worker.hands import Hands, Living, start_life

SHARDS = 64
PATIENCE = 120.0
A_DAY = timedelta(days=1)


class Bench:
    """A database and topics of a test's own."""

    def __init__(self, dsn: str, pool: Any, kafka: KafkaSettings, now: datetime) -> None:
        self.dsn = dsn
        self.pool = pool
        self.kafka = kafka
        self.now = now
        """A whole second of the recent past; it and the days after it have tables."""
        self.name = f"w{uuid4().hex}"
        """Of the pool of workers, and so of the topics."""
        self.tenant = 1
        self.registry = Registry(pool, shards=SHARDS)
        self.runs = Runs(pool, shards=SHARDS)
        self.letters = DeadLetters(pool, shards=SHARDS)
        self._admin: AdminClient | None = None
        self._producer: Producer | None = None
        self._hands: list[Hands] = []

    # Jobs and messages.

    async def job(self, **body: Any) -> Job:
        request = {"handler": "work", "schedule": "0 0 * * *", "pool": self.name} | body
        return await self.registry.create(self.tenant, JobRequest.from_mapping(request))

    async def jobs(self, count: int, **body: Any) -> list[Job]:
        request = JobRequest.from_mapping(
            {"handler": "work", "schedule": "0 0 * * *", "pool": self.name} | body
        )
        ids = await self.registry.create_many(self.tenant, [request] * count)
        return [await self.registry.get(self.tenant, job_id) for job_id in ids]

    async def dependent(self, *parents: Job, **body: Any) -> Job:
        request = {"handler": "work", "after": [parent.job_id for parent in parents], "pool": self.name}
        return await self.registry.create(self.tenant, JobRequest.from_mapping(request | body))

    def at(self, seconds: float) -> datetime:
        return self.now + timedelta(seconds=seconds)

    async def raw(
        self,
        job: Job,
        seconds: float = 0,
        *,
        attempt: int = 1,
        retries: int = 0,
        losses: int = 0,
        late: float = 0,
        following: timedelta | None = A_DAY,
    ) -> bytes:
        """A message as the job's leader sends it now: for an instant so many seconds after `now`, due `late`
        seconds before that."""
        scheduled_at = to_microseconds(self.at(seconds))
        prefix = encode_prefix(
            attempt=attempt,
            retries=retries,
            losses=losses,
            shard=job.shard,
            second=int(self.at(seconds - late).timestamp()),
            scheduled_at=scheduled_at,
            following=0 if following is None else scheduled_at + following // timedelta(microseconds=1),
            epoch=1,
            position=await self.value("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint"),
        )
        return prefix + job.definition.body(job.id, job.tenant_id, job.version)

    async def message(self, job: Job, seconds: float = 0, **how: Any) -> Message:
        return decode(await self.raw(job, seconds, **how))

    async def dispatch(self, job: Job) -> list[Message]:
        """What a leader would make of the job's timers by and by; they are deleted, as it does."""
        return [decode(value) for value in await self.dispatch_raw(job)]

    async def dispatch_raw(self, job: Job) -> list[bytes]:
        """The same as bytes."""
        position = await self.value("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint")
        rows = await self.fetch(
            "DELETE FROM timers USING jobs WHERE jobs.id = job_id AND job_id = $1"
            " RETURNING scheduled_at, attempt, retries, losses, timers.shard, due_at, body",
            job.id,
        )
        return [
            encode_prefix(
                attempt=attempt,
                retries=retries,
                losses=losses,
                shard=shard,
                second=int(due_at.timestamp()),
                scheduled_at=to_microseconds(scheduled_at),
                epoch=1,
                position=position,
            )
            + body
            for scheduled_at, attempt, retries, losses, shard, due_at, body in sorted(rows)
        ]

    # Workers.

    async def hands(self, app: Mainspring, name: str = "", *, pool: Any = None, **how: Any) -> Hands:
        """The parts of a worker, moved by the test."""
        worker_id = name or f"hands-{len(self._hands)}"
        made = Hands(pool or self.pool, worker_id, self.name, app, **how)
        await self.execute(
            "INSERT INTO workers (id, pool, lanes, concurrency) VALUES ($1, $2, '{normal}', 1)",
            worker_id,
            self.name,
        )
        self._hands.append(made)
        return made

    @asynccontextmanager
    async def living(self, app: Mainspring, dsn: str = "", **how: Any) -> AsyncIterator[Living]:
        """A worker's life, for real; what is running when the block ends is handed back at once."""
        async with start_life(dsn or self.dsn, self.kafka, self.name, app, **how) as life:
            yield life

    # Topics.

    async def make_topic(self, lane: Lane = Lane.NORMAL, partitions: int = 1, **config: str) -> None:
        topic = NewTopic(
            topic_of(self.name, lane),
            num_partitions=partitions,
            config={key.replace("_", "."): value for key, value in config.items()},
        )
        await asyncio.wrap_future(self.admin.create_topics([topic])[topic.topic])

    async def publish(
        self, *values: bytes, lane: Lane = Lane.NORMAL, partition: int = 0, at: datetime | None = None
    ) -> None:
        """Append, and wait until it is there."""
        if self._producer is None:
            self._producer = Producer({**self.kafka.librdkafka(), "acks": "all", "linger.ms": 0})
        producer, topic = self._producer, topic_of(self.name, lane)
        timestamp = 0 if at is None else int(at.timestamp() * 1000)
        for value in values:
            producer.produce(topic, value, partition=partition, timestamp=timestamp)
        assert await asyncio.to_thread(producer.flush, PATIENCE) == 0

    async def committed(self, lane: Lane = Lane.NORMAL, partition: int = 0) -> int:
        """How far the pool has committed; -1001 for not at all."""
        topic = topic_of(self.name, lane)
        wanted = ConsumerGroupTopicPartitions(topic, [TopicPartition(topic, partition)])
        [future] = self.admin.list_consumer_group_offsets([wanted]).values()
        [found] = (await asyncio.wrap_future(future)).topic_partitions
        return int(found.offset)

    async def rewind(self, lane: Lane = Lane.NORMAL) -> None:
        """Let the pool, which has no member now, read everything again."""
        group = topic_of(self.name, lane)
        await asyncio.wrap_future(self.admin.delete_consumer_groups([group])[group])

    @property
    def admin(self) -> AdminClient:
        if self._admin is None:
            self._admin = AdminClient({**self.kafka.librdkafka(), "log_level": 0})
        return self._admin

    # Facts.

    async def statuses(self, job: Job) -> list[tuple[int, int, str]]:
        """The job's runs: seconds after `now`, attempt, status."""
        rows = await self.fetch(
            "SELECT scheduled_at, attempt, status FROM run_history WHERE job_id = $1 ORDER BY 1, 2", job.id
        )
        return [(round((at - self.now).total_seconds()), attempt, status) for at, attempt, status in rows]

    async def timers(self, job: Job) -> list[Any]:
        """Seconds after `now`, attempt, retries, losses, cause."""
        rows = await self.fetch(
            "SELECT scheduled_at, attempt, retries, losses, cause FROM timers WHERE job_id = $1"
            " ORDER BY scheduled_at, attempt",
            job.id,
        )
        return [(round((at - self.now).total_seconds()), *rest) for at, *rest in rows]

    async def failures(self, job: Job) -> list[Any]:
        return await self.fetch(
            "SELECT attempt, status, error FROM failures WHERE job_id = $1 ORDER BY scheduled_at, attempt",
            job.id,
        )

    async def outcomes(self, claim_id: int) -> list[Outcome]:
        stored = await self.value("SELECT outcomes FROM claims WHERE id = $1", claim_id)
        return [Outcome(byte) for byte in stored]

    async def tallies(self) -> dict[tuple[int, datetime], int]:
        """All tallies together, by shard and second."""
        rows = await self.fetch(
            "SELECT shard, second, sum(number) FROM claims,"
            " unnest(tally_shards, tally_seconds, tally_counts) AS tally (shard, second, number)"
            " GROUP BY shard, second"
        )
        return {(shard, second): number for shard, second, number in rows}

    async def count(self, table: str) -> int:
        number: int = await self.value(f"SELECT count(*) FROM {table}")
        return number

    async def execute(self, statement: str, *arguments: Any) -> None:
        await self.pool.execute(statement, *arguments)

    async def fetch(self, statement: str, *arguments: Any) -> list[Any]:
        return [tuple(row) for row in await self.pool.fetch(statement, *arguments)]

    async def value(self, statement: str, *arguments: Any) -> Any:
        return await self.pool.fetchval(statement, *arguments)

    @asynccontextmanager
    async def holding(self, statement: str, *arguments: Any, undo: bool = True) -> AsyncIterator[Any]:
        """Another session in a transaction, which is undone or committed when the block ends."""
        connection = await asyncpg.connect(self.dsn)
        transaction = connection.transaction()
        try:
            await transaction.start()
            await connection.execute(statement, *arguments)
            yield connection
            await (transaction.rollback() if undo else transaction.commit())
        finally:
            connection.terminate()

    async def until_blocked(self, sessions: int = 1) -> None:
        """Wait until so many sessions of this database wait for a lock."""

        async def blocked() -> bool:
            waiting: int = await self.value(
                "SELECT count(*) FROM pg_stat_activity"
                " WHERE datname = current_database() AND cardinality(pg_blocking_pids(pid)) > 0"
            )
            return waiting >= sessions

        await self.until(blocked)

    async def until(self, fact: Callable[[], Awaitable[bool]]) -> None:
        """Wait for a fact; only one that never comes costs time."""
        async with asyncio.timeout(PATIENCE):
            while not await fact():  # noqa: ASYNC110  (the server sets no event)
                await asyncio.sleep(0.02)

    async def drop_day(self, seconds: float) -> None:
        """Nothing can be written to this day, until somebody makes it."""
        async with self.pool.acquire() as connection:
            await drop_day(connection, self.at(seconds).date())

    async def until_status(self, job: Job, wanted: str) -> None:
        """Wait until every run of the job, and there is one, has this status."""

        async def reached() -> bool:
            statuses = await self.statuses(job)
            return bool(statuses) and all(status == wanted for _, _, status in statuses)

        await self.until(reached)

    async def until_ended(self, job: Job, runs: int = 1) -> None:
        """Wait until the job has so many runs, none of them under way."""

        async def ended() -> bool:
            statuses = await self.statuses(job)
            return len(statuses) >= runs and all(status != "running" for _, _, status in statuses)

        await self.until(ended)

    async def close(self) -> None:
        for each in self._hands:
            await each.close()


def runs_of(*batches: Batch) -> list[tuple[int, datetime, int]]:
    """What is to be executed: job, instant, attempt."""
    return sorted(
        (
            run.message.job.job_id,
            from_microseconds(run.message.scheduled_at),
            run.message.attempt,
        )
        for batch in batches
        for run in batch.runs
    )
