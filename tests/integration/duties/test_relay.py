"""The relay: each dead letter reaches its pool's topic at least once, and one pool's trouble is its own."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource  # type: ignore[attr-defined]
from confluent_kafka.cimpl import NewTopic

from mainspring.clock import ManualClock
from mainspring.kafka.publisher import Publisher, Refused, Why
from mainspring.kafka.topics import Topics, TopicSettings
from mainspring.local import LocalStack
from mainspring.registry import Job
from mainspring.registry.letters import Letter, bury, bury_unreadable
from mainspring.scheduler.duties import relay as relay_module
from mainspring.scheduler.duties.relay import DeadLetterRelay, Relayed
from mainspring.schema.errors import DatabaseUnavailable
from mainspring.schema.ids import RunKey, format_run_id, to_microseconds
from mainspring.schema.states import DeadReason
from mainspring.settings import KafkaSettings
from tests.integration.duties.conftest import PATIENCE, House

PARTITIONS = 2


class Post:
    """Pools with topics of the test's own, and a relay whose rests pass when the test says so."""

    def __init__(self, house: House, kafka: KafkaSettings) -> None:
        self.house = house
        self.kafka = kafka
        self.clock = ManualClock(datetime(2030, 1, 1, tzinfo=UTC))
        self.publisher = Publisher(kafka, client_id="relay")
        self.topics = Topics(kafka, TopicSettings(partitions=PARTITIONS))
        self.relay = DeadLetterRelay(house.pool, self.publisher, self.topics, self.clock)
        self._admin = AdminClient({**kafka.librdkafka(), "log_level": 0})

    @staticmethod
    def new_pool() -> str:
        return f"p{uuid4().hex}"

    async def bury(self, job: Job, attempt: int = 1, error: str = "it broke") -> None:
        row = await self.house.pool.fetchrow("SELECT body FROM jobs WHERE id = $1", job.id)
        letter = Letter(
            tenant_id=job.tenant_id,
            job_id=job.id,
            scheduled_at=to_microseconds(self.house.now),
            attempt=attempt,
            pool=job.definition.pool,
            handler=job.definition.handler,
            reason=DeadReason.EXHAUSTED,
            error=error,
            traceback=None,
            body=row["body"],
        )
        async with self.house.connected() as connection:
            await bury(connection, [letter])

    async def make_topic(self, pool: str, **configuration: str) -> None:
        config = {key.replace("_", "."): value for key, value in configuration.items()}
        topic = NewTopic(f"mainspring.{pool}.dead", num_partitions=PARTITIONS, config=config)
        await asyncio.wrap_future(self._admin.create_topics([topic])[topic.topic])

    async def mend_topic(self, pool: str) -> None:
        name = f"mainspring.{pool}.dead"
        entry = ConfigEntry("cleanup.policy", "delete", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=[entry])
        await asyncio.wrap_future(self._admin.incremental_alter_configs([resource])[resource])
        async with asyncio.timeout(PATIENCE):
            while True:
                shown = await asyncio.wrap_future(self._admin.describe_configs([resource])[resource])
                if shown["cleanup.policy"].value == "delete":
                    return

    async def copies(self, pool: str) -> list[dict[str, Any]]:
        """What is on a pool's dead-letter topic."""
        values = await asyncio.to_thread(self._read, f"mainspring.{pool}.dead")
        return [json.loads(value) for value in values]

    async def unpublished(self) -> int:
        number: int = await self.house.value("SELECT count(*) FROM dead_letters WHERE published_at IS NULL")
        return number

    def _read(self, topic: str) -> list[bytes]:
        settings = {"group.id": uuid4().hex, "enable.auto.commit": False, "fetch.wait.max.ms": 10}
        consumer = Consumer({**self.kafka.librdkafka(), **settings})
        try:
            places = [TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)]
            total = sum(consumer.get_watermark_offsets(place, timeout=PATIENCE)[1] for place in places)
            consumer.assign(places)
            found: list[bytes] = []
            while len(found) < total:
                for message in consumer.consume(total - len(found), timeout=PATIENCE):
                    value = message.value()
                    assert value is not None, message.error()
                    found.append(value)
            return found
        finally:
            consumer.close()


@pytest.fixture
async def post(house: House, stack: LocalStack) -> AsyncIterator[Post]:
    made = Post(house, KafkaSettings.from_environment(stack.environment()))
    yield made
    await made.publisher.close()


async def test_a_letter_reaches_its_pools_topic_with_everything_about_it(house: House, post: Post) -> None:
    pool = post.new_pool()
    job = await house.job(pool=pool, payload={"n": 12345678901234567890, "text": "ü"})
    await post.bury(job, attempt=4)
    assert await post.relay.run_once() == Relayed(published=1)
    row = await house.pool.fetchrow("SELECT * FROM dead_letters")
    [copy] = await post.copies(pool)
    assert copy == {
        "id": row["id"],
        "tenant_id": house.tenant,
        "job_id": job.job_id,
        "run_id": format_run_id(RunKey(job.id, house.now, 4)),
        "scheduled_at": f"{house.now:%Y-%m-%dT%H:%M:%S}Z",
        "attempt": 4,
        "pool": pool,
        "handler": "work",
        "reason": "exhausted",
        "error": "it broke",
        "fingerprint": row["fingerprint"],
        "payload": {"n": 12345678901234567890, "text": "ü"},
        "created_at": row["created_at"].isoformat().replace("+00:00", "Z"),
    }
    assert row["published_at"] is not None


