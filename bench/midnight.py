"""Midnight, whole: so many jobs due in the same second, from their registration to the last durable outcome.

The real path, end to end: the jobs come as NDJSON over HTTP to a `mainspring api` process, `mainspring
scheduler` processes arm and publish them, `mainspring worker` processes execute them with a handler that only
notes whose run it was. All of it shares this machine with Postgres, Kafka and etcd.

`--cadences many` spreads the jobs over a thousand expressions that differ and yet fire at the same second,
so that every shard has as many cadences; with `--kind at` each is a job for that one instant, and so a timer
of its own.
"""

from __future__ import annotations

import asyncio
import json
import random
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import click

from bench.harness import report
from bench.harness.charts import Chart, Series
from bench.harness.cluster import progress, running_api, running_cluster
from bench.harness.environment import Environment
from bench.harness.interrupt import Interrupt, run_whole
from bench.harness.jobs import once_at
from bench.harness.processes import Watch, watching
from bench.harness.registration import line, make_tenants, register_for_all
from bench.harness.second import Fleet, Seen, conclude, fire_and_execute, lines, look, measures
from bench.harness.servers import describe_servers
from bench.harness.topics import make_topics

MANY = 1000
_SAMPLE_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class Options:
    """What was asked for: the settings of the result."""

    jobs: int
    tenants: int
    cadences: str
    kind: str
    workers: int
    schedulers: int
    concurrency: int
    payload: int
    lead: int
    seed: int


def expressions(due: datetime, seed: int) -> Iterator[str]:
    """Ever more cron expressions that fire at this instant, and at other hours of its day perhaps."""
    generator = random.Random(seed)
    others = [hour for hour in range(24) if hour != due.hour]
    seen = set[str]()
    while True:
        chosen = {due.hour, *generator.sample(others, generator.randrange(1, 12))}
        hours = ",".join(str(hour) for hour in sorted(chosen))
        text = f"{due.second} {due.minute} {hours} {due.day} {due.month} *"
        if text not in seen:
            seen.add(text)
            yield text


def job_lines(options: Options, due: datetime) -> Iterator[bytes]:
    """The jobs, all of them due at that instant."""
    if options.kind == "at":
        schedules = [due.isoformat()]
    elif options.cadences == "many":
        schedules = list(islice(expressions(due, options.seed), min(MANY, options.jobs)))
    else:
        schedules = [once_at(due)]
    made = [line(schedule, options.payload) for schedule in schedules]
    return (made[number % len(made)] for number in range(options.jobs))


async def run(options: Options, directory: Path | None) -> dict[str, Any]:
    interrupt = Interrupt()
    with tempfile.TemporaryDirectory(prefix="mainspring-bench-") as scratch:
        noted = Path(scratch)
        async with running_cluster() as cluster, watching(_SAMPLE_SECONDS) as watch:
            await asyncio.to_thread(make_topics, cluster)
            due = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=options.lead)
            async with running_api(cluster) as api:
                watch.add("api", api.pid)
                secrets = await make_tenants(cluster, options.tenants)
                ids = await register_for_all(api, secrets, job_lines(options, due), options.jobs)
            fleet = Fleet(cluster, noted, watch)
            try:
                for _ in range(options.schedulers):
                    fleet.start_scheduler()
                for _ in range(options.workers):
                    fleet.start_worker(options.concurrency)
                durable_at = await fire_and_execute(cluster, fleet, options.jobs, due, interrupt)
            finally:
                await fleet.stop()
            progress("counting")
            seen = await look(cluster, due, durable_at, noted, watch)
            environment = Environment.capture(await describe_servers(cluster))
    found = {"scenario": "midnight", "complete": not interrupt.came, "settings": asdict(options)}
    found |= measures(ids, seen, complete=not interrupt.came) | {"environment": asdict(environment)}
    if directory is not None:
        progress(f"the report is {report.write(directory, found, charts(seen, watch))}")
    return found


def charts(seen: Seen, watch: Watch) -> list[Chart]:
    """What one hot second looks like; time is counted from due."""
    appended = sorted(at - seen.due for at in seen.published.appended)
    started = sorted(at - seen.due for at in seen.runs.started)
    durable = sorted(at - seen.due for at in seen.runs.durable)
    named = {"published": appended, "started": started, "durable": durable}
    until = max(durable, default=1.0)
    return [
        Chart(
            "How many are done",
            "seconds after due",
            "runs",
            [Series(name, _growth(moments)) for name, moments in named.items()],
        ),
        report.throughput_chart(named, 0.0),
        report.percentile_chart({name: [at * 1000 for at in moments] for name, moments in named.items()}),
        report.processor_chart(watch.samples, seen.due, seen.due + until),
        report.memory_chart(watch.samples, seen.due, seen.due + until),
    ]


def _growth(ordered: list[float]) -> list[tuple[float, float]]:
    step = max(1, len(ordered) // 1000)
    places = [*range(0, len(ordered), step), len(ordered) - 1] if ordered else []
    return [(ordered[place], float(place + 1)) for place in places]


def table(found: dict[str, Any]) -> list[str]:
    options = found["settings"]
    what = f"{found['jobs']:,} jobs of {options['tenants']} tenants, kind {options['kind']}"
    if options["kind"] == "cron":
        what += f", {options['cadences']} cadence{'s' if options['cadences'] == 'many' else ''}"
    return [
        *Environment(**found["environment"]).lines(),
        "",
        *(() if found["complete"] else ("stopped before the end; this is what there is", "")),
        f"jobs          {what}, due in one second; seed {options['seed']}",
        *lines(found),
    ]


@click.command(
    "midnight", short_help="registered over HTTP, due in one second, executed, every outcome durable"
)
@click.option(
    "--jobs", type=click.IntRange(1, 5_000_000), default=500_000, show_default=True, help="due at once"
)
@click.option(
    "--tenants", type=click.IntRange(1, 1000), default=1, show_default=True, help="sharing the jobs"
)
@click.option("--cadences", type=click.Choice(["1", "many"]), default="1", show_default=True)
@click.option("--kind", type=click.Choice(["cron", "at"]), default="cron", show_default=True)
@click.option("--workers", type=click.IntRange(1, 64), default=1, show_default=True, help="processes")
@click.option("--schedulers", type=click.IntRange(1, 64), default=1, show_default=True, help="processes")
@click.option("--concurrency", type=click.IntRange(1, 10_000), default=100, show_default=True)
@click.option("--payload", type=click.IntRange(2, 100_000), default=200, show_default=True, help="bytes each")
@click.option("--lead", type=click.IntRange(10, 3000), help="seconds to register in; default: by the number")
@click.option("--seed", type=int, default=1, show_default=True, help="of the cadences")
@click.option(
    "--report", "directory", type=click.Path(path_type=Path, file_okay=False), help="pictures there"
)
@click.option("--json", "as_json", is_flag=True, help="one JSON object instead of the table")
def command(*, as_json: bool, directory: Path | None, lead: int | None, **given: Any) -> None:
    """How long after due JOBS runs are published, started and durable, and what that takes.

    Starts a stack of its own. The defaults take about four minutes.
    """
    options = Options(lead=lead or 40 + given["jobs"] // 4000, **given)
    found = run_whole(run(options, directory))
    click.echo(json.dumps(found) if as_json else "\n".join(table(found)))
    conclude(found)
