"""The built-in handler `kafka`: one message onto a topic of the user's, acknowledged before the run succeeds.

    topic                 required; not one of Mainspring's own, nor one of Kafka's
    key                   optional text: messages of one key stay in order in one partition
    value, value_text     a JSON value, or a text sent as it is; one of them is required
    headers               texts by name; ours come beside them

Who is authoritative: the brokers. The producer is idempotent with `acks=all`, so an acknowledged message is
in all in-sync replicas, once. One whose acknowledgement did not come in time may be there all the same, and
the next attempt sends it again; the header `idempotency-key` is the same for every attempt.

    no such topic, no permission, too large    a dead letter at once: the next attempt would end the same
    anything else                              an ordinary failure, retried

`produce` only puts the message into the producer's queue. Acknowledgements are collected by a thread that
lives while any is outstanding, so the event loop never waits for Kafka.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from mainspring.schedule import format_instant
from mainspring.settings import KafkaSettings
from mainspring.worker.builtin import fields
from mainspring.worker.builtin.failures import InvalidPayload, RequestFailed
from mainspring.worker.builtin.seams import RunContext
from mainspring.worker.signals import NotRetryable

ProducerFactory = Callable[[], Producer]
Headers = Sequence[tuple[str, bytes]]

MESSAGE_SECONDS = 30.0
"""How long a message may wait for its acknowledgement."""
MOST_HEADERS = 64
LONGEST_KEY = 65_536
LONGEST_HEADER = 65_536

_FIELDS = ("topic", "key", "value", "value_text", "headers")
_ANY_VALUE = ("value",)
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_RESERVED_TOPICS = ("mainspring.", "__")
_RESERVED_HEADERS = ("mainspring-", "idempotency-key")
_POLL_SECONDS = 0.1
_UNMENDABLE = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.INVALID_MSG_SIZE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.POLICY_VIOLATION,
        KafkaError.INVALID_RECORD,
    }
)


def make_producer(settings: KafkaSettings, *, client_id: str) -> Producer:
    """A producer as this handler needs it: every message is reported, and each by itself."""
    return Producer(
        settings.librdkafka()
        | {
            "client.id": client_id,
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": 0,
            # A broker that finds a batch too large says so of every message in it, the innocent ones too.
            "batch.num.messages": 1,
            # Larger than any topic allows by default: it is the topic that decides.
            "message.max.bytes": 2_000_000,
            "message.timeout.ms": int(MESSAGE_SECONDS * 1000),
            # Longer, and a topic that does not exist would only ever look like a slow one.
            "topic.metadata.propagation.max.ms": 5000,
            "reconnect.backoff.max.ms": 1000,
            "log_level": 0,  # it would write to stderr; what it has to say is in the reports
        }
    )


class KafkaHandler:
    """Publishes the message that a job's payload describes; one producer for all, made at the first."""

    def __init__(self, producer_factory: ProducerFactory) -> None:
        self._make = producer_factory
        self._line: _Line | None = None

    async def __call__(self, context: RunContext) -> dict[str, Any]:
        wanted = OutgoingMessage.from_payload(context.payload)
        seconds = context.remaining().total_seconds()
        line = self._open_line()
        try:
            async with asyncio.timeout(seconds):
                sent = await line.send(wanted, [*wanted.headers, *_our_headers(context)])
        except KafkaException as error:
            raise _translate(wanted.topic, error.args[0]) from error
        except TimeoutError as error:
            raise TimeoutError(f"{wanted.topic} had not acknowledged within {seconds:.3g} s") from error
        return {"topic": wanted.topic, "partition": sent.partition(), "offset": sent.offset()}

    def _open_line(self) -> _Line:
        """An idempotent producer that met a fatal error sends nothing any more: the next run gets another."""
        if self._line is None or self._line.broken:
            self._line = _Line(self._make())
        return self._line


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingMessage:
    """What a payload asks for."""

    topic: str
    key: bytes | None
    value: bytes
    headers: Headers

    @classmethod
    def from_payload(cls, payload: Any) -> OutgoingMessage:
        """Check a payload; raises InvalidPayload for the first rule it breaks."""
        given = fields.read_payload(payload, "kafka", _FIELDS, _ANY_VALUE)
        if "topic" not in given:
            raise InvalidPayload("topic", "is missing")
        value = fields.one_of_both(given, "value", "value_text")
        if value is None:
            raise InvalidPayload("value", "is missing; so is value_text")
        key = fields.read_text("key", given["key"], LONGEST_KEY).encode() if "key" in given else None
        return cls(
            topic=_read_topic(given["topic"]),
            key=key,
            value=value,
            headers=_read_headers(given.get("headers", {})),
        )


