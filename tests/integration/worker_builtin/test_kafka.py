"""Messages on the suite's own Kafka: acknowledged, readable, refused in words."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, Message, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from mainspring.local import LocalStack
from mainspring.local.ports import free_port
from mainspring.settings import KafkaSettings
from mainspring.worker.builtin import HttpHandlerSettings, NotRetryable, builtin_handlers, make_producer
from tests.unit.worker_builtin.runs import run_of

GENEROUS = 60
PARTITIONS = 4


class Topic:
    """A topic of one test's own."""

    def __init__(self, settings: KafkaSettings, **configuration: str) -> None:
        self.name = f"words-{uuid4().hex}"
        self._settings = settings
        admin = AdminClient(settings.librdkafka() | {"log_level": 0})
        wanted = {name.replace("_", "."): value for name, value in configuration.items()}
        [made] = admin.create_topics([NewTopic(self.name, PARTITIONS, config=wanted)]).values()
        made.result(GENEROUS)

    def read(self, count: int) -> list[Message]:
        """Everything in it, which must be exactly so much."""
        reader = Consumer(
            self._settings.librdkafka()
            | {"group.id": uuid4().hex, "enable.auto.commit": False, "log_level": 0}
        )
        try:
            places = [TopicPartition(self.name, partition, 0) for partition in range(PARTITIONS)]
            ends = [reader.get_watermark_offsets(place, timeout=GENEROUS)[1] for place in places]
            assert sum(ends) == count
            reader.assign(places)
            return reader.consume(count, timeout=GENEROUS)
        finally:
            reader.close()


@pytest.fixture
def kafka(stack: LocalStack) -> KafkaSettings:
    return KafkaSettings.from_environment(stack.environment())


@pytest.fixture
def send(kafka: KafkaSettings) -> Iterator[Any]:
    yield handler_for(kafka)
    wait_for_the_thread_to_end()


def handler_for(kafka: KafkaSettings) -> Any:
    made = builtin_handlers(HttpHandlerSettings(), lambda: make_producer(kafka, client_id="test"))
    assert made["kafka"].is_async
    return made["kafka"].function


def wait_for_the_thread_to_end() -> None:
    for thread in threading.enumerate():
        if thread.name == "mainspring-kafka-handler":
            thread.join(GENEROUS)
            assert not thread.is_alive()


async def test_a_message_is_there_when_the_run_has_succeeded(kafka: KafkaSettings, send: Any) -> None:
    topic = Topic(kafka)
    payload = {"topic": topic.name, "key": "ü", "value": {"n": [1, None]}, "headers": {"source": "cron"}}
    context = run_of(payload, attempt=2, key="weekly ü")
    result = await send(context)
    [message] = topic.read(1)
    assert result == {"topic": topic.name, "partition": message.partition(), "offset": message.offset()}
    assert (message.key(), message.value()) == ("ü".encode(), b'{"n":[1,null]}')
    assert dict(message.headers() or []) == {
        "source": b"cron",
        "idempotency-key": "weekly ü".encode(),
        "mainspring-run": context.run_id.encode(),
        "mainspring-scheduled-at": b"2026-01-01T00:00:00Z",
        "mainspring-attempt": b"2",
    }


async def test_a_thousand_runs_at_once_are_a_thousand_messages(kafka: KafkaSettings, send: Any) -> None:
    topic = Topic(kafka)
    runs = [run_of({"topic": topic.name, "value_text": str(number)}) for number in range(1000)]
    results = await asyncio.gather(*(send(run) for run in runs))
    read = {(message.partition(), message.offset()): message.value() for message in topic.read(1000)}
    assert len(read) == 1000
    for number, result in enumerate(results):
        assert read[result["partition"], result["offset"]] == str(number).encode()


async def test_messages_of_one_key_go_to_one_partition(kafka: KafkaSettings, send: Any) -> None:
    topic = Topic(kafka)
    for number in range(10):
        await send(run_of({"topic": topic.name, "key": "same", "value": number}))
    assert len({message.partition() for message in topic.read(10)}) == 1


async def test_a_topic_that_does_not_exist_is_not_tried_again(send: Any) -> None:
    name = f"nobody-made-{uuid4().hex}"
    with pytest.raises(NotRetryable, match=f"{name} did not take the message"):
        await send(run_of({"topic": name, "value": 1}))


async def test_a_message_too_large_is_not_tried_again_and_takes_no_other_along(
    kafka: KafkaSettings, send: Any
) -> None:
    topic = Topic(kafka, max_message_bytes="10000")
    sizes = [9000, 20_000, 9000, 9000, 20_000, 9000]
    runs = [run_of({"topic": topic.name, "key": "same", "value_text": "x" * size}) for size in sizes]
    results = await asyncio.gather(*(send(run) for run in runs), return_exceptions=True)
    assert [isinstance(result, NotRetryable) for result in results] == [size > 10_000 for size in sizes]
    assert len(topic.read(4)) == 4


async def test_without_a_broker_the_run_ends_at_its_deadline() -> None:
    nobody = KafkaSettings(brokers=(f"127.0.0.1:{free_port()}",))
    with pytest.raises(TimeoutError, match="t had not acknowledged"):
        await handler_for(nobody)(run_of({"topic": "t", "value": 1}, seconds=0.5))
