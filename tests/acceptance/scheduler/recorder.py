"""What reached Kafka: every message of one pool's topics, from the beginning.

A thread of its own reads; it survives every outage of Kafka and reads on where it stopped. Messages are kept
by topic, partition and offset, so one that is fetched twice is recorded once: what is in here twice was
published twice.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple
from uuid import uuid4

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, TopicPartition

from mainspring.schema.messages import decode
from mainspring.schema.states import Lane, topic_of
from mainspring.settings import KafkaSettings
from tests.acceptance.waiting import until

_ANSWER_SECONDS = 2.0


class Run(NamedTuple):
    """What makes two messages the same run."""

    job_id: int
    scheduled_at: int  # microseconds since 1970
    attempt: int


class Record(NamedTuple):
    """One message."""

    run: Run
    second: int
    shard: int
    epoch: int
    position: int
    version: int
    lane: Lane
    partition: int
    offset: int
    published_at: float  # when its producer made it, to the millisecond


@dataclass(slots=True)
class Trace:
    """What one term has published so far."""

    first_at: float
    last_at: float
    through: int
    messages: int = 1


class Recorder:
    """Reads the topics of a pool as they appear and grow."""

    def __init__(self, settings: KafkaSettings, pool: str) -> None:
        self._lanes = {topic_of(pool, lane): lane for lane in Lane}
        self._settings = settings
        self._consumer = self._connect()
        self._next: dict[tuple[str, int], int] = {}  # the offset after the last one recorded
        self._found: dict[tuple[str, int, int], Record] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._read, name="recorder", daemon=True)
        self.terms: dict[tuple[int, int], Trace] = {}
        """By shard and epoch."""

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
        self._consumer.close()

    @property
    def records(self) -> list[Record]:
        return list(self._found.values())

    def reached(self, shard: int, second: int, *, above_epoch: int = -1) -> bool:
        """Whether this shard has published a second that late, under an epoch above this one."""
        return any(
            trace.through >= second
            for (of, epoch), trace in list(self.terms.items())
            if of == shard and epoch > above_epoch
        )

    async def caught_up(self) -> None:
        """Wait until everything that is in the topics now is recorded."""
        await until(
            lambda: len({topic for topic, _ in self._next}) == len(self._lanes), "all lanes are topics"
        )
        ends = await asyncio.to_thread(self._ends)
        await until(
            lambda: all(self._next[place] >= end for place, end in ends.items()),
            "the recorder has read it all",
        )

    def _ends(self) -> dict[tuple[str, int], int]:
        """On a connection of its own: on the reader's, each question would wait behind a long fetch."""
        asking = self._connect()
        try:
            return {
                (topic, partition): asking.get_watermark_offsets(
                    TopicPartition(topic, partition), timeout=30
                )[1]
                for topic, partition in list(self._next)
            }
        finally:
            asking.close()

    def _connect(self) -> Consumer:
        return Consumer(
            self._settings.librdkafka()
            | {
                "group.id": f"recorder-{uuid4().hex}",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "fetch.queue.backoff.ms": 20,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )

    def _read(self) -> None:
        while not self._stopping.is_set():
            if len(self._next) == 0 or len({topic for topic, _ in self._next}) < len(self._lanes):
                self._look_for_topics()
            for message in self._consumer.consume(5000, timeout=0.1):
                if message.error() is None:
                    self._record(message)

    def _look_for_topics(self) -> None:
        try:
            topics = self._consumer.list_topics(timeout=_ANSWER_SECONDS).topics
        except KafkaException:
            return
        places = [
            TopicPartition(topic, partition, OFFSET_BEGINNING)
            for topic in self._lanes
            if topic in topics
            for partition in topics[topic].partitions
            if (topic, partition) not in self._next
        ]
        if places:
            self._consumer.incremental_assign(places)
            self._next |= {(place.topic, place.partition): 0 for place in places}

    def _record(self, message: Message) -> None:
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        value = message.value()
        assert topic is not None
        assert partition is not None
        assert offset is not None
        assert value is not None
        decoded = decode(value)
        run = Run(decoded.job.job_id, decoded.scheduled_at, decoded.attempt)
        published_at = message.timestamp()[1] / 1000
        record = Record(
            run,
            decoded.second,
            decoded.shard,
            decoded.epoch,
            decoded.position,
            decoded.job.version,
            self._lanes[topic],
            partition,
            offset,
            published_at,
        )
        if (topic, partition, offset) not in self._found:
            self._found[topic, partition, offset] = record
            self._trace(record)
        self._next[topic, partition] = offset + 1

    def _trace(self, record: Record) -> None:
        trace = self.terms.get((record.shard, record.epoch))
        if trace is None:
            self.terms[record.shard, record.epoch] = Trace(
                record.published_at, record.published_at, record.second
            )
            return
        trace.first_at = min(trace.first_at, record.published_at)
        trace.last_at = max(trace.last_at, record.published_at)
        trace.through = max(trace.through, record.second)
        trace.messages += 1


def by_run(records: Iterable[Record]) -> dict[Run, list[Record]]:
    """The messages of each run, in order of publication."""
    found: dict[Run, list[Record]] = {}
    for record in sorted(records, key=lambda each: (each.published_at, each.epoch)):
        found.setdefault(record.run, []).append(record)
    return found
