"""One server of the stack, which can be stopped, killed, paused and restarted alone.

A member keeps its directory and its address through every restart, so clients that hold the address find it
again. `start` and `restart` return when the server has answered a real request.
"""

from __future__ import annotations

import asyncio
import signal
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from pathlib import Path

from mainspring.local.failures import ended, file_errors
from mainspring.local.process import Command, Process, Spawner, end_leftovers, run
from mainspring.local.waiting import to_the_end
from mainspring.schema.errors import LocalStackError

STOP_GRACE_SECONDS = 3.0
READY_SECONDS = 60.0
_PROBE_PAUSE_SECONDS = 0.03


class Member(ABC):
    """A server process; the three kinds say how it is prepared, started and asked."""

    part: str
    stop_signal = signal.SIGTERM

    def __init__(self, name: str, address: str, directory: Path, spawner: Spawner) -> None:
        self.name = name
        self.address = address
        self.directory = directory
        self.log = directory.parent / f"{name}.log"
        self.on_change: Callable[[], None] = lambda: None
        self._spawner = spawner
        self._process: Process | None = None
        self._log_start = 0

    @abstractmethod
    async def prepare(self) -> None:
        """Everything before the first start: find the programs, make the data directory. Repeatable."""

    @abstractmethod
    def command(self) -> Command:
        """How the server is started."""

    @abstractmethod
    async def answers(self) -> bool:
        """Ask the server a real request."""

    @property
    def pid(self) -> int | None:
        """The server's process id; None while it does not run."""
        return self._process.pid if self._process is not None and self._process.running else None

    def refuse_the_dead(self) -> None:
        """Raise, with the reason from its log, when it ended without having been told to."""
        process = self._process
        if process is not None and process.exit_code is not None:
            self._process = None
            raise ended(self.name, self.log, exit_code=process.exit_code, start=self._log_start)

    async def start(self) -> None:
        """Start the server and wait until it answers; no effect when it runs."""
        if self.pid is not None:
            return
        await end_leftovers(self.directory)
        await self.prepare()
        self.launch()
        await self.wait_ready()

    def launch(self) -> None:
        """Start the process and return at once."""
        with file_errors(self.directory):
            self._log_start = self.log.stat().st_size if self.log.exists() else 0
            self._process = self._spawner.spawn(self.command(), self.log)
        self.on_change()

    async def run_tool(self, name: str, command: Command) -> None:
        """Run a tool of this server to its end, into the server's log; its failure is ours."""
        with file_errors(self.directory):
            start = self.log.stat().st_size if self.log.exists() else 0
            code = await run(self._spawner, command, self.log)
        if code != 0:
            raise ended(name, self.log, exit_code=code, start=start)

    async def wait_ready(
        self, question: Callable[[], Awaitable[bool]] | None = None, *, timeout: float = READY_SECONDS
    ) -> None:
        """Wait for the first good answer. A server that ends before, or stays silent, is an error."""
        ask = question or self.answers
        try:
            async with asyncio.timeout(timeout):
                while not await ask():
                    self._refuse_the_stopped()
                    await asyncio.sleep(_PROBE_PAUSE_SECONDS)
        except TimeoutError as error:
            await self.stop()
            raise LocalStackError(
                f"{self.name} did not answer within {timeout:.0f} s", f"its log is {self.log}"
            ) from error
        # Another server may have taken the port and answered in its place.
        self._refuse_the_stopped()

    async def stop(self) -> None:
        """Stop in an orderly way, by SIGKILL after the grace; a paused member too."""
        if self._process is not None:
            process, self._process = self._process, None
            await process.stop(self.stop_signal, STOP_GRACE_SECONDS)
            self.on_change()

    async def kill(self) -> None:
        """End it at once with SIGKILL, everything below it too, and wait until it is gone."""
        if self._process is not None:
            process, self._process = self._process, None
            await to_the_end(process.end())
            self.on_change()

    def pause(self) -> None:
        """Freeze it with SIGSTOP, Postgres's backends included: connections stay open, nothing answers."""
        self._running().pause()

    def resume(self) -> None:
        """Let a paused member go on."""
        self._running().resume()

    async def restart(self) -> None:
        """Stop (when it runs), start, wait until it answers."""
        await self.stop()
        await self.start()

    def _running(self) -> Process:
        if self._process is None or not self._process.running:
            raise LocalStackError(f"{self.name} does not run", "start it first")
        return self._process

    def _refuse_the_stopped(self) -> None:
        self.refuse_the_dead()
        if self._process is None:
            raise LocalStackError(f"{self.name} was stopped while it started", "start it again")
