"""What a process says of itself over HTTP: `/healthz`, `/readyz` and `/metrics` on a port of its own.

    /healthz   200 while the process is alive, else 503: an orchestrator restarts it
    /readyz    200 while it is alive and does its work, else 503: traffic and alerts look here
    /metrics   Prometheus text, or OpenMetrics where the client asks for it

The first two answer `{"alive": …, "ready": …, "reasons": […]}`; the reasons say what is wrong.

A small HTTP/1.1 of our own, because three answers need no framework, and because they must come from the
process's own event loop: one that hangs must not look healthy. Each connection gets one answer and is closed.
A client costs at most one of `MAXIMUM_CONNECTIONS`, a few KiB and five seconds, however slowly it speaks or
listens; one too many is cut off at once.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from http import HTTPStatus
from typing import NamedTuple

import structlog
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from mainspring.schema.errors import InvalidSetting

SETTING = "MAINSPRING_STATUS"
MAXIMUM_HEAD = 8 * 1024
MAXIMUM_CONNECTIONS = 64
CONNECTION_SECONDS = 5.0

_JSON = "application/json"
_METHODS = ("GET", "HEAD")

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, kw_only=True)
class Health:
    """What a process thinks of itself; `reasons` are for people, one fault each."""

    alive: bool
    ready: bool
    reasons: tuple[str, ...] = ()


class Request(NamedTuple):
    """As much of a request as matters here."""

    method: str
    path: str
    accept: str


class Response(NamedTuple):
    """An answer; the connection is closed after it."""

    status: HTTPStatus
    body: bytes
    content_type: str = _JSON

    def encode(self, *, with_body: bool) -> bytes:
        head = (
            f"HTTP/1.1 {self.status.value} {self.status.phrase}\r\n"
            f"Content-Type: {self.content_type}\r\n"
            f"Content-Length: {len(self.body)}\r\n"
            f"Allow: {', '.join(_METHODS)}\r\n"
            "Cache-Control: no-store\r\n"
            "Connection: close\r\n\r\n"
        )
        return head.encode("ascii") + (self.body if with_body else b"")


def parse_address(text: str, setting: str = SETTING) -> tuple[str, int]:
    """`host:port` or `[address]:port` to listen on; port 0 is any free one."""
    host, _, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if not host.strip("[]") or host != host.strip() or (":" in host and not bracketed):
        raise InvalidSetting(setting, f"{text!r} is not host:port; all interfaces are 0.0.0.0:port")
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65535):
        raise InvalidSetting(setting, f"{text!r} does not end in a port of 0–65535")
    return host.strip("[]"), int(port)


def is_loopback(host: str) -> bool:
    """Whether nobody from another machine can connect to a listener there."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class StatusServer:
    """Serves what `health` and `registry` say at the moment of each request."""

    def __init__(
        self,
        address: str,
        *,
        health: Callable[[], Health],
        registry: CollectorRegistry,
        connection_seconds: float = CONNECTION_SECONDS,
    ) -> None:
        self._address = address
        self._host, self._port = parse_address(address)
        self._health = health
        self._registry = registry
        self._connection_seconds = connection_seconds
        self._server: asyncio.Server | None = None
        self._open = False
        self._connections: set[asyncio.Task[None]] = set()

    async def start(self) -> str:
        """Listen, and return the address with the port that was taken."""
        self._open = True
        try:
            self._server = await asyncio.start_server(
                self._converse, self._host, self._port, limit=MAXIMUM_HEAD
            )
        except OSError as error:
            reason = error.strerror or str(error)
            raise InvalidSetting(SETTING, f"{self._address} cannot be listened on: {reason}") from error
        host, port = self._server.sockets[0].getsockname()[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    async def stop(self) -> None:
        """Stop listening and cut off whoever is still connected; harmless when it does not run."""
        self._open = False
        if self._server is None:
            return
        self._server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await self._server.wait_closed()
        self._server = None

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection from beginning to end; asyncio runs it as a task of its own."""
        task = asyncio.current_task()
        assert task is not None
        if not self._open or len(self._connections) >= MAXIMUM_CONNECTIONS:
            writer.transport.abort()
            return
        task.set_name("mainspring-status")
        self._connections.add(task)
        try:
            with suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
                async with asyncio.timeout(self._connection_seconds):
                    await self._exchange(reader, writer)
        finally:
            self._connections.discard(task)
            writer.transport.abort()  # changes nothing for a connection that ended well

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = None
        try:
            request = _parse(await reader.readuntil(b"\r\n\r\n"))
        except asyncio.LimitOverrunError:
            response = _problem(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        except ValueError:
            response = _problem(HTTPStatus.BAD_REQUEST)
        else:
            response = self._answer(request)
        writer.write(response.encode(with_body=request is None or request.method != "HEAD"))
        writer.write_eof()
        # Closing with bytes unread would reset the connection, and the answer could be lost with it.
        while await reader.read(MAXIMUM_HEAD):
            pass
        writer.close()
        await writer.wait_closed()

    def _answer(self, request: Request) -> Response:
        answers = {"/healthz": self._healthz, "/readyz": self._readyz, "/metrics": self._metrics}
        answer = answers.get(request.path)
        if answer is None:
            return _problem(HTTPStatus.NOT_FOUND)
        if request.method not in _METHODS:
            return _problem(HTTPStatus.METHOD_NOT_ALLOWED)
        try:
            return answer(request)
        except Exception:  # noqa: BLE001 - a collector's fault is answered, not the end of the server
            _log.exception("status_request_failed", path=request.path)
            return _problem(HTTPStatus.INTERNAL_SERVER_ERROR)

    def _healthz(self, _: Request) -> Response:
        health = self._health()
        return _verdict(health, good=health.alive)

    def _readyz(self, _: Request) -> Response:
        health = self._health()
        return _verdict(health, good=health.alive and health.ready)

    def _metrics(self, request: Request) -> Response:
        encode, content_type = choose_encoder(request.accept)
        return Response(HTTPStatus.OK, encode(self._registry), content_type)


def _parse(head: bytes) -> Request:
    """Raises ValueError for what is no HTTP/1 request."""
    first, *lines = head.decode("ascii").replace("\t", " ").split("\r\n")
    method, target, version = first.split(" ")
    if not version.startswith("HTTP/1.") or not target.startswith("/"):
        raise ValueError("not a request line")
    if not all(line.isprintable() for line in lines):  # a lone line break in a header is an attack
        raise ValueError("control characters in a header")
    fields = [line.partition(":") for line in lines]
    accept = [value.strip() for name, _, value in fields if name.lower() == "accept"]
    return Request(method, target.partition("?")[0], ",".join(accept))


def _verdict(health: Health, *, good: bool) -> Response:
    status = HTTPStatus.OK if good else HTTPStatus.SERVICE_UNAVAILABLE
    return Response(status, json.dumps(asdict(health)).encode() + b"\n")


def _problem(status: HTTPStatus) -> Response:
    return Response(status, json.dumps({"error": status.phrase}).encode() + b"\n")
