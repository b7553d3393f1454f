"""A bucket onto Kafka, whatever single partitions and topics have to say about it.

    everything acknowledged        done
    one message too large          a dead letter, written in the mark's transaction; it holds nobody
    a partition does not take it   the same messages go to the topic's other partitions
    a topic may not be written     its messages become timers in the mark's transaction, tried again later
    a topic takes nothing while    the same, after a second try on other partitions: a topic's silence holds
      others do                    the others for two tries, no more
    a topic takes nothing, and     the same, once all its partitions have been tried: at once where none has a
      there is no other            leader, after trying them all again where the cluster calls it writable
    Kafka takes nothing at all     the bucket waits, and the mark with it; before every new try the right to
                                   publish is proved again, because waiting may have outlived the term

A try lasts five seconds at most (MESSAGE_SECONDS), and so does the question how many partitions a topic
has; a topic about which nobody answers has taken nothing. A topic whose messages were deferred *rests*:
what comes for it meanwhile is deferred at once, so that it does not cost every bucket its tries. It rests
for half a minute, twice as long each time it is found silent again, five minutes at most. What was sent
and not acknowledged may have arrived all the same; sending it again is harmless, because the run's
primary key removes the second copy.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import structlog

from mainspring.clock import Clock, SystemClock
from mainspring.kafka.publisher import MESSAGE_SECONDS, Publisher, Refused, Standing, Why
from mainspring.kafka.topics import Topics
from mainspring.scheduler.expansion import Parcel, in_order
from mainspring.schema.errors import KafkaUnavailable, TopicRefused
from mainspring.schema.messages import peek_shard

REST_SECONDS = 30.0
LONGEST_REST_SECONDS = 300.0

_PAUSE_SECONDS = 0.5
_NOWHERE = -1
"""In place of a partition: it was not sent to any."""

log = structlog.get_logger()


class _Again(NamedTuple):
    """Refused messages on their next way out: whole, so without a prefix."""

    topic: str
    shard: int
    bodies: Sequence[bytes]
    prefix: bytes = b""


Loads = Sequence[Parcel | _Again]


class _Rest(NamedTuple):
    """A topic that is left alone until then, on the monotonic clock, and how long in all."""

    until: float
    length: float


@dataclass(slots=True)
class Delivered:
    """What became of a bucket whose every message has an end."""

    too_large: list[Refused] = field(default_factory=list)
    deferred: list[Refused] = field(default_factory=list)

    def of(self, shards: Collection[int]) -> Delivered:
        """Only what belongs to these shards."""
        return Delivered(
            [message for message in self.too_large if peek_shard(message.value) in shards],
            [message for message in self.deferred if peek_shard(message.value) in shards],
        )


@dataclass(slots=True)
class _Way:
    """What is known of the way to one topic, since it last took something."""

    avoid: set[int] = field(default_factory=set)  # partitions that did not take it
    silent: int = 0  # tries in a row in which it took nothing
    alone: bool = False  # in one of them others did
    writable: bool = False  # the cluster said so, and yet it took nothing
    exhausted: bool = False  # the last try was the last way to try

    def learn(self, tried: Iterable[int], partitions: int, *, whole: bool, others_took: bool) -> None:
        """One more try: these partitions did not take what they were sent."""
        self.silent = self.silent + 1 if whole else 0
        self.alone = whole and (self.alone or others_took)
        self.writable = whole and self.writable
        self.avoid |= {partition for partition in tried if partition != _NOWHERE}
        # About a topic of which nobody knows the partitions, asking twice is all that can be done.
        self.exhausted = len(self.avoid) >= partitions if partitions else self.silent > 1
        if self.exhausted:
            self.avoid.clear()


class Delivery:
    """Publishes buckets."""

    def __init__(self, publisher: Publisher, topics: Topics, clock: Clock | None = None) -> None:
        self._publisher = publisher
        self._topics = topics
        self._clock = clock or SystemClock()
        self._rests: dict[str, _Rest] = {}

    async def deliver(
        self, parcels: Iterable[Parcel], may_publish: Callable[[], Awaitable[Collection[int]]]
    ) -> Delivered:
        """Bring every message to an end; returns when Kafka, a dead letter or a timer has each of them.

        `may_publish` answers, before each try, the shards for which the right to publish is proved. What
        belongs to another one is dropped: its new leader publishes it.
        """
        result = Delivered()
        pending = self._pass_by(list(in_order(parcels)), result)
        ways: defaultdict[str, _Way] = defaultdict(_Way)
        while pending:
            partitions = await self._partitions(pending, result)
            ours = await may_publish()
            pending = [load for load in pending if load.topic in partitions and load.shard in ours]
            refused = await self._publish(pending, partitions, ways)
            pending = await self._settle(refused, _count(pending), partitions, ways, result)
        return result

    def _pass_by(self, loads: Loads, result: Delivered) -> Loads:
        """Defer what is for a topic that rests: what is to be sent."""
        now = self._clock.monotonic()
        resting = {topic for topic, rest in self._rests.items() if now < rest.until}
        for topic in resting & {load.topic for load in loads}:
            result.deferred += _unsent(
                topic, loads, Why.PARTITION, "the topic took nothing a short while ago"
            )
        return [load for load in loads if load.topic not in resting]

    def _let_rest(self, topic: str) -> None:
        before = self._rests.get(topic)
        length = REST_SECONDS if before is None else min(before.length * 2, LONGEST_REST_SECONDS)
        self._rests[topic] = _Rest(self._clock.monotonic() + length, length)
        self._topics.forget(topic)  # it may have been removed; see `_settle`

    async def _partitions(self, pending: Loads, result: Delivered) -> Mapping[str, int]:
        """How many each topic has, 0 where nobody answers; what a refused topic was to get is deferred."""
        topics = dict.fromkeys(load.topic for load in pending)
        async with asyncio.TaskGroup() as asking:
            asked = {topic: asking.create_task(self._ask(topic), name=f"ask-{topic}") for topic in topics}
        found: dict[str, int] = {}
        for topic, task in asked.items():
            answer = task.result()
            if isinstance(answer, TopicRefused):
                log.warning("topic_refused", topic=topic, reason=str(answer))
                result.deferred += _unsent(topic, pending, Why.TOPIC, str(answer))
            else:
                found[topic] = answer
        return found

    async def _ask(self, topic: str) -> int | TopicRefused:
        try:
            async with asyncio.timeout(MESSAGE_SECONDS):
                return await self._topics.partitions(topic)
        except TopicRefused as refusal:
            return refusal
        except (KafkaUnavailable, TimeoutError) as error:
            log.warning("topic_unknown", topic=topic, reason=str(error) or "no answer in time")
            return 0

    async def _publish(
        self, pending: Loads, partitions: Mapping[str, int], ways: Mapping[str, _Way]
    ) -> list[Refused]:
        """One try: what was not taken."""
        known = {topic: count for topic, count in partitions.items() if count}
        loads = [load for load in pending if load.topic in known]
        avoid = {topic: way.avoid for topic, way in ways.items()}
        refused = list(await self._publisher.publish(loads, known, avoid))
        for topic in partitions.keys() - known.keys():
            refused += _unsent(topic, pending, Why.PARTITION, "nobody answers how many partitions it has")
        return refused

    async def _settle(
        self,
        refused: Collection[Refused],
        sent: Counter[str],
        partitions: Mapping[str, int],
        ways: defaultdict[str, _Way],
        result: Delivered,
    ) -> Loads:
        """Sort the refusals: what is to be tried again."""
        again = _sort_out(refused, result)
        for topic in {message.topic for message in refused if message.why is Why.TOPIC}:
            self._topics.forget(topic)  # it may have been removed: the next look makes it again
        for topic in sent.keys() - again.keys():
            self._rests.pop(topic, None)
        others_took = len(refused) < sent.total()
        loads: list[_Again] = []
        for topic, messages in again.items():
            log.warning("messages_refused", topic=topic, messages=len(messages), reason=messages[0].reason)
            tried = {message.partition for message in messages}
            whole = len(messages) == sent[topic]
            ways[topic].learn(tried, partitions[topic], whole=whole, others_took=others_took)
            if await self._is_stuck(topic, ways[topic], others_took=others_took):
                result.deferred += messages
                self._let_rest(topic)
            else:
                loads += _again(topic, messages)
        if loads and not others_took:
            await asyncio.sleep(_PAUSE_SECONDS)
        return loads

    async def _is_stuck(self, topic: str, way: _Way, *, others_took: bool) -> bool:
        """Whether it is this topic that takes nothing, and not a partition, nor Kafka as a whole."""
        if not way.silent or not (way.exhausted or (way.alone and way.silent > 1)):
            return False
        if others_took and way.exhausted:
            return True
        standing = await self._publisher.standing(topic)
        said_so, way.writable = way.writable, standing is Standing.WRITABLE
        return standing is Standing.BROKEN or (way.writable and (way.alone or said_so))


def _sort_out(refused: Iterable[Refused], result: Delivered) -> Mapping[str, list[Refused]]:
    """What another partition may take, by topic."""
    again: defaultdict[str, list[Refused]] = defaultdict(list)
    for message in refused:
        if message.why is Why.TOO_LARGE:
            result.too_large.append(message)
        elif message.why is Why.TOPIC:
            result.deferred.append(message)
        else:
            again[message.topic].append(message)
    return again


def _unsent(topic: str, pending: Loads, why: Why, reason: str) -> list[Refused]:
    """All that a topic was to get, as refused."""
    return [
        Refused(topic, _NOWHERE, load.prefix + body, why, reason)
        for load in pending
        if load.topic == topic
        for body in load.bodies
    ]


def _count(loads: Loads) -> Counter[str]:
    """Messages by topic."""
    found = Counter[str]()
    for load in loads:
        found[load.topic] += len(load.bodies)
    return found


def _again(topic: str, messages: Iterable[Refused]) -> list[_Again]:
    values: defaultdict[int, list[bytes]] = defaultdict(list)
    for message in messages:
        values[peek_shard(message.value)].append(message.value)
    return [_Again(topic, shard, bodies) for shard, bodies in values.items()]
