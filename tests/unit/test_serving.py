"""The status server, over real sockets on free ports."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Counter, Metric

from mainspring import serving
from mainspring.schema.errors import InvalidSetting
from mainspring.serving import Health, StatusServer, parse_address

WELL = Health(alive=True, ready=True)
DEADLINE = 20.0


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Site:
    """A running server whose health a test sets as it likes."""

    health: Health = WELL
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    address: str = ""

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(*parse_address(self.address))

    async def send(self, request: bytes, *, half_close: bool = False) -> Answer:
        async with asyncio.timeout(DEADLINE):
            reader, writer = await self.connect()
            writer.write(request)
            if half_close:
                writer.write_eof()
            raw = await reader.read()
            writer.close()
            await writer.wait_closed()
        head, _, body = raw.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        return Answer(int(first.split(" ")[1]), headers, body)

    async def get(self, path: str, method: str = "GET", **headers: str) -> Answer:
        fields = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        return await self.send(f"{method} {path} HTTP/1.1\r\nHost: status\r\n{fields}\r\n".encode())


@asynccontextmanager
async def serve(seconds: float = DEADLINE) -> AsyncIterator[tuple[Site, StatusServer]]:
    site = Site()
    server = StatusServer(
        "127.0.0.1:0", health=lambda: site.health, registry=site.registry, connection_seconds=seconds
    )
    site.address = await server.start()
    try:
        yield site, server
    finally:
        await server.stop()


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with serve() as (site, _):
        yield site


@pytest.mark.parametrize(
    ("health", "healthz", "readyz"),
    [
        (WELL, 200, 200),
        (Health(alive=True, ready=False, reasons=("postgres does not answer",)), 200, 503),
        (Health(alive=False, ready=True, reasons=("the firing loop has ended",)), 503, 503),
    ],
)
async def test_health_and_readiness_are_told_with_reasons(
    site: Site, health: Health, healthz: int, readyz: int
) -> None:
    site.health = health
    for path, status in (("/healthz", healthz), ("/readyz", readyz), ("/readyz?verbose=1", readyz)):
        answer = await site.get(path)
        assert answer.status == status
        assert answer.json() == {
            "alive": health.alive,
            "ready": health.ready,
            "reasons": list(health.reasons),
        }
        assert answer.headers["content-type"] == "application/json"


async def test_metrics_are_prometheus_text_and_openmetrics_when_asked(site: Site) -> None:
    Counter("buckets", "Buckets published", registry=site.registry).inc(3)
    plain = await site.get("/metrics")
    assert (plain.status, plain.headers["content-type"].split(";")[0]) == (200, "text/plain")
    assert b"\nbuckets_total 3.0\n" in plain.body
    openmetrics = await site.get("/metrics", Accept="application/openmetrics-text; version=1.0.0")
    assert openmetrics.headers["content-type"].startswith("application/openmetrics-text")
    assert openmetrics.body.endswith(b"# EOF\n")


@pytest.mark.parametrize("half_close", [False, True])
async def test_a_large_answer_arrives_whole(site: Site, half_close: bool) -> None:
    counter = Counter("runs", "Runs", ["shard"], registry=site.registry)
    for shard in range(1_000):
        counter.labels(shard=f"{shard:020000}").inc()
    answer = await site.send(b"GET /metrics HTTP/1.1\r\n\r\n", half_close=half_close)
    assert len(answer.body) == int(answer.headers["content-length"]) > 20_000_000


async def test_head_is_get_without_the_body(site: Site) -> None:
    whole, head = await site.get("/healthz"), await site.get("/healthz", "HEAD")
    assert (head.status, head.body) == (200, b"")
    assert head.headers["content-length"] == str(len(whole.body))


async def test_other_paths_and_methods_are_refused(site: Site) -> None:
    assert (await site.get("/")).status == 404
    assert (await site.get("/healthz/")).status == 404
    post = await site.get("/healthz", "POST")
    assert (post.status, post.headers["allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\r\n\r\n",
        b"GET /healthz\r\n\r\n",
        b"GET healthz HTTP/1.1\r\n\r\n",
        b"GET /healthz HTTP/2\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nX: \xff\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nAccept: text/plain;version=1.0.0;escaping=a\nSet-Cookie: a\r\n\r\n",
    ],
)
async def test_what_is_no_request_is_a_bad_request(site: Site, request_bytes: bytes) -> None:
    assert (await site.send(request_bytes)).status == 400


async def test_an_endless_header_is_refused_and_the_refusal_arrives(site: Site) -> None:
    answer = await site.send(b"GET /healthz HTTP/1.1\r\nX: " + b"a" * 4_000_000 + b"\r\n\r\n")
    assert answer.status == 431


@pytest.mark.parametrize("sent", [b"", b"GET /healthz HTT", b"GET /healthz HTTP/1.1\r\n\r\n"])
async def test_a_client_that_dawdles_is_cut_off(sent: bytes) -> None:
    async with serve(seconds=0.05) as (site, _), asyncio.timeout(DEADLINE):
        reader, writer = await site.connect()
        writer.write(sent)
        await _ended(reader)
        # The client still holds its side open: that the server has let go shows in that writing fails.
        with pytest.raises(ConnectionError):
            await _write_on(writer)
        writer.close()


async def test_one_connection_too_many_is_cut_off_and_a_place_is_free_again_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(serving, "MAXIMUM_CONNECTIONS", 1)
    async with serve() as (site, _), asyncio.timeout(DEADLINE):
        _, idle = await site.connect()
        reader, second = await site.connect()
        await _ended(reader)
        second.close()
        idle.close()
        await idle.wait_closed()
        while not await _answers(site):  # until the server has seen the end of the first
            pass


async def test_a_collector_that_fails_is_an_error_and_not_the_end(site: Site) -> None:
    class Broken:
        def describe(self) -> Iterable[Metric]:
            return []

        def collect(self) -> Iterable[Metric]:
            raise RuntimeError("no")

    site.registry.register(Broken())
    assert (await site.get("/metrics")).status == 500
    assert (await site.get("/healthz")).status == 200


async def test_stopping_cuts_off_who_is_connected_and_frees_the_port() -> None:
    async with serve() as (site, server), asyncio.timeout(DEADLINE):
        reader, writer = await site.connect()
        assert (await site.get("/healthz")).status == 200
        await server.stop()
        await _ended(reader)
        writer.close()
        again = StatusServer(site.address, health=lambda: WELL, registry=site.registry)
        assert await again.start() == site.address
        await again.stop()
        await again.stop()


async def test_a_port_in_use_is_said_in_words(site: Site) -> None:
    second = StatusServer(site.address, health=lambda: WELL, registry=site.registry)
    with pytest.raises(InvalidSetting, match=rf"MAINSPRING_STATUS: {site.address} cannot be listened on"):
        await second.start()
    await second.stop()


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("127.0.0.1:0", ("127.0.0.1", 0)),
        ("localhost:65535", ("localhost", 65535)),
        ("[::1]:9100", ("::1", 9100)),
    ],
)
def test_addresses(text: str, parsed: tuple[str, int]) -> None:
    assert parse_address(text) == parsed


@pytest.mark.parametrize(
    "text",
    ["", "9100", ":9100", "[]:1", "host", "host:", "host:x", "host:-1", "host:65536", "::1:80", " a:1"],
)
def test_what_is_no_address_is_refused_with_the_name_of_the_setting(text: str) -> None:
    with pytest.raises(InvalidSetting) as refused:
        parse_address(text)
    assert refused.value.field == "MAINSPRING_STATUS"


async def _ended(reader: asyncio.StreamReader) -> None:
    """Wait for the end of the stream, orderly or not."""
    with suppress(ConnectionError):
        await reader.read()


async def _write_on(writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(b"more")
        await writer.drain()
        await asyncio.sleep(0.01)


async def _answers(site: Site) -> bool:
    try:
        return (await site.get("/healthz")).status == 200
    except (ConnectionError, IndexError):
        return False  # cut off, before or after the request was sent
