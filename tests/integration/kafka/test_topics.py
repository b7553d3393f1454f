"""Topics on a real cluster: made once, checked always, refused in words."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource  # type: ignore[attr-defined]
from confluent_kafka.cimpl import NewTopic

from mainspring.clock import ManualClock
from mainspring.kafka.topics import TopicReport, Topics, TopicSettings
from mainspring.local import LocalStack
from mainspring.schema.errors import InvalidInput, KafkaUnavailable, TopicRefused
from mainspring.settings import KafkaSettings

SETTINGS = TopicSettings()
# Long enough for a machine that does other things; nothing waits for it when all is well.
PATIENCE = 60.0


class Operator:
    """Somebody with Kafka's own tools."""

    def __init__(self, kafka: KafkaSettings) -> None:
        self._client = AdminClient({**kafka.librdkafka(), "log_level": 0})

    async def make(self, name: str, **configuration: str) -> str:
        partitions = int(configuration.pop("partitions", "8"))
        topic = NewTopic(name, num_partitions=partitions, config=_dotted(configuration))
        await asyncio.wrap_future(self._client.create_topics([topic])[name])
        await self._until(name, _dotted(configuration))
        return name

    async def alter(self, name: str, **configuration: str) -> None:
        wanted = _dotted(configuration)
        entries = [
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
            for key, value in wanted.items()
        ]
        resource = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=entries)
        await asyncio.wrap_future(self._client.incremental_alter_configs([resource])[resource])
        await self._until(name, wanted)

    async def configuration(self, name: str) -> dict[str, str]:
        resource = ConfigResource(ConfigResource.Type.TOPIC, name)
        entries = await asyncio.wrap_future(self._client.describe_configs([resource])[resource])
        return {key: entry.value for key, entry in entries.items()}

    async def _until(self, name: str, wanted: dict[str, str]) -> None:
        """A broker shows what was accepted only when it has read it from the controller's log."""
        async with asyncio.timeout(PATIENCE):
            while not await self._shows(name, wanted):
                pass

    async def _shows(self, name: str, wanted: dict[str, str]) -> bool:
        try:
            return wanted.items() <= (await self.configuration(name)).items()
        except KafkaException:
            return False


@pytest.fixture
def kafka(stack: LocalStack) -> KafkaSettings:
    return KafkaSettings.from_environment(stack.environment())


@pytest.fixture
def operator(kafka: KafkaSettings) -> Operator:
    return Operator(kafka)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(datetime(2026, 7, 1, tzinfo=UTC))


@pytest.fixture
def topics(kafka: KafkaSettings, clock: ManualClock) -> Topics:
    return Topics(kafka, SETTINGS, timeout=PATIENCE, clock=clock)


def new_name() -> str:
    return f"mainspring.t{uuid4().hex}.normal"


async def refusal(topics: Topics, name: str) -> str:
    with pytest.raises(TopicRefused) as refused:
        await topics.ensure([name])
    assert refused.value.topic == name
    return refused.value.reason


async def test_missing_topics_are_made_as_configured(topics: Topics, operator: Operator) -> None:
    names = [new_name(), new_name()]
    assert await topics.ensure(names) == [
        TopicReport(name=name, created=True, partitions=8, warnings=()) for name in names
    ]
    made = await operator.configuration(names[1])
    assert (made["cleanup.policy"], made["retention.ms"]) == ("delete", "259200000")
    assert made["max.message.bytes"] == "1048588"


async def test_ten_processes_make_the_same_topic_at_once_and_one_has_made_it(kafka: KafkaSettings) -> None:
    name = new_name()
    processes = [Topics(kafka, SETTINGS, timeout=PATIENCE) for _ in range(10)]
    answers = await asyncio.gather(*(process.ensure([name]) for process in processes))
    assert sorted(report.created for [report] in answers) == [False] * 9 + [True]
    assert {report.partitions for [report] in answers} == {8}


async def test_a_topic_that_exists_is_checked_and_not_changed(topics: Topics, operator: Operator) -> None:
    name = await operator.make(
        new_name(), partitions="3", retention_ms="345600000", retention_bytes="1000000"
    )
    before = await operator.configuration(name)
    [report] = await topics.ensure([name])
    assert (report.created, report.partitions) == (False, 3)
    partitions, size = report.warnings
    assert "3 partitions instead of 8" in partitions
    assert "retention.bytes is 1000000" in size
    assert await operator.configuration(name) == before


@pytest.mark.parametrize(
    ("configuration", "words"),
    [
        ({"cleanup_policy": "compact"}, "cleanup.policy is 'compact'"),
        ({"cleanup_policy": "compact,delete"}, "cleanup.policy is 'compact,delete'"),
        (
            {"retention_ms": "3600000"},
            "retention.ms is 1 hour, not longer than the outage planned for (1 day)",
        ),
        ({"retention_ms": "5184000000"}, "retention.ms is 60 days, but runs are kept for 30 days"),
        ({"retention_ms": "-1"}, "retention.ms is -1, forever"),
        ({"min_insync_replicas": "2"}, "min.insync.replicas is 2, but the topic's copies are 1"),
    ],
)
async def test_a_topic_that_would_lose_or_repeat_runs_is_refused_until_it_is_put_right(
    topics: Topics, operator: Operator, configuration: dict[str, str], words: str
) -> None:
    name = await operator.make(new_name(), **configuration)
    assert words in await refusal(topics, name)
    await operator.alter(name, cleanup_policy="delete", retention_ms="259200000", min_insync_replicas="1")
    [report] = await topics.ensure([name])
    assert report.warnings == ()


