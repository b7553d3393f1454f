"""TLS and logins, on an etcd that insists on them.

The certificates beside this file are made by `certificates/make.sh`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from grpc import aio

from mainspring.etcd import EtcdClient, LeaseKeeper
from mainspring.local.etcd import EtcdFinder, EtcdMember, Peer
from mainspring.local.ports import free_port
from mainspring.local.process import Command, Spawner
from mainspring.schema.errors import EtcdRefused, EtcdUnavailable
from mainspring.settings import Credentials, EtcdSettings, TlsFiles
from tests.integration.etcd.conftest import GENEROUS_SECONDS, until

CERTIFICATES = Path(__file__).with_name("certificates")
TLS = TlsFiles(
    ca=CERTIFICATES / "ca.pem", certificate=CERTIFICATES / "client.pem", key=CERTIFICATES / "client.key"
)
ROOT = Credentials(username="root", password="rooted")
READER = Credentials(username="reader", password="curious")
READABLE = "open/"


class SecureEtcd(EtcdMember):
    """A member that talks TLS and wants a certificate of its clients."""

    def command(self) -> Command:
        plain = super().command()
        argv = [each.replace("http://", "https://") if "client-urls" in each else each for each in plain.argv]
        files = {"cert-file": "server.pem", "key-file": "server.key", "trusted-ca-file": "ca.pem"}
        argv += [f"--{flag}={CERTIFICATES / file}" for flag, file in files.items()]
        return replace(plain, argv=[*argv, "--client-cert-auth=true"])

    async def answers(self) -> bool:
        """Before and after authentication is enabled: a login that is not needed does no harm."""
        try:
            async with EtcdClient(settings_for(self, ROOT)) as client:
                await client.get("ready")
        except EtcdUnavailable:
            return False
        return True


def settings_for(member: EtcdMember, login: Credentials | None) -> EtcdSettings:
    return EtcdSettings(endpoints=(member.address,), tls_enabled=True, tls=TLS, login=login)


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureEtcd]:
    """An etcd with TLS, authentication, a root user and one that may only read `open/`."""
    with asyncio.Runner() as runner:
        spawner = Spawner()
        try:
            binary = runner.run(EtcdFinder(os.environ, spawner, lambda _: None).find())
            port = free_port()
            peer = Peer(1, port, free_port([port]))
            directory = tmp_path_factory.mktemp("secure") / "etcd"
            member = SecureEtcd(directory, peer, [peer], spawner, binary=lambda: binary)
            runner.run(member.start())
            runner.run(enable_authentication(member))
            yield member
            runner.run(member.stop())
        finally:
            spawner.close()


def field(number: int, content: bytes) -> bytes:
    """One field of a message that Mainspring never sends and so does not know."""
    return bytes([number << 3 | 2, len(content)]) + content


async def enable_authentication(member: SecureEtcd) -> None:
    credentials = grpc.ssl_channel_credentials(
        *(CERTIFICATES.joinpath(name).read_bytes() for name in ("ca.pem", "client.key", "client.pem"))
    )
    read_open = field(2, READABLE.encode()) + field(3, b"open0")
    steps = [
        ("RoleAdd", field(1, b"root")),
        ("UserAdd", field(1, b"root") + field(2, b"rooted")),
        ("UserGrantRole", field(1, b"root") + field(2, b"root")),
        ("RoleAdd", field(1, b"readers")),
        ("RoleGrantPermission", field(1, b"readers") + field(2, read_open)),
        ("UserAdd", field(1, b"reader") + field(2, b"curious")),
        ("UserGrantRole", field(1, b"reader") + field(2, b"readers")),
        ("AuthEnable", b""),
    ]
    async with aio.secure_channel(member.address, credentials) as channel:
        for name, request in steps:
            await channel.unary_unary(f"/etcdserverpb.Auth/{name}", bytes, bytes)(request, timeout=10)


@pytest.fixture
async def root(etcd: SecureEtcd) -> AsyncIterator[EtcdClient]:
    async with EtcdClient(settings_for(etcd, ROOT)) as client:
        yield client


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mainspring.etcd.caller.CALL_SECONDS", 0.3)


async def test_a_user_with_the_right_password_and_certificate_is_let_in(
    root: EtcdClient, prefix: str
) -> None:
    await root.put(prefix, b"1")

    assert await root.get(prefix) is not None


async def test_a_certificate_is_checked_against_the_name_of_the_endpoint(etcd: SecureEtcd) -> None:
    by_name = replace(settings_for(etcd, ROOT), endpoints=(etcd.address.replace("127.0.0.1", "localhost"),))
    async with EtcdClient(by_name) as client:
        assert await client.get("any") is None


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize(
    "tls",
    [replace(TLS, ca=CERTIFICATES / "stranger.pem"), TlsFiles(ca=TLS.ca), TlsFiles()],
    ids=["signed by a stranger", "no certificate of our own", "the system's authorities"],
)
async def test_who_cannot_be_verified_is_not_talked_to(etcd: SecureEtcd, tls: TlsFiles) -> None:
    async with EtcdClient(replace(settings_for(etcd, ROOT), tls=tls)) as client:
        with pytest.raises(EtcdUnavailable):
            await client.get("any")


async def test_a_wrong_password_is_refused_and_not_repeated(etcd: SecureEtcd) -> None:
    wrong = Credentials(username="root", password="guessed")
    async with EtcdClient(settings_for(etcd, wrong)) as client:
        with pytest.raises(EtcdRefused):
            await client.get("any")
    with pytest.raises(EtcdRefused):
        await LeaseKeeper(settings_for(etcd, wrong)).start()


async def test_a_client_without_a_login_is_refused(etcd: SecureEtcd) -> None:
    async with EtcdClient(settings_for(etcd, None)) as client:
        with pytest.raises(EtcdRefused):
            await client.put("any", b"1")


async def test_a_user_may_do_what_the_role_says_and_no_more(etcd: SecureEtcd, root: EtcdClient) -> None:
    revision = await root.put(READABLE + "a", b"1")
    async with EtcdClient(settings_for(etcd, READER)) as reader:
        assert await reader.get(READABLE + "a") is not None
        async with asyncio.timeout(GENEROUS_SECONDS):
            batch = await anext(reader.watch(READABLE, revision))
        assert batch.revision == revision
        with pytest.raises(EtcdRefused) as refused:
            await reader.put(READABLE + "a", b"2")
        assert refused.value.status == "PERMISSION_DENIED"
        with pytest.raises(EtcdRefused):
            await anext(reader.watch("closed/", revision))


async def test_a_forgotten_token_is_fetched_again_by_client_keeper_and_watch(
    etcd: SecureEtcd, root: EtcdClient, prefix: str
) -> None:
    """A member that restarts knows the leases, but none of the tokens."""
    keeper = LeaseKeeper(settings_for(etcd, ROOT))
    await keeper.start()
    revision = await root.put(prefix, b"me", lease=keeper.lease_id)
    watch = root.watch(prefix, revision)
    await anext(watch)

    await etcd.kill()
    before = keeper.trusted_until
    await etcd.start()

    await until(lambda: keeper.trusted_until > before)
    await root.put(prefix, b"still me", lease=keeper.lease_id)
    async with asyncio.timeout(GENEROUS_SECONDS):
        (event,) = (await anext(watch)).events
    assert event.item.value == b"still me"
    await watch.aclose()
    await keeper.stop(revoke=True)
    assert await root.get(prefix) is None
