"""The consumer groups of a pool, each named like its topic: where they stand, and how to make them forget."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from mainspring.schema.states import Lane, topic_of

_SECONDS = 30.0


async def messages(kafka: Mapping[str, str], pool: str) -> int:
    """How many messages the pool's lanes hold."""
    return await asyncio.to_thread(lambda: sum(sum(_ends(kafka, topic).values()) for topic in _topics(pool)))


async def is_read_to_the_end(kafka: Mapping[str, str], pool: str) -> bool:
    """Whether the groups have committed all there is."""
    return await asyncio.to_thread(lambda: all(_is_read(kafka, topic) for topic in _topics(pool)))


async def forget(kafka: Mapping[str, str], pool: str) -> None:
    """Delete the groups and with them how far they have read; no member may be left."""
    with AdminClient(dict(kafka)) as admin:
        asked = admin.delete_consumer_groups(_topics(pool), request_timeout=_SECONDS)
        for future in asked.values():
            await asyncio.wrap_future(future)


def _topics(pool: str) -> list[str]:
    return [topic_of(pool, lane) for lane in Lane]


def _ends(kafka: Mapping[str, str], topic: str) -> dict[int, int]:
    """Where each partition ends; all begin at zero."""
    with AdminClient(dict(kafka)) as admin:
        partitions = admin.list_topics(topic, timeout=_SECONDS).topics[topic].partitions
        asked = admin.list_offsets(
            {TopicPartition(topic, partition): OffsetSpec.latest() for partition in partitions},  # type: ignore[no-untyped-call]
            request_timeout=_SECONDS,
        )
        return {place.partition: future.result().offset for place, future in asked.items()}


def _is_read(kafka: Mapping[str, str], topic: str) -> bool:
    ends = _ends(kafka, topic)
    with AdminClient(dict(kafka)) as admin:
        places = [TopicPartition(topic, partition) for partition in ends]
        asked = admin.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(topic, places)], request_timeout=_SECONDS
        )
        [stands] = [future.result().topic_partitions for future in asked.values()]
    return all(max(0, place.offset) >= ends[place.partition] for place in stands)
