"""Three brokers and three etcd members: the loss of one stops nobody, and it catches up when it returns."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator

import pytest

from mainspring.local import LocalStack
from mainspring.local.etcd import EtcdMember
from mainspring.schema.errors import LocalStackError
from tests.integration.local import clients
from tests.integration.local.clients import until
from tests.integration.local.environments import own


@pytest.fixture(scope="module")
def said() -> list[str]:
    return []


@pytest.fixture(scope="module")
def cluster(said: list[str]) -> Iterator[LocalStack]:
    with asyncio.Runner() as runner:
        started = LocalStack(postgres=False, brokers=3, etcd=3, environment=own(), progress=said.append)
        runner.run(started.start())
        try:
            yield started
        finally:
            runner.run(started.stop())


async def test_every_member_is_a_process_of_its_own(cluster: LocalStack) -> None:
    names = ["kafka-1", "kafka-2", "kafka-3", "etcd-1", "etcd-2", "etcd-3"]
    assert [member.name for member in cluster.members] == names
    assert len({member.pid for member in cluster.members} - {None}) == 6
    assert cluster.environment() == {
        "MAINSPRING_KAFKA": ",".join(member.address for member in cluster.brokers),
        "MAINSPRING_ETCD": ",".join(member.address for member in cluster.etcd),
    }


async def test_kafka_goes_on_without_the_broker_that_led(cluster: LocalStack) -> None:
    brokers = cluster.environment()["MAINSPRING_KAFKA"]
    await clients.write_record(brokers, "with three")
    leader, copies = await clients.topic_nodes(brokers)
    assert copies == {1, 2, 3}
    lost = cluster.brokers[leader - 1]
    await lost.kill()

    await clients.write_record(brokers, "with two")
    assert await clients.read_records(brokers) == {"with three", "with two"}

    await lost.start()

    async def has_caught_up() -> bool:
        return (await clients.topic_nodes(brokers))[1] == {1, 2, 3}

    await until(has_caught_up)


async def test_etcd_goes_on_without_the_member_that_led(cluster: LocalStack) -> None:
    endpoints = cluster.environment()["MAINSPRING_ETCD"]
    await clients.write_key(endpoints, "with three")
    leader = await _leader(cluster)
    await leader.kill()

    for other in cluster.etcd:
        if other is not leader:
            await until(other.answers)
    await clients.write_key(endpoints, "with two")

    await leader.start()
    assert await clients.read_keys(leader.address) == {"with three", "with two"}


async def test_an_etcd_member_without_a_majority_does_not_answer(cluster: LocalStack) -> None:
    last, *others = cluster.etcd
    for other in others:
        other.pause()
    assert not await last.answers()
    for other in others:
        other.resume()
    for member in cluster.etcd:
        await until(member.answers)


async def test_a_cluster_that_loses_one_is_watched_on_and_one_that_loses_two_is_reported(
    cluster: LocalStack, said: list[str]
) -> None:
    first, second, _ = cluster.etcd
    watching = asyncio.create_task(cluster.watch())
    _kill_behind_its_back(first)

    async def is_said() -> bool:
        return any(line.startswith("etcd-1 ended (signal 9)") for line in said)

    await until(is_said)
    assert [line for line in said if line.endswith("; the others go on without it")]
    assert not watching.done()

    _kill_behind_its_back(second)
    with pytest.raises(LocalStackError, match=r"^etcd-2 ended \(signal 9\)"):
        async with asyncio.timeout(20):
            await watching
    for member in (first, second):
        member.launch()
    for member in cluster.etcd:
        await until(member.answers)


async def _leader(cluster: LocalStack) -> EtcdMember:
    [leader] = [member for member in cluster.etcd if await clients.leads(member.address)]
    return leader


def _kill_behind_its_back(member: EtcdMember) -> None:
    assert member.pid is not None
    os.kill(member.pid, signal.SIGKILL)
