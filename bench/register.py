"""Registration over HTTP: so many jobs, as NDJSON in one request, to one `mainspring api` process.

The client is plain `http.client`: it sends everything, then reads the answers, as most clients do. All parts
share this machine: client, API, Postgres with fsync. Keys are on, names are unique, every line is checked;
what was answered is held against what the table has.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import asyncpg
import click

from bench.harness.cluster import Cluster, progress, resident_megabytes, running_cluster
from bench.harness.environment import Environment
from mainspring.local.ports import HOST, free_port
from mainspring.postgres import make_pool
from mainspring.registry.keys import Keys

PIECE = 1000
_SCHEDULES = ("0 0 * * *", "*/5 * * * *", "0 9 * * 1", "30 2 1 * *", "every 90s")
_SAMPLE_SECONDS = 0.2
_READY_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Result:
    """What one run measured."""

    jobs: int
    seconds: float
    jobs_per_s: int
    rss_mb: dict[str, float]
    mb_sent: float


class ApiProcess:
    """`mainspring api`, and its memory over time."""

    def __init__(self, cluster: Cluster) -> None:
        self.port = free_port()
        self._log = Path(tempfile.mkstemp(prefix="mainspring-bench-", suffix=".log")[1])
        program = Path(sys.executable).with_name("mainspring")
        with self._log.open("wb") as output:
            self._child = subprocess.Popen(
                [program, "api", "--address", f"{HOST}:{self.port}"],
                env=cluster.environment | {"MAINSPRING_LOG_FORMAT": "json"},
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self.samples: list[float] = []
        self._stopping = threading.Event()
        self._sampler = threading.Thread(target=self._sample, daemon=True)

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + _READY_SECONDS
        while time.monotonic() < deadline and self._child.poll() is None:
            try:
                connection = http.client.HTTPConnection(HOST, self.port, timeout=5)
                connection.request("GET", "/readyz")
                if connection.getresponse().status == http.HTTPStatus.OK:
                    self._sampler.start()
                    return
            except OSError:
                time.sleep(0.05)
        raise click.ClickException(f"the api is not ready, its log is {self._log}")

    def stop(self) -> None:
        self._stopping.set()
        self._child.terminate()
        if self._child.wait(timeout=60) == 0:
            self._log.unlink()
        else:
            progress(f"the api did not end well, its log is {self._log}")

    def _sample(self) -> None:
        while not self._stopping.wait(_SAMPLE_SECONDS) and self._child.poll() is None:
            self.samples.append(resident_megabytes(self._child.pid))


def bodies(jobs: int, payload_bytes: int) -> Iterator[bytes]:
    """The lines, a thousand at a time."""
    filler = "x" * payload_bytes
    for start in range(0, jobs, PIECE):
        yield "".join(
            f'{{"name":"customer-{number:08d}-report","handler":"report",'
            f'"schedule":"{_SCHEDULES[number % len(_SCHEDULES)]}","timezone":"Europe/Berlin",'
            f'"payload":{{"customer":{number},"text":"{filler}"}},"max_retries":5,"priority":"low"}}\n'
            for number in range(start, min(start + PIECE, jobs))
        ).encode()


def register(port: int, secret: str, jobs: int, payload_bytes: int) -> tuple[float, int, int]:
    """Seconds from the first byte sent to the last byte read, jobs created, bytes sent."""
    sent = 0

    def counted() -> Iterator[bytes]:
        nonlocal sent
        for piece in bodies(jobs, payload_bytes):
            sent += len(piece)
            yield piece

    connection = http.client.HTTPConnection(HOST, port, timeout=600)
    begun = time.perf_counter()
    connection.request(
        "POST",
        "/api/v1/jobs:batch",
        body=counted(),
        headers={"Authorization": f"Bearer {secret}", "Content-Type": "application/x-ndjson"},
        encode_chunked=True,
    )
    answer = connection.getresponse()
    tail = b""
    while piece := answer.read(1 << 20):
        tail = (tail + piece)[-1000:]
    seconds = time.perf_counter() - begun
    summary = json.loads(tail.rstrip(b"\n").rpartition(b"\n")[2])["summary"]
    if summary["created"] != jobs or summary["refused"]:
        raise click.ClickException(f"of {jobs} jobs: {summary}")
    return seconds, summary["created"], sent


async def run(jobs: int, payload_bytes: int) -> Result:
    async with running_cluster() as cluster:
        secret = await make_key(cluster)
        api = ApiProcess(cluster)
        try:
            await asyncio.to_thread(api.wait_until_ready)
            await asyncio.to_thread(register, api.port, secret, 1, payload_bytes)
            await forget(cluster)
            before = len(api.samples)
            progress(f"registering {jobs:,} jobs")
            seconds, created, sent = await asyncio.to_thread(register, api.port, secret, jobs, payload_bytes)
            samples = api.samples[before:] or api.samples
        finally:
            await asyncio.to_thread(api.stop)
        await compare(cluster, created)
    early = samples[: max(1, len(samples) // 4)]
    return Result(
        jobs=created,
        seconds=round(seconds, 3),
        jobs_per_s=round(created / seconds),
        rss_mb={
            "first_quarter": round(max(early), 1),
            "whole": round(max(samples), 1),
            "end": round(samples[-1], 1),
        },
        mb_sent=round(sent / 1e6, 1),
    )


async def make_key(cluster: Cluster) -> str:
    pool = make_pool(cluster.settings.postgres, application="bench", size=1, command_seconds=30)
    async with pool:
        _, secret = await Keys(pool).create(1, "bench", "operator")
    return secret


async def forget(cluster: Cluster) -> None:
    """The job that warmed everything up."""
    connection = await asyncpg.connect(cluster.settings.postgres.dsn)
    await connection.execute("DELETE FROM jobs")
    await connection.close()


async def compare(cluster: Cluster, created: int) -> None:
    connection = await asyncpg.connect(cluster.settings.postgres.dsn)
    found = await connection.fetchval("SELECT count(*) FROM jobs")
    await connection.close()
    if found != created:
        raise click.ClickException(f"{created} jobs were answered, and {found} are there")


def report(result: Result, environment: Environment) -> list[str]:
    memory = ", ".join(f"{name.replace('_', ' ')} {value:.0f} MB" for name, value in result.rss_mb.items())
    return [
        *environment.lines(),
        "",
        f"jobs          {result.jobs:,} in one request of {result.mb_sent:.0f} MB, over HTTP",
        f"registered    in {result.seconds:.1f} s: {result.jobs_per_s:,} jobs/s, answered one by one",
        f"memory        of the api, at most: {memory}",
    ]


@click.command("register", short_help="a million jobs over HTTP, each checked, written and answered")
@click.option("--jobs", type=click.IntRange(1, 20_000_000), default=1_000_000, show_default=True)
@click.option("--payload", type=click.IntRange(0, 100_000), default=100, show_default=True, help="bytes each")
@click.option("--json", "as_json", is_flag=True, help="one JSON object instead of the table")
def command(jobs: int, payload: int, *, as_json: bool) -> None:
    """How fast JOBS are registered through `mainspring api`, and what memory that takes it.

    Starts a stack of its own. The defaults take about a minute.
    """
    os.environ.pop("MAINSPRING_API_AUTH", None)  # keys stay on: their cost is part of it
    result = asyncio.run(run(jobs, payload))
    environment = Environment.capture()
    if as_json:
        click.echo(json.dumps(asdict(result) | {"environment": asdict(environment)}))
    else:
        click.echo("\n".join(report(result, environment)))
