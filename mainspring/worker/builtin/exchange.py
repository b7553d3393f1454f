"""One request on the wire: the name resolved once, every address checked, the connection to one of them.

The connection is made to the address itself, while Host, SNI and the certificate's check keep the name. So
what was checked is what is connected to. Each request has a connection of its own: one that is kept would be
found again by its address, and might belong to another name there. Proxies of the environment are not asked:
they would resolve the name a second time.

A caller reads as much of the body as it wants; leaving the block closes the connection. Nothing here waits
longer than the caller's own timeout, which cancels it wherever it is.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from ipaddress import ip_address

import httpx

from mainspring.worker.builtin.addresses import (
    Address,
    Network,
    Resolver,
    Unresolvable,
    check_addresses,
)
from mainspring.worker.builtin.failures import RequestFailed
from mainspring.worker.builtin.web_request import origin, shown

_MOST_ADDRESSES = 8
_CONNECT_SECONDS = 5.0
"""For an address that is not the last: after that the next one is tried."""


class Exchange:
    """Sends requests to addresses that are allowed."""

    def __init__(self, resolver: Resolver, allowed: Sequence[Network], context: ssl.SSLContext) -> None:
        self._resolver = resolver
        self._allowed = allowed
        self._context = context
        # At `debug` it writes every header of every request, secrets included.
        logging.getLogger("httpcore").setLevel(logging.WARNING)

    @asynccontextmanager
    async def open(
        self, method: str, url: httpx.URL, headers: Mapping[str, str], body: bytes
    ) -> AsyncIterator[httpx.Response]:
        """A response whose body is still to be read; raises Refused, or RequestFailed."""
        try:
            async with AsyncExitStack() as stack:
                yield await self._send(stack, method, url, headers, body)
        except Unresolvable as error:
            raise RequestFailed(str(error)) from error
        except httpx.TransportError as error:
            reason = str(error) or type(error).__name__
            raise RequestFailed(f"{method} {shown(url)} failed: {reason}") from error

    async def _send(
        self, stack: AsyncExitStack, method: str, url: httpx.URL, headers: Mapping[str, str], body: bytes
    ) -> httpx.Response:
        """Try the addresses in turn; nothing of the request has left while none was connected to."""
        addresses = await self._addresses(url)
        *others, last = addresses[:_MOST_ADDRESSES]
        for address in others:
            try:
                return await self._send_to(stack, address, method, url, headers, body, _CONNECT_SECONDS)
            except (httpx.ConnectError, httpx.ConnectTimeout):
                continue
        return await self._send_to(stack, last, method, url, headers, body, None)

    async def _addresses(self, url: httpx.URL) -> Sequence[Address]:
        _, host, port = origin(url)
        try:
            addresses: Sequence[Address] = [ip_address(host)]
        except ValueError:
            addresses = await self._resolver.resolve(host, port)
        if not addresses:
            raise Unresolvable(f"{host} has no address")
        check_addresses(host, addresses, self._allowed)
        return addresses

    async def _send_to(
        self,
        stack: AsyncExitStack,
        address: Address,
        method: str,
        url: httpx.URL,
        headers: Mapping[str, str],
        body: bytes,
        connect_seconds: float | None,
    ) -> httpx.Response:
        _, host, _ = origin(url)
        request = httpx.Request(
            method,
            url.copy_with(host=str(address)),
            headers={"Host": url.netloc.decode("ascii"), **headers},
            content=body,
            extensions={"sni_hostname": host, "timeout": {"connect": connect_seconds}},
        )
        transport = httpx.AsyncHTTPTransport(verify=self._context, trust_env=False)
        await stack.enter_async_context(transport)
        response = await transport.handle_async_request(request)
        stack.push_async_callback(response.aclose)
        return response


async def read_at_most(response: httpx.Response, limit: int) -> tuple[bytes, bool]:
    """The body as sent, and whether it was longer than the limit; then no more of it is read."""
    body = bytearray()
    async for chunk in response.aiter_raw():
        body += chunk
        if len(body) > limit:
            return bytes(body[:limit]), True
    return bytes(body), False
