"""Midnight without its registration: so many jobs of one cadence due in the same second, executed.

One scheduler, one worker with a handler that only notes whose run it was, all on this machine. The jobs are
registered through the registry, which is faster than `midnight`'s way through the API; from there on the two
are the same, see `bench/harness/second.py`.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click

from bench.harness.cluster import running_cluster
from bench.harness.environment import Environment
from bench.harness.interrupt import Interrupt, run_whole
from bench.harness.jobs import once_at, register, same_jobs
from bench.harness.processes import watching
from bench.harness.second import Fleet, conclude, fire_and_execute, lines, look, measures
from bench.harness.servers import describe_servers
from bench.harness.topics import make_topics


async def run(jobs: int, payload_bytes: int, lead_seconds: int, concurrency: int) -> dict[str, Any]:
    interrupt = Interrupt()
    with tempfile.TemporaryDirectory(prefix="mainspring-bench-") as directory:
        async with running_cluster() as cluster, watching() as watch:
            await asyncio.to_thread(make_topics, cluster)
            due = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=lead_seconds)
            ids = await register(cluster, same_jobs(jobs, once_at(due), payload_bytes))
            fleet = Fleet(cluster, Path(directory), watch)
            try:
                fleet.start_scheduler()
                fleet.start_worker(concurrency)
                durable_at = await fire_and_execute(cluster, fleet, jobs, due, interrupt)
            finally:
                await fleet.stop()
            seen = await look(cluster, due, durable_at, Path(directory), watch)
            environment = Environment.capture(await describe_servers(cluster))
    complete = not interrupt.came
    found = {"complete": complete} | measures(ids, seen, complete=complete)
    return found | {"environment": asdict(environment)}


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
    found = run_whole(run(jobs, payload, lead or 30 + jobs // 8000, concurrency))
    if as_json:
        click.echo(json.dumps(found))
    else:
        environment = Environment(**found["environment"])
        head = f"jobs          {jobs:,} of one cadence, due in one second"
        click.echo("\n".join([*environment.lines(), "", head, *lines(found)]))
    conclude(found)
