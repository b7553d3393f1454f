"""A real cluster for a scenario: the embedded stack, a migrated database, and Mainspring's own processes.

Everything is started from scratch in a throw-away directory and ends with the benchmark. fsync stays on and
`acks=all` stays: what is measured is what a production user keeps on.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

import click
from prometheus_client.parser import text_string_to_metric_families

from mainspring.local import LocalStack
from mainspring.local.ports import HOST, free_port
from mainspring.postgres import connect
from mainspring.schema.migrate import migrate
from mainspring.settings import Settings

# The first compiler stage alone, which the local stack starts with, costs the broker throughput.
JAVA_OPTIONS = "-Xms1g -Xmx1g -XX:+UseSerialGC"
SHARDS = 64
_STOP_SECONDS = 60


def progress(line: str) -> None:
    """Talk goes to stderr; stdout belongs to the result."""
    click.echo(line, err=True)


@dataclass(frozen=True)
class Cluster:
    """Where the parts are."""

    environment: dict[str, str]

    @property
    def settings(self) -> Settings:
        return Settings.from_environment(self.environment)


@asynccontextmanager
async def running_cluster() -> AsyncIterator[Cluster]:
    """Start Postgres, Kafka and etcd, and migrate."""
    stack = LocalStack(kafka_java_options=JAVA_OPTIONS, progress=progress)
    async with stack:
        cluster = Cluster(dict(os.environ) | stack.environment())
        connection = await connect(cluster.settings.postgres, application="bench")
        try:
            await migrate(connection, shards=SHARDS)
        finally:
            await connection.close()
        yield cluster


class Child:
    """A Mainspring process of its own, and what its metrics say."""

    command = ""
    listens = "--status"

    def __init__(self, cluster: Cluster, *arguments: str, variables: Mapping[str, str] | None = None) -> None:
        self._address = f"{HOST}:{free_port()}"
        self.ended = False
        self._log = Path(tempfile.mkstemp(prefix="mainspring-bench-", suffix=".log")[1])
        program = Path(sys.executable).with_name("mainspring")
        with self._log.open("wb") as output:
            self._child = subprocess.Popen(
                [program, self.command, self.listens, self._address, *arguments],
                env=cluster.environment | {"MAINSPRING_LOG_FORMAT": "json"} | dict(variables or {}),
                stdout=output,
                stderr=subprocess.STDOUT,
                process_group=0,  # a Ctrl-C is for the benchmark: it decides what is stopped when
            )

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def url(self) -> str:
        return f"http://{self._address}"

    async def metrics(self) -> dict[str, float]:
        """Every sample by name, labels summed up; empty while the process does not answer."""
        return await asyncio.to_thread(self._scrape)

    async def wait_for(self, name: str, at_least: float) -> None:
        """Until a metric has reached a value; a process that has ended is an error."""
        while (await self.metrics()).get(name, 0.0) < at_least:
            self.refuse_the_dead()
            await asyncio.sleep(0.2)

    def refuse_the_dead(self) -> None:
        """Raise if the process has ended by itself."""
        if self._child.poll() is not None:
            raise click.ClickException(f"the {self.command} ended, its log is {self._log}")

    def stop(self) -> None:
        """SIGTERM, and wait; the log is kept only if it did not end well."""
        if self.ended:
            return
        self.ended = True
        self._child.terminate()
        if self._child.wait(timeout=_STOP_SECONDS) == 0:
            self._log.unlink()
        else:
            progress(f"the {self.command} did not end well, its log is {self._log}")

    def kill(self) -> None:
        """SIGKILL, and gone when this returns."""
        self.ended = True
        self._child.kill()
        self._child.wait()
        self._log.unlink()

    def _scrape(self) -> dict[str, float]:
        try:
            with urllib.request.urlopen(f"{self.url}/metrics", timeout=5) as answer:
                text = answer.read().decode()
        except OSError:
            return {}
        found: dict[str, float] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                found[sample.name] = found.get(sample.name, 0.0) + sample.value
        return found


class SchedulerProcess(Child):
    """`mainspring scheduler`."""

    command = "scheduler"


class WorkerProcess(Child):
    """`mainspring worker`."""

    command = "worker"


class ApiProcess(Child):
    """`mainspring api`; keys are on, because their cost is part of it."""

    command = "api"
    listens = "--address"

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster, variables={"MAINSPRING_API_AUTH": "keys"})

    async def until_ready(self) -> None:
        """Until it answers that it can serve."""
        while not await asyncio.to_thread(self._is_ready):
            self.refuse_the_dead()
            await asyncio.sleep(0.1)

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=5) as answer:
                return bool(answer.status == HTTPStatus.OK)
        except OSError:  # among them the answer that it is not
            return False


@asynccontextmanager
async def running_api(cluster: Cluster) -> AsyncIterator[ApiProcess]:
    """An API that serves until the block ends."""
    api = ApiProcess(cluster)
    try:
        await api.until_ready()
        yield api
    finally:
        await asyncio.to_thread(api.stop)


def resident_megabytes(pid: int) -> float:
    """The memory of a process as the kernel counts it."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) / 1024
