"""A whole installation of its own: a database, an API, a scheduler and a worker, as an operator starts them.

Everything is done through the command line, and then through the command line and the client. Its pool has
a name of its own, because the tests share one Kafka.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import asyncpg

from mainspring.client import AsyncClient, Client
from mainspring.local import LocalStack
from mainspring.local.process import Command, Process, Spawner, server_environment

MAINSPRING = Path(sys.executable).with_name("mainspring")
ROOT = Path(__file__).parents[3]
APP = "tests.acceptance.cli.app:app"
GENEROUS_SECONDS = 120.0

Done = subprocess.CompletedProcess[str]


class Installation:
    """What a person sits in front of."""

    def __init__(self, variables: dict[str, str], directory: Path, spawner: Spawner) -> None:
        self.pool = f"cli-{uuid4().hex[:12]}"
        self.directory = directory
        self.variables = variables
        self._spawner = spawner
        self._processes: dict[str, Process] = {}

    @property
    def url(self) -> str:
        return self.variables["MAINSPRING_URL"]

    @property
    def key(self) -> str:
        return self.variables["MAINSPRING_API_KEY"]

    def run(self, *arguments: str, given: str | None = None, **variables: str) -> Done:
        """`mainspring …` in the installation's directory."""
        return subprocess.run(
            [MAINSPRING, *arguments],
            input=given,
            stdin=subprocess.DEVNULL if given is None else None,
            capture_output=True,
            text=True,
            check=False,
            timeout=GENEROUS_SECONDS,
            cwd=self.directory,
            env=self.environment | variables,
        )

    def ok(self, *arguments: str, given: str | None = None, **variables: str) -> str:
        """The same, of a command that must succeed: what it printed."""
        done = self.run(*arguments, given=given, **variables)
        assert done.returncode == 0, f"mainspring {' '.join(arguments)}\n{done.stdout}{done.stderr}"
        assert "Traceback" not in done.stderr
        return done.stdout

    @property
    def environment(self) -> dict[str, str]:
        return server_environment(**self.variables) | {
            "PATH": f"{MAINSPRING.parent}:{os.environ['PATH']}",
            "TZ": "Europe/Berlin",
            "LC_ALL": "C.UTF-8",
        }

    def tenant(self) -> Installation:
        """The same installation as another tenant sees it, with nothing in it."""
        name = f"t-{uuid4().hex[:12]}"
        self.ok("tenants", "create", name)
        key = self.ok("keys", "create", "first", "--role", "admin", "--direct", "--tenant", name).strip()
        seen = Installation(self.variables | {"MAINSPRING_API_KEY": key}, self.directory, self._spawner)
        seen.pool, seen._processes = self.pool, self._processes
        return seen

    def client(self) -> Client:
        return Client(self.url, self.key)

    def async_client(self) -> AsyncClient:
        return AsyncClient(self.url, self.key)

    def start(self, name: str, *options: str, **variables: str) -> None:
        """Start a process of ours under a name of its own."""
        log = self.directory / f"{name}.log"
        command = Command(
            argv=[str(MAINSPRING), *options],
            directory=ROOT,
            environment=self.environment | {"MAINSPRING_LOG_FORMAT": "json"} | variables,
        )
        self._processes[name] = self._spawner.spawn(command, log)

    def said(self, name: str, event: str) -> dict[str, str]:
        """Wait until a process has logged this."""
        found: list[dict[str, str]] = []

        def look() -> bool:
            process, text = self._processes[name], (self.directory / f"{name}.log").read_text()
            assert process.running, text
            lines = [line for line in text.splitlines() if line.startswith("{") and line.endswith("}")]
            found.extend(each for each in map(json.loads, lines) if each["event"] == event)
            return bool(found)

        until(look, f"{name} says {event}")
        return found[-1]

    async def stop(self) -> None:
        for process in self._processes.values():
            await process.end()

    def _begin(self) -> None:
        self.ok("migrate")
        self.variables["MAINSPRING_API_KEY"] = self.ok(
            "keys", "create", "first", "--role", "admin", "--direct"
        ).strip()
        self.start("api", "api", "--address", "127.0.0.1:0")
        self.start("scheduler", "scheduler")
        self.start("worker", "worker", "--pool", self.pool, "--app", APP)
        self.variables["MAINSPRING_URL"] = self.said("api", "api_started")["address"]
        self.said("worker", "worker_began")

    @classmethod
    @contextmanager
    def on(cls, stack: LocalStack, directory: Path) -> Iterator[Installation]:
        """One on the stack that all tests share; its processes end with the block."""
        server, name = stack.environment()["MAINSPRING_POSTGRES_DSN"], f"cli_{uuid4().hex}"
        variables = stack.environment() | {
            "MAINSPRING_POSTGRES_DSN": urlunsplit(urlsplit(server)._replace(path=f"/{name}")),
            "MAINSPRING_ETCD_PREFIX": f"/test/{name}/",
            "PYTHONPATH": str(ROOT),
        }
        asyncio.run(_execute(server, f"CREATE DATABASE {name}"))
        spawner = Spawner()
        installation = cls(variables, directory, spawner)
        try:
            installation._begin()
            yield installation
        finally:
            asyncio.run(installation.stop())
            spawner.close()
            asyncio.run(_execute(server, f"DROP DATABASE {name} WITH (FORCE)"))


def until(fact: Callable[[], bool], what: str) -> None:
    """Return when the fact holds; a fact that never comes fails by its name."""
    deadline = time.monotonic() + GENEROUS_SECONDS
    while not fact():
        if time.monotonic() > deadline:
            raise AssertionError(f"within {GENEROUS_SECONDS:g} s it never came true that {what}")
        time.sleep(0.05)


async def _execute(dsn: str, statement: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()
