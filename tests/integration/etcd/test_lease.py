"""The keeper: what it survives, when it stops trusting, and how a loss is told."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from mainspring.clock import Clock, ManualClock, SystemClock
from mainspring.etcd import EtcdClient, LeaseKeeper
from mainspring.etcd.lease_calls import LeaseCalls
from mainspring.etcd.renewal import Renewal
from mainspring.local.etcd import EtcdMember
from mainspring.local.ports import free_port
from mainspring.schema.errors import EtcdUnavailable
from mainspring.settings import EtcdSettings
from tests.integration.etcd.conftest import GENEROUS_SECONDS, settings_for, until

TWO_SECONDS = timedelta(seconds=2)
THREE_SECONDS = timedelta(seconds=3)


@asynccontextmanager
async def kept(
    settings: EtcdSettings, *, ttl: timedelta = TWO_SECONDS, clock: Clock | None = None
) -> AsyncIterator[LeaseKeeper]:
    keeper = LeaseKeeper(settings, ttl=ttl, clock=clock)
    await keeper.start()
    try:
        yield keeper
    finally:
        await keeper.stop(revoke=True)


def lease_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "mainspring-lease"]


def compute(until_monotonic: float) -> int:
    """Plain Python that gives the interpreter to nobody by itself, as expanding a bucket does."""
    rounds = 0
    while time.monotonic() < until_monotonic:
        rounds += sum(number * number for number in range(200))
    return rounds


async def test_a_kept_lease_outlives_its_ttl_while_the_event_loop_is_busy(
    client: EtcdClient, etcd: EtcdMember, prefix: str
) -> None:
    async with kept(settings_for([etcd])) as keeper:
        revision = await client.put(prefix, b"me", lease=keeper.lease_id)

        compute(time.monotonic() + 2.2 * TWO_SECONDS.total_seconds())

        # Before the loop had a chance to do anything: the renewals did not need it.
        assert keeper.is_trusted()
        found = await client.get(prefix)
        assert found is not None
        assert found.create_revision == revision
        assert not keeper.lost.is_set()


async def test_a_lease_whose_keeper_stops_runs_out(client: EtcdClient, etcd: EtcdMember, prefix: str) -> None:
    keeper = LeaseKeeper(settings_for([etcd]), ttl=TWO_SECONDS)
    await keeper.start()
    await client.put(prefix, b"me", lease=keeper.lease_id)
    assert keeper.is_trusted()

    await keeper.stop(revoke=False)

    assert not keeper.is_trusted()
    assert lease_threads() == []

    async def gone() -> bool:
        return await client.get(prefix) is None

    await until(gone)


async def test_a_lease_that_is_not_revoked_outlives_its_keeper(
    client: EtcdClient, etcd: EtcdMember, prefix: str
) -> None:
    keeper = LeaseKeeper(settings_for([etcd]), ttl=timedelta(minutes=1))
    await keeper.start()
    await client.put(prefix, b"me", lease=keeper.lease_id)

    await keeper.stop(revoke=False)

    assert await client.get(prefix) is not None
    await client.revoke(keeper.lease_id)


async def test_a_revoked_lease_is_gone_when_stop_returns(
    client: EtcdClient, etcd: EtcdMember, prefix: str
) -> None:
    keeper = LeaseKeeper(settings_for([etcd]))
    await keeper.start()
    await client.put(prefix, b"me", lease=keeper.lease_id)

    await keeper.stop(revoke=True)

    assert await client.get(prefix) is None
    assert not keeper.is_trusted()
    assert not keeper.lost.is_set()
    await keeper.stop(revoke=True)


@pytest.mark.usefixtures("first_member_first")
async def test_one_member_of_three_that_hangs_does_not_cost_the_lease(
    cluster: list[EtcdMember], prefix: str
) -> None:
    async with kept(settings_for(cluster)) as keeper, EtcdClient(settings_for(cluster[1:])) as client:
        revision = await client.put(prefix, b"me", lease=keeper.lease_id)

        cluster[0].pause()
        paused_at = time.monotonic()

        await until(lambda: keeper.trusted_until > paused_at + 3 * TWO_SECONDS.total_seconds())
        found = await client.get(prefix)
        assert found is not None
        assert found.create_revision == revision
        assert not keeper.lost.is_set()


async def test_trust_runs_out_while_etcd_hangs_and_returns_with_it(etcd: EtcdMember) -> None:
    clock = ManualClock(datetime(2026, 1, 1, tzinfo=UTC))
    async with kept(settings_for([etcd]), ttl=THREE_SECONDS, clock=clock) as keeper:
        lease = keeper.lease_id
        assert keeper.trusted_until == 2.5
        assert keeper.is_trusted()

        etcd.pause()
        clock.advance(timedelta(seconds=2.5))
        assert not keeper.is_trusted()
        clock.advance(timedelta(seconds=10))

        etcd.resume()
        await until(keeper.is_trusted)
        assert keeper.trusted_until == 15.0
        assert keeper.lease_id == lease
        assert not keeper.lost.is_set()


async def test_a_lease_lives_on_when_all_of_etcd_was_down_for_longer_than_its_ttl(
    client: EtcdClient, etcd: EtcdMember, prefix: str
) -> None:
    async with kept(settings_for([etcd])) as keeper:
        revision = await client.put(prefix, b"me", lease=keeper.lease_id)
        await etcd.kill()
        killed_at = time.monotonic()

        await until(lambda: time.monotonic() > killed_at + 1.5 * TWO_SECONDS.total_seconds())
        assert not keeper.is_trusted()
        await etcd.start()

        await until(keeper.is_trusted)
        found = await client.get(prefix)
        assert found is not None
        assert found.create_revision == revision
        assert not keeper.lost.is_set()


async def test_a_lost_lease_is_told_and_never_trusted_again(client: EtcdClient, etcd: EtcdMember) -> None:
    async with kept(settings_for([etcd])) as keeper:
        await client.revoke(keeper.lease_id)

        async with asyncio.timeout(GENEROUS_SECONDS):
            await keeper.lost.wait()
        assert not keeper.is_trusted()
        await until(lambda: lease_threads() == [])

        async with kept(settings_for([etcd])) as heir:
            assert heir.lease_id != keeper.lease_id
            assert heir.is_trusted()
            assert not keeper.is_trusted()


async def test_a_process_that_slept_past_its_lease_wakes_without_trust_and_hears_of_the_loss(
    client: EtcdClient, etcd: EtcdMember
) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.integration.etcd.sleeper",
        etcd.address,
        cwd=Path(__file__).parents[3],
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None

    async def told() -> dict[str, Any]:
        async with asyncio.timeout(GENEROUS_SECONDS):
            assert process.stdout is not None
            answer: dict[str, Any] = json.loads(await process.stdout.readline())
            return answer

    try:
        lease = (await told())["lease"]
        process.send_signal(signal.SIGSTOP)

        async def gone() -> bool:
            return await client.time_to_live(lease) is None

        await until(gone)
        process.send_signal(signal.SIGCONT)

        assert await told() == {"slept": True, "trusted_after_waking": False}
        assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


class TickingClock(SystemClock):
    """A second passes with every look."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def monotonic(self) -> float:
        self.seconds += 1.0
        return self.seconds


