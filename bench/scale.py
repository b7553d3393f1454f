"""Many registered jobs: what it costs to have them, at each of several sizes of the same cluster.

The jobs are daily, of a thousand schedules at random minutes, registered over HTTP; beside them 640 jobs of
every second, some in each shard, so that runs are written. At each step, in this order:

    registration   how fast the jobs since the step before were taken
    takeover       the only scheduler is killed, another started: until it leads all shards, and until all
                   marks have passed the moment of the kill; the lease has to end within it
    informed       change-feed polls and horizon refreshes while nothing else happens, per shard and second
    API            get, list and create, one after the other over one connection
    disk           of the jobs with their indexes, and of each run with its claim

Bounded: registering takes what it takes, about half a minute for a million; each step then takes --seconds
and about half a minute more.
"""

from __future__ import annotations

import asyncio
import json
import random
import tempfile
import time
from array import array
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import asyncpg
import click
import httpx

from bench import feed
from bench.harness.beats import each_second, job_lines
from bench.harness.cluster import SHARDS, ApiProcess, Cluster, progress, running_api, running_cluster
from bench.harness.environment import Environment
from bench.harness.interrupt import EXIT_CODE, Interrupt, run_whole
from bench.harness.percentiles import percentile
from bench.harness.processes import watching
from bench.harness.registration import line, make_tenants, register
from bench.harness.second import Fleet
from bench.harness.servers import describe_servers
from bench.harness.topics import make_topics
from mainspring.schema.ids import format_job_id

PROBES = 640
"""Jobs of every second: ten for each shard, so that hardly one has none."""
REQUESTS = 200

_LED = "SELECT count(*) FROM shards WHERE epoch > $1"
_GONE_ON = "SELECT count(*) FROM shards WHERE fired_through > to_timestamp($1)"
_EPOCH = "SELECT max(epoch) FROM shards"
_JOB_BYTES = """
SELECT pg_total_relation_size('jobs') + pg_total_relation_size('cadences') + pg_total_relation_size('timers')
"""
_RUN_BYTES = """
SELECT coalesce(sum(pg_total_relation_size(relid)), 0)::bigint + pg_total_relation_size('claims')
FROM pg_partition_tree('runs') WHERE isleaf
"""


@dataclass(frozen=True, slots=True)
class Options:
    """What was asked for: the settings of the result."""

    steps: tuple[int, ...]
    cadences: int
    seconds: int
    payload: int
    seed: int


@dataclass(slots=True)
class Scene:
    """The cluster that grows."""

    cluster: Cluster
    api: ApiProcess
    secret: str
    fleet: Fleet
    database: asyncpg.Connection[asyncpg.Record]
    ids: array[int]


def daily(count: int, options: Options) -> Iterator[bytes]:
    """Jobs of so many daily schedules, at random minutes."""
    generator = random.Random(options.seed)
    minutes = generator.sample(range(24 * 60), min(options.cadences, 24 * 60))
    made = [line(f"{minute % 60} {minute // 60} * * *", options.payload) for minute in minutes]
    return (made[number % len(made)] for number in range(count))


async def run(options: Options) -> dict[str, Any]:
    interrupt = Interrupt()
    steps: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="mainspring-bench-") as scratch:
        async with running_cluster() as cluster, watching() as watch, running_api(cluster) as api:
            await asyncio.to_thread(make_topics, cluster)
            [secret] = await make_tenants(cluster, 1)
            database = await asyncpg.connect(cluster.settings.postgres.dsn)
            scene = Scene(cluster, api, secret, Fleet(cluster, Path(scratch), watch), database, array("q"))
            try:
                await register(api, secret, job_lines(each_second(PROBES), options.payload), PROBES)
                await interrupt.unless(climb(scene, options, steps))
            finally:
                await scene.fleet.stop()
                await database.close()
            environment = Environment.capture(await describe_servers(cluster))
    found = {"scenario": "scale", "complete": not interrupt.came, "settings": asdict(options)}
    return found | {"steps": steps, "environment": asdict(environment)}


async def climb(scene: Scene, options: Options, steps: list[dict[str, Any]]) -> None:
    """Step after step; what a step has measured is kept, whatever happens to the next."""
    scene.fleet.start_worker(concurrency=100)
    scene.fleet.start_scheduler()
    for jobs in options.steps:
        found: dict[str, Any] = {"jobs": jobs}
        steps.append(found)
        for what, measure in MEASURES.items():
            progress(f"{jobs:,} jobs: {what}")
            found[what] = await measure(scene, options, jobs)


async def registration(scene: Scene, options: Options, jobs: int) -> dict[str, Any]:
    """Register as many as are missing."""
    missing = jobs - len(scene.ids)
    began = time.monotonic()
    scene.ids.extend(await register(scene.api, scene.secret, daily(missing, options), missing))
    seconds = time.monotonic() - began
    await scene.database.execute("ANALYZE jobs, cadences")  # as autovacuum would have by the next day
    return {"seconds": round(seconds, 1), "jobs_per_s": round(missing / seconds)}


async def takeover(scene: Scene, _: Options, __: int) -> dict[str, Any]:
    """Kill the only scheduler and start another."""
    [victim] = scene.fleet.alive
    await victim.wait_for("mainspring_scheduler_shards_led", SHARDS)
    epoch = await scene.database.fetchval(_EPOCH)
    killed_at = time.time()
    await asyncio.to_thread(victim.kill)
    heir = scene.fleet.start_scheduler()
    led = await _until(lambda: _all_shards(scene, _LED, epoch), heir.refuse_the_dead)
    fired = await _until(lambda: _all_shards(scene, _GONE_ON, killed_at), heir.refuse_the_dead)
    return {"led_s": round(led - killed_at, 3), "published_s": round(fired - killed_at, 3)}