async def test_a_letter_is_sent_once_when_nothing_goes_wrong(house: House, post: Post) -> None:
    pool = post.new_pool()
    await post.bury(await house.job(pool=pool))
    await post.relay.run_once()
    assert await post.relay.run_once() == Relayed()
    assert len(await post.copies(pool)) == 1


async def test_a_message_that_nobody_could_read_has_no_payload(house: House, post: Post) -> None:
    pool = post.new_pool()
    async with house.connected() as connection:
        await bury_unreadable(connection, pool, [(b"\xff\x00", "prefix version 255")])
    await post.relay.run_once()
    [copy] = await post.copies(pool)
    assert "payload" not in copy
    assert (copy["reason"], copy["error"]) == ("unreadable", "prefix version 255")
    assert (copy["job_id"], copy["run_id"], copy["scheduled_at"]) == (None, None, None)


async def test_a_copy_whose_mark_was_not_written_is_sent_again(house: House, post: Post) -> None:
    pool = post.new_pool()
    await post.bury(await house.job(pool=pool))
    relay = DeadLetterRelay(Forgetful(house.pool), post.publisher, post.topics, post.clock)  # type: ignore[arg-type]
    with pytest.raises(DatabaseUnavailable):
        await relay.run_once()
    assert (await relay.run_once()).published == 1
    first, second = await post.copies(pool)
    assert first == second


class Forgetful:
    """A pool that loses its connection before the first statement that writes."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool
        self._failed = False
        self.fetch = pool.fetch

    async def execute(self, *arguments: Any) -> Any:
        if not self._failed:
            self._failed = True
            raise ConnectionResetError("cut off")
        return await self._pool.execute(*arguments)


async def test_a_refused_topic_holds_only_its_own_letters(
    house: House, post: Post, monkeypatch: pytest.MonkeyPatch, events: list[Any]
) -> None:
    monkeypatch.setattr(relay_module, "_BATCH", 2)
    broken, sound = post.new_pool(), post.new_pool()
    await post.make_topic(broken, cleanup_policy="compact")
    refused, taken = await house.job(pool=broken), await house.job(pool=sound)
    for attempt in (1, 2, 3):  # more than a batch, and all of them first
        await post.bury(refused, attempt)
    for attempt in (1, 2, 3):
        await post.bury(taken, attempt)
    assert (await post.relay.run_once()).published == 3
    assert len(await post.copies(sound)) == 3
    assert await post.unpublished() == 3
    assert [event["pool"] for event in events if event["event"] == "letters_wait"] == [broken]
    assert await post.relay.run_once() == Relayed()  # it rests
    await post.mend_topic(broken)
    post.clock.advance(timedelta(seconds=31))
    assert (await post.relay.run_once()).published == 3
    assert sorted(copy["attempt"] for copy in await post.copies(broken)) == [1, 2, 3]


async def test_a_copy_that_is_too_large_goes_without_its_payload(house: House, post: Post) -> None:
    pool = post.new_pool()
    await post.make_topic(pool, max_message_bytes="3000")
    large = await house.job(pool=pool, payload=secrets.token_hex(20_000))
    small = await house.job(pool=pool, payload="small")
    await post.bury(large)
    await post.bury(small)
    assert await post.relay.run_once() == Relayed(published=2, without_payload=1)
    copies = {copy["job_id"]: copy for copy in await post.copies(pool)}
    assert copies[small.job_id]["payload"] == "small"
    assert "payload" not in copies[large.job_id]
    assert copies[large.job_id]["payload_omitted"] is True
    assert await post.unpublished() == 0


async def test_a_partition_that_takes_nothing_is_left_out_the_next_time(
    house: House, post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = post.new_pool()
    await post.bury(await house.job(pool=pool))
    publish = post.publisher.publish

    async def first_partition_is_gone(loads: Any, partitions: Any, avoid: Any = None) -> list[Refused]:
        loads = list(loads)
        if 0 in (avoid or {}).get(loads[0].topic, ()):
            return await publish(loads, partitions, avoid)
        return [Refused(each.topic, 0, body, Why.PARTITION, "gone") for each in loads for body in each.bodies]

    monkeypatch.setattr(post.publisher, "publish", first_partition_is_gone)
    assert await post.relay.run_once() == Relayed(refused=1)
    assert await post.relay.run_once() == Relayed(published=1)
    assert len(await post.copies(pool)) == 1


async def test_without_kafka_the_letters_wait(
    house: House, post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay_module, "MESSAGE_SECONDS", 0.2)
    nowhere = KafkaSettings(brokers=("127.0.0.1:1",))
    pool = post.new_pool()
    await post.bury(await house.job(pool=pool))
    relay = DeadLetterRelay(house.pool, post.publisher, Topics(nowhere, TopicSettings()), post.clock)
    assert await relay.run_once() == Relayed(refused=1)
    assert await post.unpublished() == 1
    assert (await post.relay.run_once()).published == 1


async def test_all_letters_go_in_one_round_of_several_batches(
    house: House, post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay_module, "_BATCH", 3)
    pool = post.new_pool()
    job = await house.job(pool=pool)
    for attempt in range(1, 9):
        await post.bury(job, attempt)
    assert (await post.relay.run_once()).published == 8
    assert sorted(copy["attempt"] for copy in await post.copies(pool)) == list(range(1, 9))
