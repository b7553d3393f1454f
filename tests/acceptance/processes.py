"""Real schedulers and workers: `mainspring` processes, each with a log of its own; none outlives its test.

They are started through `mainspring.local.process`, so the kernel kills them if the test itself is killed,
and a stopped one is killed by its guard.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from mainspring.local.process import Command, Process, Spawner, server_environment
from tests.acceptance.waiting import GENEROUS_SECONDS, until

MAINSPRING = Path(sys.executable).with_name("mainspring")
# How a process says who it is, and the field that names it. A worker says it again in each of its lives.
_INTRODUCTIONS = {"scheduler": ("scheduler_started", "identity"), "worker": ("worker_began", "worker")}
# Where the tests were told to take the package from, the processes take it from too.
_SAME_CODE = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}


class Event(NamedTuple):
    """One line of a process's log."""

    name: str
    level: str
    at: float  # seconds since 1970, of the same machine's clock as everything else here
    data: Mapping[str, Any]


class MainspringProcess:
    """One running scheduler or worker."""

    def __init__(self, kind: str, process: Process, log: Path) -> None:
        self._introduction, self._name = _INTRODUCTIONS[kind]
        self._kind = kind
        self._process = process
        self.log = log
        self.identity = ""
        """Of a worker: in its first life."""
        self.status_address = ""

    @classmethod
    def start(
        cls,
        spawner: Spawner,
        directory: Path,
        name: str,
        variables: Mapping[str, str],
        *,
        kind: str = "scheduler",
        options: Sequence[str] = (),
    ) -> MainspringProcess:
        log = directory / f"{name}.log"
        command = Command(
            argv=[str(MAINSPRING), kind, *options],
            directory=directory,
            environment=server_environment(
                **{"MAINSPRING_LOG_FORMAT": "json"} | _SAME_CODE | dict(variables)
            ),
        )
        return cls(kind, spawner.spawn(command, log), log)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.running

    @property
    def exit_code(self) -> int | None:
        return self._process.exit_code

    async def introduced(self) -> None:
        """Wait until it has said who it is."""
        await until(self._has_started, f"{self.log.name} says {self._introduction}")
        self.identity = self.identities[0]
        self.status_address = self.events(f"{self._kind}_started")[0].data["status"]

    @property
    def identities(self) -> list[str]:
        """The names of its lives, oldest first; a scheduler has one."""
        return [event.data[self._name] for event in self.events(self._introduction)]

    def events(self, *names: str) -> list[Event]:
        """Its log, or only the events of these names, oldest first."""
        found = [_parse(line) for line in self.lines() if line.startswith("{")]
        return [event for event in found if not names or event.name in names]

    def lines(self) -> list[str]:
        """Its log as it stands, without a line that is still being written."""
        text = self.log.read_text()
        return text[: text.rfind("\n") + 1].splitlines()

    def faults(self, *expected: str) -> list[str]:
        """What no process should ever log: an error, a traceback, a line that is no event."""
        return [
            line for line in self.lines() if not line.startswith("{") or _is_fault(_parse(line), expected)
        ]

    async def kill(self) -> None:
        """SIGKILL, and gone when this returns."""
        await self._process.end()

    async def terminate(self, number: str = "SIGTERM") -> int:
        """Ask it to end: its exit code; negative if it had to be killed after all."""
        await self._process.stop(signal.Signals[number], GENEROUS_SECONDS)
        assert self._process.exit_code is not None
        return self._process.exit_code

    def send(self, number: str) -> None:
        """A signal, without waiting for what comes of it."""
        os.kill(self.pid, signal.Signals[number])

    async def ended(self) -> int:
        """Wait until it has ended by itself: its exit code."""
        await until(lambda: not self.running, f"{self.log.name} is the log of a process that ended")
        assert self._process.exit_code is not None
        return self._process.exit_code

    def pause(self) -> None:
        """SIGSTOP."""
        self._process.pause()

    def resume(self) -> None:
        """SIGCONT."""
        self._process.resume()

    def _has_started(self) -> bool:
        if not self.running:
            raise AssertionError(f"it ended with {self.exit_code}:\n{self.log.read_text()}")
        return bool(self.events(self._introduction))


def _parse(line: str) -> Event:
    data = json.loads(line)
    at = datetime.fromisoformat(data["timestamp"]).timestamp()
    return Event(data["event"], data["level"], at, data)


def _is_fault(event: Event, expected: Sequence[str]) -> bool:
    # asyncpg leaves this behind when the server dies between its connection and its greeting.
    stray = event.data["logger"] == "asyncio" and "unexpected connection_lost() call" in event.name
    return event.level in ("error", "critical") and not stray and event.name not in expected
