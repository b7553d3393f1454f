"""A topic in which runs could be lost is said to be refused; what already lies in the others is executed."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any
from uuid import uuid4

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from mainspring.local import LocalStack
from mainspring.schema.states import Lane, topic_of
from mainspring.settings import KafkaSettings, Settings
from mainspring.worker import Mainspring
from mainspring.worker.process import Worker, WorkerOptions
from tests.integration.worker.bench import PATIENCE


async def test_a_refused_topic_is_named_and_does_not_end_the_worker(
    stack: LocalStack, migrated: str, events: list[MutableMapping[str, Any]]
) -> None:
    pool = f"t-{uuid4().hex[:12]}"
    await _make_compacted(stack, topic_of(pool, Lane.NORMAL))
    settings = Settings.from_environment(stack.environment() | {"MAINSPRING_POSTGRES_DSN": migrated})
    worker = Worker(settings, WorkerOptions(pool=pool, lanes=(Lane.NORMAL,)), Mainspring(), {})
    stop = asyncio.Event()
    running = asyncio.create_task(worker.run(stop, asyncio.Event()))
    async with asyncio.timeout(PATIENCE):
        while not running.done() and not _said(events, "topic_refused", "worker_began"):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    assert not running.done()
    stop.set()
    await running
    [refused] = [event for event in events if event["event"] == "topic_refused"]
    assert refused["topic"] == topic_of(pool, Lane.NORMAL)
    assert "cleanup.policy" in refused["reason"]


async def _make_compacted(stack: LocalStack, topic: str) -> None:
    client = AdminClient({**KafkaSettings.from_environment(stack.environment()).librdkafka()})
    made = NewTopic(topic, num_partitions=1, replication_factor=1, config={"cleanup.policy": "compact"})
    await asyncio.wrap_future(client.create_topics([made])[topic])


def _said(events: list[MutableMapping[str, Any]], *names: str) -> bool:
    return {event["event"] for event in events} >= set(names)
