"""Midnight, whole: so many jobs of one cadence due in the same second, published, executed, outcomes durable.

One scheduler, one worker with a handler that only notes whose run it was, all on this machine. When the
last outcome is durable is seen by an observer who asks Postgres twenty times a second; how late each run
started is read from the claims. Executions are counted by the handler itself, outcomes in the books, both
against the list of job ids made beforehand.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import asyncpg
import click

from bench.fire import make_topic, percentile, read_back, refuse_if_late
from bench.harness.cluster import (
    Cluster,
    SchedulerProcess,
    WorkerProcess,
    progress,
    resident_megabytes,
    running_cluster,
)
from bench.harness.environment import Environment
from bench.harness.jobs import once_at, register, same_jobs
from bench.harness.noop import FILE_VARIABLE
from mainspring.schema.states import Lane, topic_of

_LOOK_SECONDS = 0.05

_DURABLE = "SELECT coalesce(sum(octet_length(outcomes)), 0) FROM claims WHERE finished_at IS NOT NULL"
_LATENESS = """
SELECT extract(epoch FROM claimed_at - $1::timestamptz)::float8 * 1000 + milliseconds AS lateness
FROM claims, unnest(started_ms) AS milliseconds
WHERE milliseconds IS NOT NULL
"""
_SUCCEEDED = "SELECT job_id FROM run_history WHERE scheduled_at = $1 AND status = 'succeeded'"


@dataclass(frozen=True, slots=True)
class Result:
    """What one run measured."""

    jobs: int
    published_s: float
    durable_s: float
    runs_per_s: int
    start_lateness_ms: dict[str, float]
    executed_twice: int
    lost: int
    worker_mb: float


@dataclass(frozen=True, slots=True)
class Seen:
    """What the databases and the handler say afterwards."""

    durable_at: float
    lateness: list[float]
    succeeded: set[int]
    executed: Sequence[int]
    appended_ms: int


async def run(jobs: int, payload_bytes: int, lead_seconds: int, concurrency: int) -> Result:
    with tempfile.TemporaryDirectory(prefix="mainspring-bench-") as directory:
        executions = Path(directory) / "executions"
        async with running_cluster() as cluster:
            topic = topic_of("default", Lane.NORMAL)
            await asyncio.to_thread(make_topic, cluster, topic)
            due = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=lead_seconds)
            ids = await register(cluster, same_jobs(jobs, once_at(due), payload_bytes))
            scheduler = SchedulerProcess(cluster)
            worker = WorkerProcess(
                cluster,
                "--app",
                "bench.harness.noop:app",
                "--concurrency",
                str(concurrency),
                variables={FILE_VARIABLE: str(executions)},
            )
            try:
                await scheduler.wait_for("mainspring_scheduler_shard_jobs_armed", jobs)
                refuse_if_late(due)
                progress(f"armed; due in {(due - datetime.now(UTC)).total_seconds():.0f} s")
                durable_at = await until_durable(cluster, jobs)
                memory = resident_megabytes(worker.pid)
            finally:
                worker.stop()
                scheduler.stop()
            seen = await look(cluster, due, durable_at, topic, executions)
    return summarize(ids, due, seen, memory)


async def until_durable(cluster: Cluster, jobs: int) -> float:
    """When Postgres first shows an outcome for each."""
    connection = await asyncpg.connect(cluster.settings.postgres.dsn)
    try:
        while await connection.fetchval(_DURABLE) < jobs:  # noqa: ASYNC110  (the server sets no event)
            await asyncio.sleep(_LOOK_SECONDS)
        return time.time()
    finally:
        await connection.close()


async def look(cluster: Cluster, due: datetime, durable_at: float, topic: str, executions: Path) -> Seen:
    connection = await asyncpg.connect(cluster.settings.postgres.dsn)
    try:
        lateness = sorted(row["lateness"] for row in await connection.fetch(_LATENESS, due))
        succeeded = {row["job_id"] for row in await connection.fetch(_SUCCEEDED, due)}
    finally:
        await connection.close()
    records = await asyncio.to_thread(read_back, cluster, topic)
    executed = array("q", await asyncio.to_thread(executions.read_bytes))
    return Seen(durable_at, lateness, succeeded, executed, max(record.appended_ms for record in records))


def summarize(ids: Sequence[int], due: datetime, seen: Seen, memory: float) -> Result:
    executed = Counter(seen.executed)
    durable = seen.durable_at - due.timestamp()
    return Result(
        jobs=len(ids),
        published_s=round(seen.appended_ms / 1000 - due.timestamp(), 3),
        durable_s=round(durable, 3),
        runs_per_s=round(len(ids) / durable),
        start_lateness_ms={
            "p50": round(percentile(seen.lateness, 0.5)),
            "p99": round(percentile(seen.lateness, 0.99)),
            "max": round(seen.lateness[-1]),
        },
        executed_twice=sum(count - 1 for count in executed.values() if count > 1),
        lost=sum(1 for job_id in ids if job_id not in seen.succeeded or job_id not in executed),
        worker_mb=round(memory, 1),
    )


def report(result: Result, environment: Environment) -> list[str]:
    lateness = ", ".join(f"{name} {value:,.0f} ms" for name, value in result.start_lateness_ms.items())
    return [
        *environment.lines(),
        "",
        f"jobs          {result.jobs:,} of one cadence, due in one second",
        f"published     {result.published_s:.2f} s after due, all of them",
        f"durable       {result.durable_s:.2f} s after due, all outcomes; {result.runs_per_s:,} runs/s",
        f"lateness      {lateness} (due → handler started)",
        f"lost          {result.lost}, executed twice {result.executed_twice}",
        f"memory        {result.worker_mb:.0f} MB of the worker",
    ]


@click.command("execute", short_help="one second's bucket, executed, until every outcome is durable")
@click.option(
    "--jobs", type=click.IntRange(1, 5_000_000), default=500_000, show_default=True, help="due at once"
)
@click.option("--payload", type=click.IntRange(2, 100_000), default=200, show_default=True, help="bytes each")
@click.option("--lead", type=click.IntRange(10, 3000), help="seconds to register in; default: by the number")
@click.option("--concurrency", type=click.IntRange(1, 10_000), default=100, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="one JSON object instead of the table")
def command(jobs: int, payload: int, lead: int | None, concurrency: int, *, as_json: bool) -> None:
    """How long after due JOBS runs are published, executed by one worker and durable.

    Starts a stack of its own. The defaults take about two minutes.
    """
    result = asyncio.run(run(jobs, payload, lead or 30 + jobs // 8000, concurrency))
    environment = Environment.capture()
    if as_json:
        click.echo(json.dumps(asdict(result) | {"environment": asdict(environment)}))
    else:
        click.echo("\n".join(report(result, environment)))
    if result.lost or result.executed_twice:
        raise click.ClickException("what came out is not what went in")
