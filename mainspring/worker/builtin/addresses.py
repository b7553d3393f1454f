"""Which addresses the `http` handler may connect to, and how a name becomes addresses.

Whoever may register a job may name a URL, and the worker stands inside the operator's network: without these
rules a job could read the cloud's metadata service, or post to a database on the next machine. So only the
public internet is open, and everything else must be allowed by MAINSPRING_HTTP_ALLOW_PRIVATE.

The rules are about addresses, never about names. A name is resolved once for each hop, *every* address it
has must pass, and the connection goes to one of exactly these addresses: a name that means something else
at the second look (DNS rebinding) is never looked at twice. `0x7f.1`, `2130706433` and other spellings of an
address are names here like any other, and end as what they mean.

An IPv6 address may carry an IPv4 address that some router takes out again (mapped, 6to4, NAT64, …). Such an
address must be allowed itself, *and* so must the one inside. A metadata address must be allowed by an entry
of its own, or by everything being allowed: `169.254.0.0/16` says nothing about 169.254.169.254.

The tables are our own: what Python's `ipaddress` calls global has changed between its patch releases, and
some addresses that answer only inside a cloud are public by their number.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Protocol

from mainspring.worker.signals import NotRetryable

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

EVERYTHING: tuple[Network, ...] = (ip_network("0.0.0.0/0"), ip_network("::/0"))

_METADATA = {
    ip_address(text)
    for text in (
        "169.254.169.254",  # most clouds
        "169.254.170.2",  # containers: the task's credentials
        "169.254.170.23",  # containers: the pod's credentials
        "100.100.100.200",
        "168.63.129.16",  # public by its number, and yet every machine of that cloud has its own there
        "192.0.0.192",
        "fd00:ec2::254",
        "fd00:ec2::23",
        "fd20:ce::254",
    )
}
_KINDS: tuple[tuple[Network, str], ...] = tuple(
    (ip_network(network), kind)
    for network, kind in (
        ("0.0.0.0/8", "unspecified"),
        ("10.0.0.0/8", "private"),
        ("100.64.0.0/10", "carrier-grade NAT"),
        ("127.0.0.0/8", "loopback"),
        ("169.254.0.0/16", "link-local"),
        ("172.16.0.0/12", "private"),
        ("192.0.0.0/24", "reserved"),
        ("192.0.2.0/24", "reserved"),
        ("192.88.99.0/24", "6to4"),
        ("192.168.0.0/16", "private"),
        ("198.18.0.0/15", "reserved"),
        ("198.51.100.0/24", "reserved"),
        ("203.0.113.0/24", "reserved"),
        ("224.0.0.0/4", "multicast"),
        ("240.0.0.0/4", "reserved"),
        ("::/128", "unspecified"),
        ("::1/128", "loopback"),
        ("::/96", "IPv4-compatible"),
        ("::ffff:0:0/96", "IPv4-mapped"),
        ("::ffff:0:0:0/96", "IPv4-translated"),
        ("64:ff9b::/96", "NAT64"),
        ("64:ff9b:1::/48", "NAT64"),
        ("2001::/32", "Teredo"),
        ("2001::/23", "reserved"),
        ("2001:db8::/32", "reserved"),
        ("2002::/16", "6to4"),
        ("3fff::/20", "reserved"),
        ("fc00::/7", "private"),
        ("fe80::/10", "link-local"),
        ("fec0::/10", "private"),
        ("ff00::/8", "multicast"),
    )
)
_UNICAST = IPv6Network("2000::/3")  # all that has been handed out of IPv6 so far
_LOW_32 = 0xFFFF_FFFF
_ISATAP = 0x0000_5EFE
_ISATAP_GLOBAL = 0x0200_5EFE
_WITH_IPV4_AT_THE_END = ("IPv4-compatible", "IPv4-mapped", "IPv4-translated", "NAT64")
_RESOLVER_THREADS = 8


class Refused(NotRetryable):
    """The address may not be connected to; nothing has been sent to it."""

    def __init__(self, host: str, address: Address, kind: str) -> None:
        shown = host if host == str(address) else f"{host} is {address}, which"
        super().__init__(f"{shown} is refused: {kind}, and not allowed by MAINSPRING_HTTP_ALLOW_PRIVATE")
        self.address = address
        self.kind = kind


class Unresolvable(Exception):
    """The name has no address now; it may have one later."""


class Resolver(Protocol):
    """Turns a name into addresses."""

    async def resolve(self, host: str, port: int) -> Sequence[Address]:
        """All addresses of a name, the preferred ones first; raises Unresolvable."""


class SystemResolver:
    """What the machine's own resolver says.

    On threads of its own, because the system's call cannot be cancelled: names that nobody answers for must
    not use up the threads that the rest of the process shares.
    """

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_RESOLVER_THREADS, thread_name_prefix="mainspring-resolver")

    async def resolve(self, host: str, port: int) -> Sequence[Address]:
        loop = asyncio.get_running_loop()
        try:
            found = await loop.run_in_executor(self._threads, _look_up, host, port)
        except (OSError, UnicodeError) as error:
            raise Unresolvable(f"{host} has no address: {error}") from error
        return [_read(entry[4][0]) for entry in found]


def check_addresses(host: str, addresses: Iterable[Address], allowed: Iterable[Network]) -> None:
    """Refuse a name that has a single address which may not be connected to."""
    networks = tuple(allowed)
    for address in addresses:
        kind = forbidden(address, networks)
        if kind is not None:
            raise Refused(host, address, kind)


def forbidden(address: Address, allowed: Iterable[Network]) -> str | None:
    """Why an address may not be connected to, in a word or two; None if it may."""
    networks = tuple(allowed)
    kind = _kind(address)
    if kind is not None and not _is_allowed(address, kind, networks):
        return kind
    inside = _embedded(address, kind)
    return None if inside is None else forbidden(inside, networks)


def _is_allowed(address: Address, kind: str, networks: Iterable[Network]) -> bool:
    holding = [network for network in networks if address in network]
    if kind != "metadata":
        return bool(holding)
    return any(network.prefixlen in (0, network.max_prefixlen) for network in holding)


def _kind(address: Address) -> str | None:
    """What keeps an address from being public; None if nothing does."""
    address = _without_scope(address)
    if address in _METADATA:
        return "metadata"
    for network, kind in _KINDS:
        if address in network:
            return kind
    if isinstance(address, IPv6Address):
        if address not in _UNICAST:
            return "reserved"
        if int(address) >> 32 & _LOW_32 in (_ISATAP, _ISATAP_GLOBAL):
            return "ISATAP"
    return None


def _embedded(address: Address, kind: str | None) -> IPv4Address | None:
    """The IPv4 address that an IPv6 address carries."""
    if not isinstance(address, IPv6Address):
        return None
    if kind in _WITH_IPV4_AT_THE_END or kind == "ISATAP":
        return IPv4Address(int(address) & _LOW_32)
    if kind == "6to4":
        return address.sixtofour
    if kind == "Teredo" and address.teredo is not None:
        return address.teredo[1]
    return None


def _without_scope(address: Address) -> Address:
    """`fe80::1%eth0` is in `fe80::/10` and yet unequal to `fe80::1`."""
    return IPv6Address(int(address)) if isinstance(address, IPv6Address) else address


def _look_up(host: str, port: int) -> list[tuple[int, int, int, str, tuple[str, ...]]]:
    return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)  # type: ignore[return-value]


def _read(text: str) -> Address:
    return ip_address(text)
