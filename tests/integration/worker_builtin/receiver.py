"""A receiver of requests on a real socket, and names that mean what a test says.

    async with Receiver() as receiver:
        receiver.on("/slow", drip)                 # a coroutine that writes what it likes
        receiver.on("/here", reply(302, location="/there"))
        ...
        [request] = receiver.requests

It speaks just enough HTTP to be asked, and writes bytes without looking at them: half of what it is for is to
misbehave.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from ipaddress import ip_address
from types import TracebackType
from typing import NamedTuple, Self

from mainspring.worker.builtin.addresses import Address, Unresolvable


class Received(NamedTuple):
    """A request as it came."""

    method: str
    path: str
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes


Answering = Callable[[Received, asyncio.StreamWriter], Awaitable[None]]


def reply(status: int, body: bytes = b"", **headers: str) -> Answering:
    """An answer like any other; underscores in a header's name are hyphens."""

    async def answer(request: Received, writer: asyncio.StreamWriter) -> None:
        lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        writer.write(("\r\n".join(lines) + "\r\n\r\n").encode() + body)
        await writer.drain()

    return answer


class Receiver:
    """Listens on one loopback address; `stuck` and `gone` are told by the connections themselves."""

    def __init__(self, host: str = "127.0.0.1", port: int = 0, tls: ssl.SSLContext | None = None) -> None:
        self.host = host
        self.port = port
        self.connections = 0
        self.requests: list[Received] = []
        self.written = 0
        """Bytes that went out through `flood`."""
        self.gone = asyncio.Event()
        """A client has closed its connection before the answer was over."""
        self._tls = tls
        self._answers: dict[str, Answering] = {}
        self._talks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, self.host, self.port, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for talk in self._talks:
            talk.cancel()
        await asyncio.gather(*self._talks, return_exceptions=True)
        await self._server.wait_closed()

    def url(self, path: str = "/", host: str | None = None, scheme: str = "http") -> str:
        return f"{scheme}://{host or self.host}:{self.port}{path}"

    def on(self, path: str, answer: Answering) -> None:
        """How to answer requests for a path; without it a request gets 200 and nothing."""
        self._answers[path] = answer

    async def flood(self, writer: asyncio.StreamWriter, piece: bytes) -> None:
        """Write the same bytes until the client is gone."""
        while True:
            writer.write(piece)
            await writer.drain()
            self.written += len(piece)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        talk = asyncio.current_task()
        assert talk is not None
        self._talks.add(talk)
        try:
            await self._talk(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            self.gone.set()
        except asyncio.CancelledError:
            pass
        finally:
            self._talks.discard(talk)
            writer.close()
            with suppress(OSError, asyncio.CancelledError, ssl.SSLError):
                await writer.wait_closed()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            first, *lines = head.rstrip("\r\n").split("\r\n")
            method, path, _ = first.split(" ")
            headers = {
                name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)
            }
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            request = Received(method, path, headers, body)
            self.requests.append(request)
            answer = self._answers.get(path.partition("?")[0], reply(200))
            leaving = asyncio.ensure_future(reader.read(1))
            answering = asyncio.ensure_future(answer(request, writer))
            await asyncio.wait({leaving, answering}, return_when=asyncio.FIRST_COMPLETED)
            if not answering.done():
                answering.cancel()
                raise ConnectionResetError
            await answering
            leaving.cancel()
            await asyncio.wait({leaving})
            if leaving.cancelled():
                continue
            return


class Names:
    """A resolver that says what it was told, and remembers that it was asked.

    A name with several meanings has the first at the first question, the next at the next, and so on.
    """

    def __init__(self, **meanings: Sequence[Sequence[str]]) -> None:
        self._meanings = {name.replace("_", "."): list(each) for name, each in meanings.items()}
        self.asked: list[str] = []

    async def resolve(self, host: str, port: int) -> Sequence[Address]:
        self.asked.append(host)
        meanings = self._meanings.get(host)
        if meanings is None:
            raise Unresolvable(f"{host} has no address")
        meaning = meanings[min(self.asked.count(host), len(meanings)) - 1]
        return [ip_address(text) for text in meaning]
