"""The line between a leader and Postgres, which a test can cut: before a question, or before an answer."""

from __future__ import annotations

import asyncio
from typing import Self
from urllib.parse import urlsplit, urlunsplit


class Line:
    """A TCP relay on a port of its own; `dsn` goes through it."""

    def __init__(self, dsn: str) -> None:
        self._behind = urlsplit(dsn)
        self._connections: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self._lose_answer_to: bytes | None = None
        self._is_cut = False
        self.refused = 0
        """How often somebody came while it was cut."""
        self.dsn = ""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        credentials, at, _ = self._behind.netloc.rpartition("@")
        self.dsn = urlunsplit(self._behind._replace(netloc=f"{credentials}{at}127.0.0.1:{port}"))
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self.cut()
        self._server.close()

    def cut(self) -> None:
        """End every conversation, and refuse new ones until it is mended."""
        self._is_cut = True
        for writer in self._connections:
            writer.close()

    def mend(self) -> None:
        self._is_cut = False

    def lose_answer_to(self, question: bytes) -> None:
        """The next question with these bytes reaches Postgres; its answer does not come back."""
        self._lose_answer_to = question

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_cut:
            self.refused += 1
            writer.close()
            return
        assert self._behind.hostname is not None
        answers, questions = await asyncio.open_connection(self._behind.hostname, self._behind.port)
        self._connections |= {writer, questions}
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._relay(reader, questions, answers))
                both.create_task(self._relay(answers, writer))
        except* OSError:
            pass
        finally:
            self._connections -= {writer, questions}

    async def _relay(
        self,
        source: asyncio.StreamReader,
        target: asyncio.StreamWriter,
        answers: asyncio.StreamReader | None = None,
    ) -> None:
        try:
            while data := await source.read(65536):
                target.write(data)
                await target.drain()
                if answers is not None and self._lose_answer_to is not None and self._lose_answer_to in data:
                    self._lose_answer_to = None
                    self.cut()
        finally:
            target.close()
