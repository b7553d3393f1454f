"""One conversation with the cluster about its topics; the only place that reads librdkafka's errors for it.

AdminClient answers through futures that its own thread completes, so a wait is a plain `await` that can be
cancelled, and no thread of ours is held by a broker that does not answer. Only closing may block, because it
joins threads that can hang in a name lookup: that happens in a daemon thread which nobody waits for.

Every request of an AdminClient goes to the cluster's controller, and with KRaft the brokers name any broker
they believe alive as that, another one in each answer. For the seconds until they notice that a broker has
died they may name the dead one, and librdkafka waits for it for as long as it is allowed to, beside healthy
brokers. The remedy is a short time per request and a new client for the next try. A client is cheap: a
millisecond, then one connection.

Who is to blame for an error: librdkafka's own codes are negative and mean that no broker was reached; a
broker's positive ones are its judgement on a topic, except the few that pass by themselves, because brokers
learn of a new topic one after the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from threading import Thread
from types import TracebackType
from typing import Any, NamedTuple, Self

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, ConfigResource  # type: ignore[attr-defined]
from confluent_kafka.cimpl import NewTopic

from mainspring.kafka.topic_rules import TopicSettings
from mainspring.schema.errors import InvalidSetting, KafkaUnavailable, TopicRefused
from mainspring.settings import PREFIX, KafkaSettings

_PASSING = frozenset(
    {
        KafkaError.TOPIC_ALREADY_EXISTS,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_CONTROLLER,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.THROTTLING_QUOTA_EXCEEDED,
    }
)
_FORBIDDEN = frozenset({KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED})


class Layout(NamedTuple):
    """How a topic lies in the cluster: the fewest copies that any of its partitions has."""

    partitions: int
    copies: int


class Answers(NamedTuple):
    """What was answered by topic; one that is in neither is not known yet: ask again."""

    found: dict[str, Any]
    refused: dict[str, TopicRefused]


class Admin:
    """`async with Admin(…) as admin:` is one conversation; `hear` is told of troubles, the last one counts.

    Each request raises KafkaUnavailable when it is not answered within `request_seconds`.
    """

    def __init__(self, settings: KafkaSettings, request_seconds: float, hear: Callable[[str], None]) -> None:
        self._brokers = settings.brokers
        self._request_seconds = request_seconds
        self._hear = hear
        configuration: dict[str, Any] = {
            **settings.librdkafka(),
            "client.id": "mainspring-topics",
            "log_level": 0,  # librdkafka would write to stderr; what it says is in our errors
            "error_cb": self._on_error,
        }
        try:
            self._client = AdminClient(configuration)
        except KafkaException as error:
            raise InvalidSetting(f"{PREFIX}KAFKA", _fault(error).str()) from error

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        Thread(target=self._client.__exit__, args=(None, None, None), name="kafka-close", daemon=True).start()

    async def brokers(self) -> int:
        """How many brokers the cluster has now."""
        asked = self._client.describe_cluster(request_timeout=self._request_seconds)
        try:
            return len((await asyncio.wrap_future(asked)).nodes)
        except KafkaException as error:
            raise self._unavailable(_fault(error)) from error

    async def layouts(self, names: Iterable[str]) -> Answers:
        """A `Layout` for each topic that exists."""
        topics = TopicCollection(list(names))
        asked = self._client.describe_topics(topics, request_timeout=self._request_seconds)
        described, refused = await self._answers(asked)
        return Answers({name: _layout(topic.partitions) for name, topic in described.items()}, refused)

    async def configurations(self, names: Iterable[str]) -> Answers:
        """The configuration of each topic by name and value, or None where this login may not read it."""
        resources = {name: ConfigResource(ConfigResource.Type.TOPIC, name) for name in names}
        asked = self._client.describe_configs(list(resources.values()), request_timeout=self._request_seconds)
        answers = await self._answers({resource.name: future for resource, future in asked.items()})
        found = {
            name: {entry.name: entry.value for entry in entries.values() if entry.value is not None}
            for name, entries in answers.found.items()
        }
        hidden = {name for name, refusal in answers.refused.items() if _is_forbidden(refusal)}
        refused = {name: refusal for name, refusal in answers.refused.items() if name not in hidden}
        return Answers(found | dict.fromkeys(hidden), refused)

    async def create(self, names: Iterable[str], settings: TopicSettings, brokers: int) -> Answers:
        """Make topics. One that somebody else made at the same moment is in neither answer: look again."""
        topics = [
            NewTopic(
                name,
                num_partitions=settings.partitions,
                replication_factor=settings.copies(brokers),
                config=settings.configuration(),
            )
            for name in names
        ]
        asked = self._client.create_topics(topics, request_timeout=self._request_seconds)
        return await self._answers(asked)

    async def delete(self, names: Iterable[str]) -> Answers:
        """Delete topics, with all that lies in them; one that is not there is in neither answer."""
        asked = self._client.delete_topics(list(names), request_timeout=self._request_seconds)
        return await self._answers(asked)

    async def _answers(self, asked: Mapping[str, Future[Any]]) -> Answers:
        answers = Answers({}, {})
        for name, future in asked.items():
            try:
                answers.found[name] = await asyncio.wrap_future(future)
            except KafkaException as error:
                fault = _fault(error)
                if fault.code() < 0 or fault.code() == KafkaError.SASL_AUTHENTICATION_FAILED:
                    raise self._unavailable(fault) from error
                if fault.code() in _PASSING:
                    self._hear(fault.str())
                else:
                    answers.refused[name] = _refusal(name, error)
        return answers

    def _unavailable(self, fault: KafkaError) -> KafkaUnavailable:
        self._hear(fault.str())
        self._client.poll(0)  # delivers to `_on_error` what has been waiting, and does not block
        return KafkaUnavailable(self._brokers, fault.str())

    def _on_error(self, fault: KafkaError) -> None:
        if fault.code() != KafkaError._ALL_BROKERS_DOWN:  # says less than the one before it
            self._hear(fault.str())


def _layout(partitions: list[Any]) -> Layout:
    return Layout(len(partitions), min((len(each.replicas) for each in partitions), default=0))


def _fault(error: BaseException | None) -> KafkaError:
    assert isinstance(error, KafkaException)
    fault: KafkaError = error.args[0]
    return fault


def _refusal(name: str, error: KafkaException) -> TopicRefused:
    reason = _fault(error).str()
    if _fault(error).code() in _FORBIDDEN:
        reason += ": allow this login to Describe and Create it, or create it by hand"
    refusal = TopicRefused(name, reason)
    refusal.__cause__ = error
    return refusal


def _is_forbidden(refusal: TopicRefused) -> bool:
    return _fault(refusal.__cause__).code() in _FORBIDDEN
