"""What it costs to stay informed: the change feed and the horizon's refresh, beside many registered jobs.

The jobs are spread over cadences that fire once a day each, at random minutes, so that few are due while
we look: what is measured is the price of *looking*. A scheduler process leads all shards and reports the
time of every poll and every refresh; nothing else runs. With `--open-transaction` somebody else's
transaction stays open meanwhile, as a backup or a forgotten session does.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass

import click

from bench.harness.cluster import SHARDS, Cluster, SchedulerProcess, progress, running_cluster
from bench.harness.environment import Environment
from bench.harness.jobs import HANDLER, register
from mainspring.postgres import connect
from mainspring.registry import JobRequest

POLL = "mainspring_scheduler_feed_poll_seconds"
LOAD = "mainspring_scheduler_horizon_load_seconds"


@dataclass(frozen=True, slots=True)
class Result:
    """Milliseconds of work, by shard and second where it says so."""

    jobs: int
    cadences: int
    seconds: int
    poll_ms: float
    horizon_ms: float
    ms_per_shard_and_second: float


def daily_jobs(jobs: int, cadences: int, seed: int) -> list[JobRequest]:
    """Jobs that share so many daily schedules."""
    generator = random.Random(seed)
    minutes = generator.sample(range(24 * 60), min(cadences, 24 * 60))
    requests = [
        JobRequest.from_mapping(
            {"handler": HANDLER, "schedule": f"{minute % 60} {minute // 60} * * *", "payload": "x" * 198}
        )
        for minute in minutes
    ]
    return [requests[number % len(requests)] for number in range(jobs)]


async def run(jobs: int, cadences: int, seconds: int, seed: int, *, open_transaction: bool) -> Result:
    async with running_cluster() as cluster:
        await register(cluster, daily_jobs(jobs, cadences, seed))
        async with held_open(cluster, open_transaction):
            scheduler = SchedulerProcess(cluster)
            try:
                await scheduler.wait_for("mainspring_scheduler_shards_led", SHARDS)
                await scheduler.wait_for(f"{LOAD}_count", 1)
                before = await scheduler.metrics()
                progress(f"looking for {seconds} s")
                await asyncio.sleep(seconds)
                after = await scheduler.metrics()
            finally:
                scheduler.stop()
    return summarize(jobs, cadences, seconds, before, after)


def summarize(
    jobs: int, cadences: int, seconds: int, before: dict[str, float], after: dict[str, float]
) -> Result:
    def spent(name: str) -> tuple[float, float]:
        return after[f"{name}_sum"] - before[f"{name}_sum"], after[f"{name}_count"] - before[f"{name}_count"]

    (polling, polls), (loading, loads) = spent(POLL), spent(LOAD)
    return Result(
        jobs=jobs,
        cadences=cadences,
        seconds=seconds,
        poll_ms=round(polling / max(polls, 1) * 1000, 3),
        horizon_ms=round(loading / max(loads, 1) * 1000, 3),
        ms_per_shard_and_second=round((polling + loading) / seconds / SHARDS * 1000, 4),
    )


@asynccontextmanager
async def held_open(cluster: Cluster, wanted: bool) -> AsyncIterator[None]:  # noqa: FBT001
    """Somebody else's transaction with an id of its own, open all the time."""
    if not wanted:
        yield
        return
    connection = await connect(cluster.settings.postgres, application="bench open transaction")
    try:
        async with connection.transaction():
            await connection.execute("SELECT pg_current_xact_id()")
            yield
    finally:
        await connection.close()


@click.command("feed", short_help="change feed and horizon refresh beside many registered jobs")
@click.option("--jobs", type=click.IntRange(min=1), default=1_000_000, show_default=True, help="registered")
@click.option("--cadences", type=click.IntRange(1, 1440), default=1000, show_default=True, help="schedules")
@click.option("--seconds", type=click.IntRange(min=61), default=130, show_default=True, help="to look")
@click.option("--seed", type=int, default=1, show_default=True, help="of the schedules")
@click.option("--open-transaction", is_flag=True, help="beside a transaction that stays open")
@click.option("--json", "as_json", is_flag=True, help="one JSON object instead of the lines")
def command(
    jobs: int, cadences: int, seconds: int, seed: int, *, open_transaction: bool, as_json: bool
) -> None:
    """The cost of staying informed, per shard and second, beside JOBS registered jobs."""
    result = asyncio.run(run(jobs, cadences, seconds, seed, open_transaction=open_transaction))
    environment = Environment.capture()
    if as_json:
        click.echo(json.dumps(asdict(result) | {"environment": asdict(environment)}))
        return
    click.echo("\n".join(environment.lines()))
    click.echo(f"\n{jobs:,} jobs in {cadences:,} cadences, {SHARDS} shards, one scheduler, {seconds} s")
    click.echo(f"one poll of the feed for all shards   {result.poll_ms:.2f} ms, twice a second")
    click.echo(f"one refresh of the horizon            {result.horizon_ms:.1f} ms, once a minute")
    click.echo(f"together, per shard and second        {result.ms_per_shard_and_second:.3f} ms")
