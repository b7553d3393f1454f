"""Watches: nothing lost, nothing twice, and a clear word where that cannot be had."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing
from datetime import timedelta

import pytest
from grpc import aio
from structlog.testing import capture_logs

from mainspring.etcd import EtcdClient, Event, Put, WatchBatch, connections
from mainspring.etcd.watch import Watch
from mainspring.local.etcd import EtcdMember
from mainspring.schema.errors import HistoryLost
from tests.integration.etcd.conftest import GENEROUS_SECONDS, settings_for, until

pytestmark = pytest.mark.usefixtures("first_member_first")


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """A silent member is left soon."""
    monkeypatch.setattr("mainspring.etcd.watch.PULSE_SECONDS", 0.2)
    monkeypatch.setattr("mainspring.etcd.watch.SILENCE_SECONDS", 1.0)


async def events_of(batches: AsyncIterator[WatchBatch], count: int) -> list[Event]:
    """The next events; more than asked for would be a mistake, and is returned too."""
    events: list[Event] = []
    async with asyncio.timeout(GENEROUS_SECONDS):
        while len(events) < count:
            events += (await anext(batches)).events
    return events


async def compact(member: EtcdMember, revision: int) -> None:
    """Make etcd forget; Mainspring itself never asks for that, so the message is written by hand."""
    number = revision
    varint = b""
    while number > 0x7F:
        varint += bytes([number & 0x7F | 0x80])
        number >>= 7
    async with aio.insecure_channel(member.address) as channel:
        call = channel.unary_unary("/etcdserverpb.KV/Compact", bytes, bytes)
        await call(b"\x08" + varint + bytes([number]), timeout=10)


async def test_a_watch_sees_every_change_from_its_revision_on(client: EtcdClient, prefix: str) -> None:
    before = await client.put(prefix + "a", b"1")
    await client.put(prefix + "a", b"2")
    await client.put(prefix[:-1], b"beside it")
    async with aclosing(client.watch(prefix, before)) as batches:
        past = await events_of(batches, 2)
        last = await client.delete(prefix + "a") and (await client.range(prefix)).revision
        (deleted,) = await events_of(batches, 1)

    assert [event.item.value for event in past] == [b"1", b"2"]
    assert past[0].item.mod_revision == before
    assert deleted.deleted
    assert (deleted.item.key, deleted.item.mod_revision) == (prefix + "a", last)


async def test_a_transaction_arrives_whole(client: EtcdClient, prefix: str) -> None:
    start = (await client.range(prefix)).revision + 1
    async with aclosing(client.watch(prefix, start)) as batches:
        result = await client.transact(compare=[], success=[Put(f"{prefix}{n}", b"") for n in range(100)])
        async with asyncio.timeout(GENEROUS_SECONDS):
            batch = await anext(batches)

    assert batch.revision == result.revision
    assert len(batch.events) == 100


async def test_the_end_of_a_lease_is_seen(client: EtcdClient, prefix: str) -> None:
    lease = await client.grant(timedelta(seconds=1))
    revision = await client.put(prefix + "leader", b"me", lease=lease.id)
    async with aclosing(client.watch(prefix, revision + 1)) as batches:
        (event,) = await events_of(batches, 1)

    assert event.deleted
    assert event.item.key == prefix + "leader"


async def test_a_watch_loses_nothing_when_its_member_is_killed_and_comes_back(
    cluster: list[EtcdMember], prefix: str
) -> None:
    async with AsyncExitStack() as stack:
        watcher = await stack.enter_async_context(EtcdClient(settings_for(cluster)))
        writer = await stack.enter_async_context(EtcdClient(settings_for(cluster[1:])))
        start = (await watcher.range(prefix)).revision + 1
        batches = await stack.enter_async_context(aclosing(watcher.watch(prefix, start)))

        seen = []
        for round_number in range(4):
            if round_number == 1:
                await cluster[0].kill()
                await writer.range(prefix)  # answered when the other two have a leader
            if round_number == 3:
                await cluster[0].start()
            for number in range(25):
                await writer.put(f"{prefix}{round_number}/{number}", b"")
            seen += await events_of(batches, 25)

    written = [f"{prefix}{round_number}/{number}" for round_number in range(4) for number in range(25)]
    assert [event.item.key for event in seen] == written


async def test_a_watch_leaves_a_member_that_hangs(cluster: list[EtcdMember], prefix: str) -> None:
    async with AsyncExitStack() as stack:
        watcher = await stack.enter_async_context(EtcdClient(settings_for(cluster)))
        writer = await stack.enter_async_context(EtcdClient(settings_for(cluster[1:])))
        start = await writer.put(prefix + "a", b"")
        batches = await stack.enter_async_context(aclosing(watcher.watch(prefix, start)))
        await events_of(batches, 1)

        cluster[0].pause()
        await writer.range(prefix)
        await writer.put(prefix + "b", b"")

        (event,) = await events_of(batches, 1)
        assert event.item.key == prefix + "b"


async def test_pings_alone_find_a_member_that_hangs(
    cluster: list[EtcdMember], prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the pulse finds is also found one level below, by HTTP/2: every option of ours is taken."""
    hasty = {"grpc.keepalive_time_ms", "grpc.keepalive_timeout_ms", "grpc.http2.ping_timeout_ms"}
    options = [(name, 500 if name in hasty else value) for name, value in connections._OPTIONS]
    monkeypatch.setattr(connections, "_OPTIONS", options)
    monkeypatch.setattr("mainspring.etcd.watch.SILENCE_SECONDS", 600.0)

    await test_a_watch_leaves_a_member_that_hangs(cluster, prefix)


async def test_silence_of_the_prefix_is_not_silence_of_the_member(
    client: EtcdClient, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A watch from the next revision on, where nothing happens, is answered its pulses and stays."""
    signs_of_life: list[Watch] = []
    monkeypatch.setattr(Watch, "_recovered", lambda watch: signs_of_life.append(watch))
    start = (await client.range(prefix)).revision + 1
    with capture_logs() as logs:
        async with aclosing(client.watch(prefix, start)) as batches:
            waiting = asyncio.ensure_future(anext(batches))
            await until(lambda: len(signs_of_life) > 12)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)

    assert [entry["event"] for entry in logs] == []


async def test_a_compacted_revision_is_told_and_not_skipped(
    client: EtcdClient, etcd: EtcdMember, prefix: str
) -> None:
    old = await client.put(prefix + "a", b"1")
    new = await client.put(prefix + "a", b"2")
    await compact(etcd, new)

    with pytest.raises(HistoryLost) as lost:
        await anext(client.watch(prefix, old))
    assert lost.value.from_revision == old

    async with aclosing(client.watch(prefix, new)) as batches:
        (event,) = await events_of(batches, 1)
    assert event.item.value == b"2"


async def test_an_etcd_made_anew_is_told_and_not_waited_for(
    client: EtcdClient, etcd: EtcdMember, prefix: str
) -> None:
    for number in range(3):
        revision = await client.put(prefix + "a", b"%d" % number)
    async with aclosing(client.watch(prefix, revision)) as batches:
        await events_of(batches, 1)
        await etcd.kill()
        shutil.rmtree(etcd.directory)
        await etcd.start()

        with pytest.raises(HistoryLost):
            async with asyncio.timeout(GENEROUS_SECONDS):
                await anext(batches)
