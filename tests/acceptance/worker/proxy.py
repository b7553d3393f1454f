"""A network that can be broken: a proxy between a worker and a server.

cut          connections are reset, and new ones too, as when a firewall refuses
silent       connections stay open and nothing passes, as when a cable is pulled; what was on its way
             arrives when it is plugged in again
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Self

from mainspring.local.ports import HOST

_CHUNK = 65_536


class Proxy:
    """Forwards connections to one server."""

    def __init__(self, target: str) -> None:
        self._target = target
        self.address = ""
        self.connections = 0
        """So many were made through it."""
        self._is_cut = False
        self._passing = asyncio.Event()
        self._passing.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @classmethod
    @asynccontextmanager
    async def listening(cls, target: str, port: int = 0) -> AsyncIterator[Self]:
        proxy = cls(target)
        server = await asyncio.start_server(proxy._accept, HOST, port)
        proxy.address = f"{HOST}:{server.sockets[0].getsockname()[1]}"
        try:
            yield proxy
        finally:
            server.close()
            for task in proxy._tasks:
                task.cancel()
            await asyncio.gather(*proxy._tasks, return_exceptions=True)

    def cut(self) -> None:
        self._is_cut = True
        for writer in self._writers:
            writer.transport.abort()

    def silence(self) -> None:
        self._passing.clear()

    def restore(self) -> None:
        self._is_cut = False
        self._passing.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        try:
            if not self._is_cut:
                # Cancelled only at the end of the test, and asyncio would report that as a fault.
                with suppress(OSError, asyncio.CancelledError):
                    await self._connect(reader, writer)
        finally:
            writer.transport.abort()
            self._writers.discard(writer)
            self._tasks.discard(task)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._passing.wait()
        host, _, port = self._target.rpartition(":")
        from_target, to_target = await asyncio.open_connection(host, int(port))
        self.connections += 1
        self._writers.add(to_target)
        try:
            async with asyncio.TaskGroup() as pumps:
                pumps.create_task(self._pump(reader, to_target))
                pumps.create_task(self._pump(from_target, writer))
        finally:
            to_target.transport.abort()
            self._writers.discard(to_target)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """The end of one direction is the end of both: none of our clients closes only half."""
        with suppress(OSError):
            while chunk := await reader.read(_CHUNK):
                await self._passing.wait()
                writer.write(chunk)
                await writer.drain()
        writer.close()
