"""What a topic must be so that no run is lost in it and none is executed twice. Pure: facts in, words out.

A rule *refuses* where using the topic would break a promise silently, and *warns* where it works today but
will not survive something that an operator should know of.

    cleanup.policy         `delete` alone. Compaction drops all but the last message of a key, and an empty
                           policy never deletes: refused.
    retention.ms           longer than the longest outage planned for (one day by default), or a run published
                           during one is gone before a worker returns; shorter than the runs are kept (thirty
                           days), because with them go the keys that recognise a message read twice. `-1` is
                           forever, and never shorter. Otherwise refused.
    segment.ms             Kafka deletes whole segments: a message outlives its retention by up to this much.
                           Both together not shorter than the runs are kept: a warning, because workers also
                           refuse messages that old one by one.
    retention.bytes        a bound on size can delete before the time is over: a warning.
    min.insync.replicas    more than there are copies: nothing can ever be written, refused. As many as there
                           are copies: one broker down stops writes, a warning. One of several: a message may
                           be acknowledged while it exists once, a warning.
    copies                 a single one in a cluster of several brokers: a warning. In a cluster of one broker
                           nothing better can be had.
    max.message.bytes      too small for the largest job: such a run becomes a dead letter, a warning.
    partitions             fewer than configured: fewer workers can share the work, a warning.
    message.timestamp.type both are right: messages are stamped when they are sent, never with `scheduled_at`,
                           so retention counts from publication either way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple

from mainspring.schema.errors import InvalidInput, TopicRefused
from mainspring.schema.messages import MAXIMUM_BODY

# Kafka's bound counts the batch around a message too: prefix, trace context, key and the batch's own header
# take less than 200 bytes together.
LARGEST_MESSAGE = MAXIMUM_BODY + 1_024
MAXIMUM_PARTITIONS = 10_000
MAXIMUM_REPLICATION = 32_767  # a smallint in Kafka's protocol
PREFERRED_COPIES = 3
BROKER_DEFAULT = -1
_FOREVER = -1

_UNITS = (("days", 86_400_000), ("hours", 3_600_000), ("minutes", 60_000), ("seconds", 1_000))


@dataclass(frozen=True, kw_only=True)
class TopicSettings:
    """How topics are made, and the bounds that existing ones are held to."""

    partitions: int = 8
    # None: three copies where the cluster has three brokers, else the brokers' default.
    replication: int | None = None
    retention: timedelta = timedelta(days=3)
    # None: the brokers' default.
    min_insync: int | None = None
    max_message_bytes: int = 1_048_588
    minimum_outage: timedelta = timedelta(days=1)
    run_retention: timedelta = timedelta(days=30)

    def __post_init__(self) -> None:
        _check_range("partitions", self.partitions, 1, MAXIMUM_PARTITIONS)
        _check_range("replication", self.replication, 1, MAXIMUM_REPLICATION)
        _check_range("min_insync", self.min_insync, 1, self.replication or MAXIMUM_REPLICATION)
        _check_range("max_message_bytes", self.max_message_bytes, LARGEST_MESSAGE, 2**31 - 1)
        if self.minimum_outage <= timedelta(0):
            raise InvalidInput("minimum_outage", "must be longer than nothing")
        if not self.minimum_outage < self.retention < self.run_retention:
            rule = (
                f"{_span(self.retention)} must be longer than the outage planned for "
                f"({_span(self.minimum_outage)}) and shorter than runs are kept ({_span(self.run_retention)})"
            )
            raise InvalidInput("retention", rule)

    def copies(self, brokers: int) -> int:
        """How many copies a new topic gets in a cluster of so many brokers; -1 leaves it to them."""
        if self.replication is not None:
            return self.replication
        return PREFERRED_COPIES if brokers >= PREFERRED_COPIES else BROKER_DEFAULT

    def configuration(self) -> dict[str, str]:
        """What a new topic is told; everything else is the brokers' default."""
        chosen = {
            "cleanup.policy": "delete",
            "retention.ms": str(_milliseconds(self.retention)),
            "max.message.bytes": str(self.max_message_bytes),
        }
        if self.min_insync is not None:
            chosen["min.insync.replicas"] = str(self.min_insync)
        return chosen


class TopicFacts(NamedTuple):
    """What the cluster says of a topic; the configuration is None when this login may not read it."""

    name: str
    partitions: int
    copies: int
    brokers: int
    configuration: Mapping[str, str] | None


def judge(topic: TopicFacts, settings: TopicSettings) -> tuple[str, ...]:
    """The warnings about a topic, or TopicRefused with all that speaks against it."""
    refusals = "; ".join(_refusals(topic, settings))
    if refusals:
        raise TopicRefused(topic.name, refusals)
    return tuple(_warnings(topic, settings))


