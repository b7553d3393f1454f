"""The topics of a scenario: stamped by the broker when it appends, and read back from beginning to end.

LogAppendTime is somebody else's clock reading than the scheduler's: lateness of publication is what the
broker says.
"""

from __future__ import annotations

import time
from array import array
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.harness.cluster import Cluster
from bench.harness.keys import run_key
from mainspring.schema.messages import decode
from mainspring.schema.states import Lane, topic_of

PARTITIONS = 8


class Record(NamedTuple):
    """A message as it lies in a topic."""

    value: bytes
    appended_ms: int


@dataclass(slots=True)
class Published:
    """What was read of many messages, a column each: three million of them must fit into memory."""

    job_ids: array[int] = field(default_factory=lambda: array("q"))
    scheduled: array[int] = field(default_factory=lambda: array("q"))
    """Microseconds since 1970."""
    seconds: array[int] = field(default_factory=lambda: array("q"))
    shards: array[int] = field(default_factory=lambda: array("i"))
    epochs: array[int] = field(default_factory=lambda: array("q"))
    appended: array[float] = field(default_factory=lambda: array("d"))
    """Seconds since 1970."""

    def __len__(self) -> int:
        return len(self.job_ids)

    def add(self, record: Record) -> None:
        message = decode(record.value)
        self.job_ids.append(message.job.job_id)
        self.scheduled.append(message.scheduled_at)
        self.seconds.append(message.second)
        self.shards.append(message.shard)
        self.epochs.append(message.epoch)
        self.appended.append(record.appended_ms / 1000)

    def counts(self) -> Counter[int]:
        """How often each run was published."""
        return Counter(map(run_key, self.job_ids, self.scheduled))

    def lateness_ms(self) -> list[float]:
        """From due to appended, in order of size."""
        return sorted((at - second) * 1000 for at, second in zip(self.appended, self.seconds, strict=True))


def lanes(pool: str = "default") -> list[str]:
    """The topics in which the runs of a pool may lie: on time, and late."""
    return [topic_of(pool, lane) for lane in (Lane.NORMAL, Lane.CATCHUP)]


def make_topic(cluster: Cluster, topic: str) -> None:
    """A topic as the scheduler would make it, but stamped by the broker."""
    client = AdminClient({**cluster.settings.kafka.librdkafka()})
    configuration = {"message.timestamp.type": "LogAppendTime", "retention.ms": str(3 * 86_400_000)}
    made = client.create_topics([NewTopic(topic, num_partitions=PARTITIONS, config=configuration)])
    made[topic].result(timeout=30)


def make_topics(cluster: Cluster) -> None:
    """Those of the default pool."""
    for topic in lanes():
        make_topic(cluster, topic)


def read_back(cluster: Cluster, topics: Collection[str]) -> Iterator[Record]:
    """Everything in these topics, from the beginning to what is their end now."""
    consumer = Consumer(
        cluster.settings.kafka.librdkafka()
        | {"group.id": f"bench-{time.time_ns()}", "enable.auto.commit": False, "fetch.queue.backoff.ms": 10}
    )
    places = [TopicPartition(topic, number, 0) for topic in topics for number in range(PARTITIONS)]
    left = sum(consumer.get_watermark_offsets(place, timeout=30)[1] for place in places)
    consumer.assign(places)
    try:
        while left > 0:
            for message in consumer.consume(5000, timeout=10):
                if message.error() is None:
                    left -= 1
                    yield Record(message.value() or b"", message.timestamp()[1])
    finally:
        consumer.close()


def published(cluster: Cluster) -> Published:
    """What has been published for the default pool, copies included."""
    found = Published()
    for record in read_back(cluster, lanes()):
        found.add(record)
    return found