async def test_one_refused_topic_does_not_hold_the_others(topics: Topics, operator: Operator) -> None:
    bad, good = await operator.make(new_name(), cleanup_policy="compact"), new_name()
    with pytest.raises(TopicRefused, match=bad):
        await topics.ensure([bad, good])
    assert (await operator.configuration(good))["retention.ms"] == "259200000"
    await operator.alter(good, cleanup_policy="compact")
    [remembered] = await topics.ensure([good])  # not looked at again, or it would be refused now
    assert not remembered.created


async def test_a_topic_that_cannot_be_made_is_refused_with_the_brokers_words(kafka: KafkaSettings) -> None:
    name = new_name()
    wanting = Topics(kafka, TopicSettings(replication=30), timeout=PATIENCE)
    assert "replication factor" in await refusal(wanting, name)


async def test_what_was_ensured_is_remembered_until_it_is_old(
    topics: Topics, operator: Operator, clock: ManualClock
) -> None:
    name = new_name()
    [first] = await topics.ensure([name])
    assert first.created
    await operator.alter(name, cleanup_policy="compact")
    clock.advance(timedelta(minutes=4, seconds=59))
    [remembered] = await topics.ensure([name])
    assert not remembered.created
    assert await topics.partitions(name) == 8
    clock.advance(timedelta(seconds=1))
    assert "cleanup.policy" in await refusal(topics, name)


async def test_a_known_topic_stays_good_while_there_is_no_cluster_to_ask(
    kafka: KafkaSettings, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics, name = Topics(kafka, SETTINGS, timeout=PATIENCE, clock=clock), new_name()
    await topics.ensure([name])
    clock.advance(timedelta(minutes=5))
    monkeypatch.setattr(topics, "_settings", KafkaSettings(brokers=("127.0.0.1:1",)))
    monkeypatch.setattr(topics, "_timeout", 0.2)
    [report] = await topics.ensure([name])
    assert (report.created, report.partitions) == (False, 8)
    with pytest.raises(KafkaUnavailable):
        await topics.ensure([name, new_name()])


async def test_asking_for_partitions_makes_the_topic(topics: Topics) -> None:
    assert await topics.partitions(new_name()) == 8


async def test_names_kafka_does_not_know_are_refused_before_asking() -> None:
    nowhere = Topics(KafkaSettings(brokers=("127.0.0.1:1",)), SETTINGS)
    for name in ("", ".", "..", "a b", "ü", "a" * 250):
        with pytest.raises(InvalidInput, match="topic"):
            await nowhere.ensure([name])
    assert await nowhere.ensure([]) == []


async def test_a_cluster_that_refuses_connections_is_named_with_the_cause() -> None:
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))  # bound, never listening: nobody else can answer here
        broker = f"127.0.0.1:{unheard.getsockname()[1]}"
        nowhere = Topics(KafkaSettings(brokers=(broker,)), SETTINGS, timeout=0.5)
        with pytest.raises(KafkaUnavailable, match=rf"kafka at {broker} .*Connection refused") as failure:
            await nowhere.ensure([new_name()])
    assert failure.value.brokers == (broker,)


async def test_a_cluster_that_says_nothing_is_given_up_and_a_wait_for_it_can_be_cancelled() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        broker = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(KafkaUnavailable, match=rf"kafka at {broker} "):
            await Topics(KafkaSettings(brokers=(broker,)), SETTINGS, timeout=0.5).ensure([new_name()])
        patient = Topics(KafkaSettings(brokers=(broker,)), SETTINGS, timeout=3600)
        waiting = asyncio.create_task(patient.ensure([new_name()]))
        await asyncio.sleep(0)
        waiting.cancel()
        async with asyncio.timeout(PATIENCE):
            with pytest.raises(asyncio.CancelledError):
                await waiting


@pytest.fixture
async def three_brokers() -> AsyncIterator[LocalStack]:
    """A cluster of its own, because one broker of it is killed."""
    variables = {name: value for name, value in os.environ.items() if name != "MAINSPRING_KAFKA"}
    async with LocalStack(brokers=3, postgres=False, etcd=0, environment=variables) as cluster:
        yield cluster


async def test_three_brokers_keep_three_copies_and_one_may_be_down(three_brokers: LocalStack) -> None:
    kafka = KafkaSettings.from_environment(three_brokers.environment())
    topics = Topics(kafka, SETTINGS, timeout=PATIENCE)
    # Brokers learn of a topic one after the other: many at once meet one that does not know it yet.
    names = [new_name() for _ in range(8)]
    assert all(report.created and not report.warnings for report in await topics.ensure(names))

    strict, lax = new_name(), new_name()
    await Topics(kafka, TopicSettings(replication=2, min_insync=2), timeout=PATIENCE).ensure([strict])
    await Topics(kafka, TopicSettings(min_insync=1), timeout=PATIENCE).ensure([lax])
    again = Topics(kafka, SETTINGS, timeout=PATIENCE)
    [[strict_warning], [lax_warning]] = [report.warnings for report in await again.ensure([strict, lax])]
    assert "min.insync.replicas is 2, as many as there are copies" in strict_warning
    assert "min.insync.replicas is 1 of 3 copies" in lax_warning

    # Until the others notice its death they name it as the one to ask, now and then: many ask.
    await three_brokers.brokers[0].kill()
    askers = [Topics(kafka, SETTINGS, timeout=PATIENCE) for _ in range(6)]
    answers = await asyncio.gather(*(asker.ensure(names) for asker in askers))
    assert {report.warnings for reports in answers for report in reports} == {()}
    assert await topics.partitions(new_name()) == 8


def _dotted(configuration: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "."): value for name, value in configuration.items()}