class _Line:
    """A producer and the thread that collects its reports."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._lock = threading.Lock()
        self._outstanding = 0
        self._collecting = False
        self.broken = False

    async def send(self, wanted: OutgoingMessage, headers: Headers) -> Message:
        """Wait for the acknowledgement; raises KafkaException.

        A wait that is cancelled leaves the message under way: it may still arrive.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Message] = loop.create_future()

        def report(error: KafkaError | None, message: Message) -> None:
            self._count(-1)
            with suppress(RuntimeError):  # the loop was closed meanwhile: nobody waits any more
                loop.call_soon_threadsafe(_settle, answer, error, message)

        await self._enqueue(wanted, headers, report)
        try:
            return await answer
        except KafkaException as error:
            self.broken |= error.args[0].fatal() or error.args[0].code() == KafkaError._FATAL
            raise

    async def _enqueue(
        self, wanted: OutgoingMessage, headers: Headers, report: Callable[[KafkaError | None, Message], None]
    ) -> None:
        """A full queue is backpressure: acknowledgements make room, or the run's time ends."""
        while True:
            self._count(1)
            try:
                self._producer.produce(
                    wanted.topic, wanted.value, wanted.key, headers=list(headers), on_delivery=report
                )
            except BufferError:
                self._count(-1)
                await asyncio.sleep(_POLL_SECONDS)
            except BaseException:
                self._count(-1)
                raise
            else:
                return

    def _count(self, change: int) -> None:
        """Outstanding reports; the thread is there exactly while there are some."""
        with self._lock:
            self._outstanding += change
            if self._outstanding and not self._collecting:
                self._collecting = True
                threading.Thread(target=self._collect, name="mainspring-kafka-handler", daemon=True).start()

    def _collect(self) -> None:
        while True:
            self._producer.poll(_POLL_SECONDS)
            with self._lock:
                if not self._outstanding:
                    self._collecting = False
                    return


def _settle(answer: asyncio.Future[Message], error: KafkaError | None, message: Message) -> None:
    if answer.done():  # cancelled, or out of time
        return
    if error is not None:
        answer.set_exception(KafkaException(error))
    else:
        answer.set_result(message)


def _translate(topic: str, error: KafkaError) -> NotRetryable | RequestFailed:
    text = f"{topic} did not take the message: {error.str()}"
    return NotRetryable(text) if error.code() in _UNMENDABLE else RequestFailed(text)


def _our_headers(context: RunContext) -> Headers:
    ours = {
        "idempotency-key": context.idempotency_key,
        "mainspring-run": context.run_id,
        "mainspring-scheduled-at": format_instant(context.scheduled_at),
        "mainspring-attempt": str(context.attempt),
    }
    return [(name, value.encode()) for name, value in ours.items()]


def _read_topic(value: Any) -> str:
    topic = fields.read_text("topic", value, 249)
    if not _TOPIC.fullmatch(topic) or topic in (".", ".."):
        raise InvalidPayload("topic", "is not 1–249 letters, digits, dots, underscores or hyphens")
    for prefix in _RESERVED_TOPICS:
        if topic.startswith(prefix):
            raise InvalidPayload("topic", f"begins with {prefix}, which is not for jobs to write to")
    return topic


def _read_headers(value: Any) -> Headers:
    given: Mapping[str, Any] = fields.read_object("headers", value, MOST_HEADERS)
    return [(_read_name(name), _read_header(name, content)) for name, content in given.items()]


def _read_name(name: str) -> str:
    field = f"headers.{fields.shorten(name)}"
    fields.read_text(field, name, 249)
    if name.lower().startswith(_RESERVED_HEADERS):
        raise InvalidPayload(field, "is set by the handler itself")
    return name


def _read_header(name: str, value: Any) -> bytes:
    return fields.read_text(f"headers.{fields.shorten(name)}", value, LONGEST_HEADER, shortest=0).encode()