def _refusals(topic: TopicFacts, settings: TopicSettings) -> Iterator[str]:
    configuration = topic.configuration or {}
    policy = configuration.get("cleanup.policy", "delete")
    if policy != "delete":
        yield f"cleanup.policy is {policy!r}, which drops runs or keeps them forever: set it to delete"
    yield from _retention_refusals(_number(configuration, "retention.ms"), settings)
    needed = _number(configuration, "min.insync.replicas") or 1
    if needed > topic.copies:
        yield (
            f"min.insync.replicas is {needed}, but the topic's copies are {topic.copies}, so nothing can be "
            f"written: set it to less than the copies, or add copies"
        )


def _retention_refusals(milliseconds: int | None, settings: TopicSettings) -> Iterator[str]:
    if milliseconds is None:
        return
    advice = f"set it to {_milliseconds(settings.retention)}"
    too_long = (
        f"but runs are kept for {_span(settings.run_retention)}, and a message read after that would run "
        f"again: {advice}"
    )
    if milliseconds == _FOREVER:
        yield f"retention.ms is -1, forever, {too_long}"
    elif milliseconds <= _milliseconds(settings.minimum_outage):
        yield (
            f"retention.ms is {_span(milliseconds)}, not longer than the outage planned for "
            f"({_span(settings.minimum_outage)}), so runs would be deleted before they are read: {advice}"
        )
    elif milliseconds >= _milliseconds(settings.run_retention):
        yield f"retention.ms is {_span(milliseconds)}, {too_long}"


def _warnings(topic: TopicFacts, settings: TopicSettings) -> Iterator[str]:
    if topic.partitions < settings.partitions:
        yield (
            f"{topic.partitions} partitions instead of {settings.partitions}: fewer workers can share the "
            f"work; add partitions"
        )
    if topic.configuration is None:
        yield (
            "its configuration cannot be read, so compaction and retention are not checked: allow this login "
            "to DescribeConfigs"
        )
        yield from _copies_warnings(topic.copies, None, topic.brokers)
        return
    yield from _copies_warnings(
        topic.copies, _number(topic.configuration, "min.insync.replicas"), topic.brokers
    )
    yield from _deletion_warnings(topic.configuration, settings)
    largest = _number(topic.configuration, "max.message.bytes")
    if largest is not None and largest < LARGEST_MESSAGE:
        yield (
            f"max.message.bytes is {largest}: larger jobs become dead letters; set it to "
            f"{settings.max_message_bytes}"
        )


def _copies_warnings(copies: int, needed: int | None, brokers: int) -> Iterator[str]:
    if copies == 1:
        if brokers > 1:
            yield "one copy of each message: a broker down stops it, a disk lost loses it; add copies"
        return
    if needed == copies:
        yield (
            f"min.insync.replicas is {needed}, as many as there are copies: one broker down stops writes; "
            f"set it to {copies - 1}"
        )
    if needed == 1:
        yield (
            f"min.insync.replicas is 1 of {copies} copies: a message may be acknowledged by a broker that is "
            f"lost before the others have it; set it to 2"
        )


def _deletion_warnings(configuration: Mapping[str, str], settings: TopicSettings) -> Iterator[str]:
    bound = _number(configuration, "retention.bytes")
    if bound is not None and bound != _FOREVER:
        yield (
            f"retention.bytes is {bound}: runs are deleted before their time when so many wait; set it to -1"
        )
    retention, segment = _number(configuration, "retention.ms"), _number(configuration, "segment.ms")
    if retention is None or segment is None:
        return
    if retention + segment >= _milliseconds(settings.run_retention):
        yield (
            f"segment.ms is {_span(segment)}: messages may outlive the runs, which are kept for "
            f"{_span(settings.run_retention)}; set it to {_milliseconds(timedelta(days=1))}"
        )


def _number(configuration: Mapping[str, str], name: str) -> int | None:
    value = configuration.get(name)
    return None if value is None else int(value)


def _check_range(field: str, value: int | None, low: int, high: int) -> None:
    if value is not None and not low <= value <= high:
        raise InvalidInput(field, f"{value} is not in {low}–{high}")


def _milliseconds(duration: timedelta) -> int:
    return duration // timedelta(milliseconds=1)


def _span(duration: timedelta | int) -> str:
    """A length of time in the largest unit that divides it: `3 days`, `36 hours`, `1500 ms`."""
    milliseconds = _milliseconds(duration) if isinstance(duration, timedelta) else duration
    for unit, size in _UNITS:
        if milliseconds and milliseconds % size == 0:
            count = milliseconds // size
            return f"{count} {unit if count != 1 else unit[:-1]}"
    return f"{milliseconds} ms"