async def test_trust_is_counted_from_when_the_renewal_was_sent(etcd: EtcdMember) -> None:
    clock = TickingClock()
    calls = LeaseCalls(settings_for([etcd]))
    renewal = Renewal(calls, THREE_SECONDS, clock)
    lease = renewal.grant()
    granted = renewal.trusted_until
    looks = clock.seconds

    renewal._renew(lease)

    # The next look at the clock was the one before sending; the one after the answer came later.
    assert renewal.trusted_until == looks + 1 + 2.5
    assert granted <= looks + 2.5
    renewal.revoke(lease)
    calls.close()


async def test_a_keeper_without_an_etcd_says_so_and_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mainspring.etcd.renewal.GRANT_SECONDS", 0.3)
    keeper = LeaseKeeper(EtcdSettings(endpoints=(f"127.0.0.1:{free_port()}",)))

    with pytest.raises(EtcdUnavailable):
        await keeper.start()

    assert not keeper.is_trusted()
    await keeper.stop(revoke=True)
    assert lease_threads() == []
    with pytest.raises(RuntimeError):
        _ = keeper.lease_id


async def test_a_cancelled_start_gives_its_lease_back(
    client: EtcdClient, etcd: EtcdMember, monkeypatch: pytest.MonkeyPatch
) -> None:
    granted = []
    original = Renewal.keep

    def keep(renewal: Renewal, lease: Any) -> None:
        granted.append(lease)
        original(renewal, lease)

    monkeypatch.setattr(Renewal, "keep", keep)
    keeper = LeaseKeeper(settings_for([etcd]))
    etcd.pause()
    starting = asyncio.create_task(keeper.start())
    await until(lambda: lease_threads() != [])
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)
    etcd.resume()

    await until(lambda: lease_threads() == [])
    assert not keeper.is_trusted()
    (lease,) = granted
    assert await client.time_to_live(lease.id) is None
