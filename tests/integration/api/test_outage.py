"""Postgres away: 503 and when to come back, not where it is; and everything as before when it returns."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from mainspring.local.ports import free_port
from tests.integration.api.house import House


class Road:
    """The way to Postgres, which can be closed: connections break, and new ones are refused."""

    def __init__(self, host: str, port: int) -> None:
        self._target = host, port
        self.port = free_port()
        self._server: asyncio.Server | None = None
        self._writers: list[asyncio.StreamWriter] = []

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._forward, "127.0.0.1", self.port)

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()
        await asyncio.sleep(0)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner, outer = await asyncio.open_connection(*self._target)
        self._writers += [writer, outer]
        await asyncio.gather(_copy(reader, outer), _copy(inner, writer))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while part := await reader.read(65536):
            writer.write(part)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()


async def test_an_outage_is_503_and_passes(api_database: str, exits: AsyncExitStack) -> None:
    there = urlsplit(api_database)
    assert there.hostname is not None
    assert there.port is not None
    road = Road(there.hostname, there.port)
    await road.open()
    exits.push_async_callback(road.close)
    netloc = there.netloc.rpartition("@")[0] + f"@127.0.0.1:{road.port}"
    dsn = urlunsplit(there._replace(netloc=netloc))
    pool = await exits.enter_async_context(asyncpg.create_pool(dsn, min_size=0, max_size=4))
    house = House(dsn, pool, exits)
    client = await (await house.tenant()).client("admin")
    await client.job()
    await road.close()
    for method, path in (("GET", "/jobs"), ("POST", "/jobs/daily/trigger"), ("GET", "/shards")):
        response = await client.http.request(method, path)
        assert (response.status_code, response.headers["retry-after"]) == (503, "1")
        assert "127.0.0.1" not in response.text
    ready = await client.http.get("http://127.0.0.1/readyz")
    assert (ready.status_code, ready.json()["ready"]) == (503, False)
    assert (await client.http.get("http://127.0.0.1/healthz")).status_code == 200
    await road.open()
    await client.ask(202, "POST", "/jobs/daily/trigger")
    assert (await client.http.get("http://127.0.0.1/readyz")).status_code == 200