async def _all_shards(scene: Scene, statement: str, argument: float) -> bool:
    return bool(await scene.database.fetchval(statement, argument) == SHARDS)


async def _until(fact: Callable[[], Awaitable[bool]], look_after: Callable[[], None]) -> float:
    """When it first holds."""
    while not await fact():
        look_after()
        await asyncio.sleep(0.05)
    return time.time()


async def informed(scene: Scene, options: Options, jobs: int) -> dict[str, Any]:
    """Polls of the feed and refreshes of the horizon, as the scheduler itself times them."""
    [scheduler] = scene.fleet.alive
    await scheduler.wait_for(f"{feed.LOAD}_count", 1)
    before = await scheduler.metrics()
    await asyncio.sleep(options.seconds)
    result = feed.summarize(jobs, options.cadences, options.seconds, before, await scheduler.metrics())
    return {
        "poll_ms": result.poll_ms,
        "horizon_ms": result.horizon_ms,
        "ms_per_shard_and_second": result.ms_per_shard_and_second,
    }


async def requests(scene: Scene, options: Options, jobs: int) -> dict[str, Any]:
    """Milliseconds of single requests."""
    generator = random.Random(options.seed + jobs)
    wanted = [format_job_id(generator.choice(scene.ids)) for _ in range(REQUESTS)]
    body = line("0 0 1 1 *", options.payload)
    headers = {"Authorization": f"Bearer {scene.secret}", "Content-Type": "application/json"}
    async with httpx.AsyncClient(base_url=f"{scene.api.url}/api/v1", headers=headers, timeout=60) as client:
        return {
            "get": await _timed([partial(client.get, f"/jobs/{job_id}") for job_id in wanted]),
            "list": await _timed([partial(client.get, "/jobs", params={"limit": 100})] * REQUESTS),
            "create": await _timed([partial(client.post, "/jobs", content=body)] * REQUESTS),
        }


async def _timed(calls: list[Callable[[], Awaitable[httpx.Response]]]) -> dict[str, float]:
    taken = []
    for call in calls:
        began = time.perf_counter()
        answer = await call()
        taken.append((time.perf_counter() - began) * 1000)
        if not answer.is_success:
            raise click.ClickException(f"the api answered {answer.status_code}: {answer.text[:500]}")
    taken.sort()
    return {"p50_ms": round(percentile(taken, 0.5), 2), "p99_ms": round(percentile(taken, 0.99), 2)}


async def disk(scene: Scene, _: Options, __: int) -> dict[str, Any]:
    """Bytes with indexes and TOAST, by what lies there."""
    value = scene.database.fetchval
    jobs, job_bytes = await value("SELECT count(*) FROM jobs"), await value(_JOB_BYTES)
    runs, run_bytes = await value("SELECT count(*) FROM runs"), await value(_RUN_BYTES)
    return {
        "bytes_per_job": round(job_bytes / jobs),
        "bytes_per_run": round(run_bytes / max(runs, 1)),
        "runs": runs,
        "database_mb": round(await value("SELECT pg_database_size(current_database())") / 1e6),
    }


MEASURES: Mapping[str, Callable[[Scene, Options, int], Awaitable[dict[str, Any]]]] = {
    "registration": registration,
    "takeover": takeover,
    "informed": informed,
    "requests": requests,
    "disk": disk,
}


def table(found: dict[str, Any]) -> list[str]:
    lines = [*Environment(**found["environment"]).lines(), ""]
    if not found["complete"]:
        lines += ["stopped before the end; this is what there is", ""]
    for step in found["steps"]:
        lines.append(f"{step['jobs']:,} jobs")
        lines += [f"  {what:<13} {_words(step[what])}" for what in MEASURES if what in step]
    return lines


def _words(values: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name.replace('_', ' ')} {_words(value) if isinstance(value, dict) else f'{value:,}'}"
        for name, value in values.items()
    )


class Steps(click.ParamType[tuple[int, ...]]):
    """Growing numbers with commas between them."""

    name = "NUMBERS"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        try:
            steps = tuple(int(word) for word in str(value).split(","))
        except ValueError:
            self.fail(f"{value!r} is not numbers with commas between them", param, ctx)
        if list(steps) != sorted(set(steps)) or steps[0] < 1:
            self.fail(f"{value!r} does not grow from step to step", param, ctx)
        return steps


@click.command("scale", short_help="millions of registered jobs: feed, horizon, takeover, API, disk")
@click.option("--jobs", type=click.IntRange(1, 100_000_000), default=1_000_000, show_default=True)
@click.option("--steps", type=Steps(), help="measure at each of these sizes, in place of --jobs")
@click.option("--cadences", type=click.IntRange(1, 1440), default=1000, show_default=True, help="schedules")
@click.option(
    "--seconds", type=click.IntRange(61, 3600), default=65, show_default=True, help="to look, a step"
)
@click.option("--payload", type=click.IntRange(2, 100_000), default=200, show_default=True, help="bytes each")
@click.option("--seed", type=int, default=1, show_default=True, help="of schedules and requests")
@click.option("--json", "as_json", is_flag=True, help="one JSON object instead of the lines")
def command(*, as_json: bool, jobs: int, steps: tuple[int, ...] | None, **given: Any) -> None:
    """What it costs to have JOBS registered, or as many as each of the --steps says.

    Starts a stack of its own. A million takes about three minutes, ten about twenty and 12 GB of disk.
    """
    found = run_whole(run(Options(steps=steps or (jobs,), **given)))
    click.echo(json.dumps(found) if as_json else "\n".join(table(found)))
    if not found["complete"]:
        click.get_current_context().exit(EXIT_CODE)
