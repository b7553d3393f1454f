"""A real etcd of one member and one of three, for this folder alone: its tests kill and wipe members."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from uuid import uuid4

import pytest

from mainspring.etcd import EtcdClient
from mainspring.local import LocalStack
from mainspring.local.etcd import EtcdMember
from mainspring.settings import EtcdSettings

GENEROUS_SECONDS = 30.0


async def until(fact: Callable[[], bool | Awaitable[bool]]) -> None:
    """Wait for a fact; only a fact that never comes costs time."""
    async with asyncio.timeout(GENEROUS_SECONDS):
        while True:
            answer = fact()
            if await answer if isinstance(answer, Awaitable) else answer:
                return
            await asyncio.sleep(0.02)


def settings_for(members: list[EtcdMember]) -> EtcdSettings:
    return EtcdSettings(endpoints=tuple(member.address for member in members))


def started(members: int) -> Iterator[LocalStack]:
    """Never somebody else's etcd, even where one is named: these tests break it."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("MAINSPRING_ETCD")}
    with asyncio.Runner() as runner:
        stack = LocalStack(postgres=False, kafka=False, etcd=members, environment=own)
        runner.run(stack.start())
        try:
            yield stack
        finally:
            runner.run(stack.stop())


@pytest.fixture(scope="package")
def one_member() -> Iterator[LocalStack]:
    yield from started(1)


@pytest.fixture(scope="package")
def three_members() -> Iterator[LocalStack]:
    yield from started(3)


async def repaired(stack: LocalStack) -> AsyncIterator[list[EtcdMember]]:
    """Its members, and all of them well again afterwards."""
    yield stack.etcd
    for member in stack.etcd:
        if member.pid is None:
            member.launch()
        member.resume()
    for member in stack.etcd:
        await member.wait_ready()


@pytest.fixture
async def etcd(one_member: LocalStack) -> AsyncIterator[EtcdMember]:
    """The only member of its etcd."""
    async for members in repaired(one_member):
        yield members[0]


@pytest.fixture
async def cluster(three_members: LocalStack) -> AsyncIterator[list[EtcdMember]]:
    """The three members of an etcd."""
    async for members in repaired(three_members):
        yield members


@pytest.fixture
async def client(etcd: EtcdMember) -> AsyncIterator[EtcdClient]:
    """A client of the one-member etcd."""
    async with EtcdClient(settings_for([etcd])) as client:
        yield client


@pytest.fixture
def prefix() -> str:
    """Keys of this test's own."""
    return f"test/{uuid4().hex}/"


@pytest.fixture
def first_member_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever talks to etcd begins with the first endpoint, not with a random one."""
    monkeypatch.setattr("mainspring.etcd.connections.Connector.first", lambda _: 0)
