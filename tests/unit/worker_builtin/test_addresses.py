"""Which addresses may be connected to: an address that is not wholly public is refused by its kind."""

from __future__ import annotations

from ipaddress import ip_address, ip_network

import pytest

from mainspring.worker.builtin.addresses import (
    EVERYTHING,
    Refused,
    SystemResolver,
    Unresolvable,
    check_addresses,
    forbidden,
)
from mainspring.worker.signals import NotRetryable

REFUSED = {
    "127.0.0.1": "loopback",
    "127.255.255.254": "loopback",
    "0.0.0.0": "unspecified",
    "0.1.2.3": "unspecified",
    "10.0.0.1": "private",
    "172.16.0.1": "private",
    "172.31.255.255": "private",
    "192.168.1.1": "private",
    "100.64.0.1": "carrier-grade NAT",
    "100.127.255.255": "carrier-grade NAT",
    "169.254.1.1": "link-local",
    "169.254.169.254": "metadata",
    "169.254.170.2": "metadata",
    "100.100.100.200": "metadata",
    "168.63.129.16": "metadata",
    "fd00:ec2::254": "metadata",
    "192.0.0.8": "reserved",
    "192.0.2.1": "reserved",
    "198.18.0.1": "reserved",
    "198.51.100.1": "reserved",
    "203.0.113.1": "reserved",
    "240.0.0.1": "reserved",
    "255.255.255.255": "reserved",
    "224.0.0.1": "multicast",
    "239.255.255.255": "multicast",
    "192.88.99.1": "6to4",
    "::": "unspecified",
    "::1": "loopback",
    "::7f00:1": "IPv4-compatible",
    "::ffff:127.0.0.1": "IPv4-mapped",
    "::ffff:8.8.8.8": "IPv4-mapped",
    "::ffff:0:7f00:1": "IPv4-translated",
    "64:ff9b::7f00:1": "NAT64",
    "64:ff9b::808:808": "NAT64",
    "64:ff9b:1::7f00:1": "NAT64",
    "2002:7f00:1::": "6to4",
    "2002:808:808::1": "6to4",
    "2001:0:808:808::1": "Teredo",
    "2001:db8::1": "reserved",
    "3fff::1": "reserved",
    "100::1": "reserved",
    "4000::1": "reserved",
    "5f00::1": "reserved",
    "fc00::1": "private",
    "fd12:3456::1": "private",
    "fec0::1": "private",
    "fe80::1": "link-local",
    "fe80::1%eth0": "link-local",
    "ff02::1": "multicast",
    "2606:4700::5efe:7f00:1": "ISATAP",
    "2606:4700::200:5efe:7f00:1": "ISATAP",
}
PUBLIC = (
    "8.8.8.8",
    "1.1.1.1",
    "100.63.255.255",
    "100.128.0.1",
    "172.15.0.1",
    "172.32.0.1",
    "192.0.1.1",
    "198.20.0.1",
    "223.255.255.255",
    "2606:4700:4700::1111",
    "2a00:1450:4001::1",
)


def is_allowed(address: str, *networks: str) -> bool:
    return forbidden(ip_address(address), [ip_network(network) for network in networks]) is None


@pytest.mark.parametrize(("address", "kind"), REFUSED.items())
def test_what_is_not_public_is_refused_by_its_kind(address: str, kind: str) -> None:
    assert forbidden(ip_address(address), ()) == kind
    assert forbidden(ip_address(address), EVERYTHING) is None


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_is_open(address: str) -> None:
    assert forbidden(ip_address(address), ()) is None


def test_an_allowed_network_opens_its_own_addresses_and_no_others() -> None:
    assert is_allowed("10.1.2.3", "10.1.0.0/16")
    assert not is_allowed("10.2.0.1", "10.1.0.0/16")
    assert is_allowed("fd12::1", "10.1.0.0/16", "fd12::/48")
    assert not is_allowed("127.0.0.1", "::/0")


def test_an_address_that_carries_another_needs_both_to_be_allowed() -> None:
    assert not is_allowed("::ffff:127.0.0.1", "127.0.0.0/8")
    assert not is_allowed("::ffff:127.0.0.1", "::ffff:0:0/96")
    assert is_allowed("::ffff:127.0.0.1", "::ffff:0:0/96", "127.0.0.0/8")
    assert is_allowed("64:ff9b::808:808", "64:ff9b::/96")
    assert not is_allowed("64:ff9b::a00:1", "64:ff9b::/96")
    assert not is_allowed("2002:a00:1::1", "2002::/16")
    assert not is_allowed("2001:0:808:808::f5ff:fffe", "2001::/32")  # 10.0.0.1, inverted
    assert not is_allowed("2606:4700::5efe:a00:1", "2606:4700::/32")


@pytest.mark.parametrize("address", ["169.254.169.254", "fd00:ec2::254", "168.63.129.16"])
def test_a_metadata_address_needs_an_entry_of_its_own_or_all(address: str) -> None:
    wide = "169.254.0.0/16", "fd00::/8", "168.63.0.0/16"
    assert not is_allowed(address, *wide)
    assert is_allowed(address, address)
    assert forbidden(ip_address(address), EVERYTHING) is None


def test_a_metadata_address_inside_another_is_no_less_one() -> None:
    assert not is_allowed("::ffff:169.254.169.254", "::ffff:0:0/96", "169.254.0.0/16")
    assert is_allowed("::ffff:169.254.169.254", "::ffff:0:0/96", "169.254.169.254/32")


def test_one_refused_address_among_many_refuses_the_name() -> None:
    addresses = [ip_address("8.8.8.8"), ip_address("10.0.0.1"), ip_address("1.1.1.1")]
    with pytest.raises(Refused, match=r"hooks\.example is 10\.0\.0\.1, which is refused: private") as refused:
        check_addresses("hooks.example", addresses, ())
    assert isinstance(refused.value, NotRetryable)
    assert (refused.value.address, refused.value.kind) == (ip_address("10.0.0.1"), "private")
    check_addresses("hooks.example", addresses, [ip_network("10.0.0.0/8")])


async def test_the_system_resolver_reads_every_spelling_of_an_address_as_what_it_means() -> None:
    resolver = SystemResolver()
    for spelling in ("127.0.0.1", "2130706433", "0x7f.1", "127.1"):
        assert set(await resolver.resolve(spelling, 80)) == {ip_address("127.0.0.1")}
    for nobody in ("no-such-name.invalid", "a..b", "-", "x" * 300):
        with pytest.raises(Unresolvable):
            await resolver.resolve(nobody, 80)
