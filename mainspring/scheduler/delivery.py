"""A bucket onto Kafka, whatever single partitions and topics have to say about it.

    everything acknowledged           done
    one message too large             a dead letter, written in the mark's transaction; it holds nobody
    a partition does not take it      the same messages go to the topic's other partitions
    a topic may not be written        its messages become timers in the mark's transaction, tried again later
    a topic takes nothing while       the same: five seconds of its silence hold the others, no more
      others do
    Kafka takes nothing at all        the bucket waits, and the mark with it; before every new try the
    right to
                                      publish is proved again, because waiting may have outlived the term

What was sent and not acknowledged may have arrived all the same; sending it again is harmless, because
the run's primary key removes the second copy.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import structlog

from mainspring.kafka.publisher import Publisher, Refused, Standing, Why
from mainspring.kafka.topics import Topics
from mainspring.scheduler.expansion import Parcel, in_order
from mainspring.schema.errors import KafkaUnavailable, TopicRefused
from mainspring.schema.messages import peek_shard

_PAUSE_SECONDS = 0.5

log = structlog.get_logger()


class _Again(NamedTuple):
    """Refused messages on their next way out: whole, so without a prefix."""

    topic: str
    shard: int
    bodies: Sequence[bytes]
    prefix: bytes = b""


@dataclass(slots=True)
class Delivered:
    """What became of a bucket whose every message has an end."""

    too_large: list[Refused] = field(default_factory=list)
    deferred: list[Refused] = field(default_factory=list)


class Delivery:
    """Publishes buckets."""

    def __init__(self, publisher: Publisher, topics: Topics) -> None:
        self._publisher = publisher
        self._topics = topics

    async def deliver(
        self, parcels: Iterable[Parcel], may_publish: Callable[[], Awaitable[Collection[int]]]
    ) -> Delivered:
        """Bring every message to an end; returns when Kafka, a dead letter or a timer has each of them.

        `may_publish` answers, before each try, the shards for which the right to publish is proved. What
        belongs to another one is dropped: its new leader publishes it.
        """
        result = Delivered()
        pending: Sequence[Parcel | _Again] = list(in_order(parcels))
        avoid: dict[str, set[int]] = {}
        while pending:
            partitions = await self._partitions(pending, result)
            ours = await may_publish()
            pending = [load for load in pending if load.topic in partitions and load.shard in ours]
            refused = await self._publisher.publish(pending, partitions, avoid)
            sent = Counter[str]()
            for load in pending:
                sent[load.topic] += len(load.bodies)
            pending = await self._settle(refused, sent, partitions, avoid, result)
        return result

    async def _partitions(self, pending: Sequence[Parcel | _Again], result: Delivered) -> Mapping[str, int]:
        """The topics' partitions; what belongs to a topic that is refused is deferred."""
        found: dict[str, int] = {}
        for topic in {load.topic for load in pending}:
            while topic not in found:
                try:
                    found[topic] = await self._topics.partitions(topic)
                except TopicRefused as error:
                    log.warning("topic_refused", topic=topic, reason=str(error))
                    result.deferred += [
                        Refused(topic, -1, load.prefix + body, Why.TOPIC, str(error))
                        for load in pending
                        if load.topic == topic
                        for body in load.bodies
                    ]
                    break
                except KafkaUnavailable as error:
                    log.warning("kafka_unavailable", reason=str(error))
                    await asyncio.sleep(_PAUSE_SECONDS)
        return found

    async def _settle(
        self,
        refused: list[Refused],
        sent: Counter[str],
        partitions: Mapping[str, int],
        avoid: dict[str, set[int]],
        result: Delivered,
    ) -> list[_Again]:
        """Sort the refusals: what is to be tried again."""
        again: defaultdict[str, list[Refused]] = defaultdict(list)
        for message in refused:
            if message.why is Why.TOO_LARGE:
                result.too_large.append(message)
            elif message.why is Why.TOPIC:
                result.deferred.append(message)
            else:
                again[message.topic].append(message)
        others_took = len(refused) < sent.total()
        loads: list[_Again] = []
        for topic, messages in again.items():
            log.warning("messages_refused", topic=topic, messages=len(messages), reason=messages[0].reason)
            whole = len(messages) == sent[topic]
            tried = avoid.setdefault(topic, set())
            tried |= {message.partition for message in messages}
            if len(tried) >= partitions[topic]:
                tried.clear()
                if whole and await self._is_stuck(topic, others_took=others_took):
                    result.deferred += messages
                    continue
            loads += _again(topic, messages)
        if loads and not others_took:
            await asyncio.sleep(_PAUSE_SECONDS)
        return loads

    async def _is_stuck(self, topic: str, *, others_took: bool) -> bool:
        """Whether it is this topic that takes nothing, and not Kafka as a whole."""
        return others_took or await self._publisher.standing(topic) is Standing.BROKEN


def _again(topic: str, messages: Iterable[Refused]) -> list[_Again]:
    values: defaultdict[int, list[bytes]] = defaultdict(list)
    for message in messages:
        values[peek_shard(message.value)].append(message.value)
    return [_Again(topic, shard, bodies) for shard, bodies in values.items()]
