"""The producer: messages leave in batches, and every batch ends in an answer about each of its messages.

One idempotent producer per process, `acks=all`. Only failures are reported back, message by message; what was
not reported when the queue is empty has been acknowledged by all in-sync replicas. One batch at a time: the
caller waits for the answer before it sends the next.

Sending and waiting happen on a thread of their own. `produce` holds the interpreter for under a
microsecond at a time, so the event loop, and the lease keeper above all, go on while half a million
messages leave.

A message is sent to a partition by number, in runs of a thousand, so that a partition that refuses can be
left out the next time. What a refusal means is told apart here, once:

    too large    this message will never be taken: nobody should try again. A broker says it of a whole batch,
                 so it is believed only of a message that was sent alone
    topic        the topic itself is refused: it does not exist, or may not be written
    partition    not taken in time, or its leader is gone: another partition may
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from itertools import cycle
from typing import Any, NamedTuple, Protocol

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from mainspring.settings import KafkaSettings

MESSAGE_SECONDS = 5.0
"""How long a message may wait for its acknowledgement before it counts as refused by its partition."""

_RUN = 1000
_FLUSH_SECONDS = 0.1
_ANSWER_SECONDS = 2.0
_TOO_LARGE = {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_MSG_SIZE, KafkaError.RECORD_LIST_TOO_LARGE}
_TOPIC = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError.TOPIC_EXCEPTION,
    KafkaError.POLICY_VIOLATION,
}


class Load(Protocol):
    """What is sent: messages of one topic with a common prefix."""

    @property
    def topic(self) -> str: ...
    @property
    def prefix(self) -> bytes: ...
    @property
    def bodies(self) -> Sequence[bytes]: ...


class Why(StrEnum):
    """Why a message was not taken."""

    TOO_LARGE = "too_large"
    TOPIC = "topic"
    PARTITION = "partition"


class Refused(NamedTuple):
    """A message that was not acknowledged."""

    topic: str
    partition: int
    value: bytes
    why: Why
    reason: str


class Standing(StrEnum):
    """What the cluster says about a topic that took nothing."""

    WRITABLE = "writable"
    BROKEN = "broken"  # the cluster answers, and the topic has no partition with a leader
    SILENT = "silent"  # the cluster does not answer


class Publisher:
    """Sends batches and waits for every acknowledgement."""

    def __init__(self, settings: KafkaSettings, *, client_id: str) -> None:
        self._refused: list[Refused] = []
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="mainspring-publisher")
        self._configuration: dict[str, Any] = settings.librdkafka() | {
            "client.id": client_id,
            "enable.idempotence": True,
            "acks": "all",
            "compression.type": "lz4",
            "linger.ms": 5,
            "batch.size": 1_000_000,
            "message.max.bytes": 2_000_000,
            "message.timeout.ms": int(MESSAGE_SECONDS * 1000),
            # A bucket of half a million overruns the default of 100,000.
            "queue.buffering.max.messages": 2_000_000,
            "queue.buffering.max.kbytes": 2_097_151,
            "delivery.report.only.error": True,
            "on_delivery": self._on_refusal,
            "reconnect.backoff.max.ms": 1000,
            "log_level": 0,  # it would write to stderr; what it has to say is in the refusals
        }
        self._together = Producer(self._configuration)
        self._singly: Producer | None = None

    async def publish(
        self,
        loads: Iterable[Load],
        partitions: Mapping[str, int],
        avoid: Mapping[str, Collection[int]] | None = None,
    ) -> list[Refused]:
        """Send everything and wait for the answers: what was refused; all else is acknowledged.

        `partitions` says how many each topic has, `avoid` which of them to leave out. The order of the
        loads is the order of leaving. A cancelled wait leaves the messages under way: they may still arrive.
        """
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._publish, loads, partitions, avoid or {})

    async def standing(self, topic: str) -> Standing:
        """Ask the cluster about a topic that took nothing."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._standing, topic)

    async def close(self) -> None:
        """Wait for what is still under way, at most as long as a message may wait."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._thread, self._together.flush, MESSAGE_SECONDS)
        self._thread.shutdown(wait=False)

    def _publish(
        self,
        loads: Iterable[Load],
        partitions: Mapping[str, int],
        avoid: Mapping[str, Collection[int]],
    ) -> list[Refused]:
        self._refused = []
        turns = {
            topic: cycle([number for number in range(count) if number not in avoid.get(topic, ())])
            for topic, count in partitions.items()
        }
        for load in loads:
            bodies = load.bodies
            for start in range(0, len(bodies), _RUN):
                partition = next(turns[load.topic])
                self._produce(load.topic, partition, load.prefix, bodies[start : start + _RUN])
        self._flush(self._together)
        return self._send_singly(self._refused)

    def _send_singly(self, refused: list[Refused]) -> list[Refused]:
        """A broker that finds a batch too large says so of each message in it: sent alone, most are taken."""
        suspects = [message for message in refused if message.why is Why.TOO_LARGE]
        if not suspects:
            return refused
        if self._singly is None:
            self._singly = Producer(self._configuration | {"batch.num.messages": 1})
        self._refused = [message for message in refused if message.why is not Why.TOO_LARGE]
        for message in suspects:
            self._produce_one(self._singly, message.topic, message.partition, message.value)
        self._flush(self._singly)
        return self._refused

    @staticmethod
    def _flush(producer: Producer) -> None:
        while producer.flush(_FLUSH_SECONDS):
            pass

    def _produce(self, topic: str, partition: int, prefix: bytes, bodies: Sequence[bytes]) -> None:
        produce = self._together.produce
        for body in bodies:
            try:
                produce(topic, prefix + body, None, partition)
            except (BufferError, KafkaException):
                self._produce_one(self._together, topic, partition, prefix + body)
        self._together.poll(0)

    def _produce_one(self, producer: Producer, topic: str, partition: int, value: bytes) -> None:
        """Send one message. A full queue is backpressure: wait until acknowledgements have made room."""
        while True:
            try:
                producer.produce(topic, value, None, partition)
            except BufferError:
                producer.poll(_FLUSH_SECONDS)
            except KafkaException as error:
                self._note(topic, partition, value, error.args[0])
                return
            else:
                return

    def _on_refusal(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._note(message.topic() or "", message.partition() or 0, message.value() or b"", error)

    def _note(self, topic: str, partition: int, value: bytes, error: KafkaError) -> None:
        self._refused.append(Refused(topic, partition, value, _why(error), error.str()))

    def _standing(self, topic: str) -> Standing:
        try:
            metadata = self._together.list_topics(topic, timeout=_ANSWER_SECONDS)
        except KafkaException:
            return Standing.SILENT
        found = metadata.topics.get(topic)
        led = [] if found is None else [part for part in found.partitions.values() if part.leader >= 0]
        return Standing.WRITABLE if led else Standing.BROKEN


def _why(error: KafkaError) -> Why:
    if error.code() in _TOO_LARGE:
        return Why.TOO_LARGE
    return Why.TOPIC if error.code() in _TOPIC else Why.PARTITION
