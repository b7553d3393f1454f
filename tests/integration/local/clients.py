"""Words written to and read from each part with an ordinary client: what a stack is for and must not lose.

    await write(stack.environment(), "hello")
    assert await read(stack.environment()) == {"postgres": {"hello"}, "kafka": {"hello"}, "etcd": {"hello"}}

Each part can be used alone, by its address. A cluster is asked for a majority's word: acks=all, linearizable.
"""

from __future__ import annotations

import asyncio
import base64
import json
import urllib.request
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import asyncpg
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

TOPIC = "words"
_SECONDS = 30.0


async def until(fact: Callable[[], Awaitable[bool]]) -> None:
    """Wait for a fact; the deadline is generous, since it only ends a broken test."""
    async with asyncio.timeout(300):
        while not await fact():  # noqa: ASYNC110  (servers set no event)
            await asyncio.sleep(0.02)


async def write(environment: Mapping[str, str], word: str) -> None:
    """Write a row, a record and a key, each acknowledged."""
    await write_row(environment["MAINSPRING_POSTGRES_DSN"], word)
    await write_record(environment["MAINSPRING_KAFKA"], word)
    await write_key(environment["MAINSPRING_ETCD"], word)


async def read(environment: Mapping[str, str]) -> dict[str, set[str]]:
    return {
        "postgres": await read_rows(environment["MAINSPRING_POSTGRES_DSN"]),
        "kafka": await read_records(environment["MAINSPRING_KAFKA"]),
        "etcd": await read_keys(environment["MAINSPRING_ETCD"]),
    }


async def write_row(dsn: str, word: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute("CREATE TABLE IF NOT EXISTS words (word text)")
        await connection.execute("INSERT INTO words VALUES ($1)", word)
    finally:
        await connection.close()


async def read_rows(dsn: str) -> set[str]:
    connection = await asyncpg.connect(dsn)
    try:
        return {row["word"] for row in await connection.fetch("SELECT word FROM words")}
    finally:
        await connection.close()


async def write_record(brokers: str, word: str) -> None:
    await asyncio.to_thread(_write_record, brokers, word)


async def read_records(brokers: str) -> set[str]:
    return await asyncio.to_thread(_read_records, brokers)


async def topic_nodes(brokers: str) -> tuple[int, set[int]]:
    """Who leads the topic's one partition, and which nodes have all of it."""
    return await asyncio.to_thread(_topic_nodes, brokers)


async def write_key(endpoints: str, word: str) -> None:
    await _ask_etcd(endpoints, "kv/put", {"key": _base64(f"words/{word}"), "value": _base64(word)})


async def read_keys(endpoints: str) -> set[str]:
    span = {"key": _base64("words/"), "range_end": _base64("words0")}
    answer = await _ask_etcd(endpoints, "kv/range", span)
    return {base64.b64decode(entry["value"]).decode() for entry in answer.get("kvs", [])}


async def leads(endpoint: str) -> bool:
    """Whether this etcd member is the leader."""
    status = await _ask_etcd(endpoint, "maintenance/status", {})
    return bool(status["leader"] == status["header"]["member_id"])


def _write_record(brokers: str, word: str) -> None:
    admin = AdminClient({"bootstrap.servers": brokers, "log_level": 0})
    # Made while all brokers run, and then only looked at: making one needs the controller and every copy.
    if TOPIC not in admin.list_topics(timeout=_SECONDS).topics:
        [created] = admin.create_topics([NewTopic(TOPIC, 1)]).values()
        created.result(_SECONDS)
    answers: list[KafkaError | None] = []
    producer = Producer(
        {
            "bootstrap.servers": brokers,
            "acks": "all",
            "message.timeout.ms": int(_SECONDS * 1000),
            "log_level": 0,
        }
    )
    producer.produce(TOPIC, word.encode(), on_delivery=lambda error, _: answers.append(error))
    assert producer.flush(2 * _SECONDS) == 0
    assert answers == [None]


def _read_records(brokers: str) -> set[str]:
    consumer = Consumer(
        {"bootstrap.servers": brokers, "group.id": "words", "enable.auto.commit": False, "log_level": 0}
    )
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=_SECONDS)
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        messages = consumer.consume(end, timeout=_SECONDS)
        assert len(messages) == end
        return {(message.value() or b"").decode() for message in messages}
    finally:
        consumer.close()


def _topic_nodes(brokers: str) -> tuple[int, set[int]]:
    metadata = AdminClient({"bootstrap.servers": brokers, "log_level": 0}).list_topics(
        TOPIC, timeout=_SECONDS
    )
    partition = metadata.topics[TOPIC].partitions[0]
    return partition.leader, set(partition.isrs)


async def _ask_etcd(endpoints: str, path: str, request: dict[str, str]) -> dict[str, Any]:
    """The first endpoint's answer; those that do not answer are passed over."""
    failure: OSError | None = None
    for endpoint in endpoints.split(","):
        try:
            return await asyncio.to_thread(_post, f"http://{endpoint}/v3/{path}", request)
        except OSError as error:
            failure = error
    raise ConnectionError(f"no etcd answers at {endpoints}") from failure


def _post(url: str, request: dict[str, str]) -> dict[str, Any]:
    content = json.dumps(request).encode()
    with urllib.request.urlopen(urllib.request.Request(url, content), timeout=_SECONDS) as answer:
        decoded = json.load(answer)
    assert isinstance(decoded, dict)
    return decoded


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
