"""A steady load: so many jobs due in each second, for minutes, the whole way to their durable outcomes.

A tenth of each second's runs are of jobs of every second, three tenths of every ten seconds, the rest of
every minute, all phases alike: 71 schedules in each of 64 shards. Registered over HTTP beside running
schedulers and workers; the window that is measured begins when all of them are armed.

Beside lateness, minute by minute: whether any process grows.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from bench.harness import report
from bench.harness.beats import spread
from bench.harness.charts import Chart, Series
from bench.harness.cluster import progress
from bench.harness.environment import Environment
from bench.harness.interrupt import Interrupt, run_whole
from bench.harness.percentiles import in_words, summary
from bench.harness.processes import Sample
from bench.harness.second import Seen, conclude
from bench.harness.servers import describe_servers
from bench.harness.streams import Stream, by_kind, lateness, pass_time, streaming

MINUTE = 60
Moments = Mapping[str, Sequence[tuple[float, float]]]


@dataclass(frozen=True, slots=True)
class Options:
    """What was asked for: the settings of the result."""

    rate: int
    minutes: float
    workers: int
    schedulers: int
    concurrency: int
    payload: int
    seed: int


async def run(options: Options, directory: Path | None) -> dict[str, Any]:
    interrupt = Interrupt()
    with tempfile.TemporaryDirectory(prefix="mainspring-bench-") as scratch:
        groups = spread(options.rate)
        async with streaming(
            groups,
            Path(scratch),
            interrupt,
            schedulers=options.schedulers,
            workers=options.workers,
            concurrency=options.concurrency,
            payload_bytes=options.payload,
        ) as stream:
            await pass_time(stream, options.minutes * MINUTE, interrupt, lambda at: _tell(stream, at))
            seen = await stream.finish()
            environment = Environment.capture(await describe_servers(stream.cluster))
    found = {"scenario": "steady", "complete": not interrupt.came, "settings": asdict(options)}
    found |= measures(stream, seen) | {"environment": asdict(environment)}
    if directory is not None:
        progress(f"the report is {report.write(directory, found, charts(stream, seen))}")
    return found


async def _tell(stream: Stream, at: float) -> str:
    shown = []
    for worker in stream.fleet.workers:
        metrics = await worker.metrics()
        shown.append(f"{metrics.get('mainspring_worker_runs_ended_total', 0):,.0f} runs")
    return f"{at:4.0f} s: {', '.join(shown)}"


def measures(stream: Stream, seen: Seen) -> dict[str, Any]:
    """The figures of the window."""
    counts = stream.counts(seen)
    return {
        "seconds": stream.seconds,
        "registered": len(stream.ids),
        "runs_per_s": round(counts["expected"] / max(stream.seconds, 1)),
        **counts,
        **lateness(stream, seen),
        "minutes": minutes(by_kind(stream, seen), stream.begin),
        "memory": drift(stream.watch.samples, stream.begin, stream.end),
        "processes": [asdict(each) for each in seen.usage],
    }


def minutes(moments: Moments, begin: int) -> list[dict[str, Any]]:
    """The percentiles of each minute of the window, by when a run was due."""
    found: dict[int, dict[str, list[float]]] = {}
    for name, points in moments.items():
        for due, late in points:
            minute = found.setdefault(int(due - begin) // MINUTE, {})
            minute.setdefault(f"{name}_lateness_ms", []).append(late)
    return [
        {"minute": number} | {name: summary(sorted(values)) for name, values in kinds.items()}
        for number, kinds in sorted(found.items())
    ]


def drift(samples: Mapping[str, Sequence[Sample]], begin: float, end: float) -> list[dict[str, Any]]:
    """The mean of each part's memory in the window's first and last minute, or halves of a shorter one."""
    length = min(float(MINUTE), (end - begin) / 2)
    found = []
    for name, taken in samples.items():
        first = [each.resident_mb for each in taken if begin <= each.at < begin + length]
        last = [each.resident_mb for each in taken if end - length <= each.at < end]
        if first and last:
            before, after = sum(first) / len(first), sum(last) / len(last)
            found.append(
                {
                    "name": name,
                    "first_mb": round(before, 1),
                    "last_mb": round(after, 1),
                    "drift_mb": round(after - before, 1),
                }
            )
    return found


def charts(stream: Stream, seen: Seen) -> list[Chart]:
    """What the window looks like; time is counted from its first second."""
    begin = float(stream.begin)
    moments = {
        name: [(due - begin, late) for due, late in points] for name, points in by_kind(stream, seen).items()
    }
    sizes: dict[float, int] = {}
    for due, _ in moments["publish"]:
        sizes[due] = sizes.get(due, 0) + 1
    named = {name: [due + late / 1000 for due, late in points] for name, points in moments.items()}
    bars = Series("published", [(due, float(count)) for due, count in sorted(sizes.items())], bars=True)
    return [
        report.worst_chart("The latest of each second", moments),
        Chart("Bucket sizes", "seconds", "runs due in the second", [bars]),
        report.percentile_chart(
            {name: sorted(late for _, late in points) for name, points in moments.items()}
        ),
        report.throughput_chart(named, 0.0, step=1.0),
        report.processor_chart(stream.watch.samples, begin, float(stream.end)),
        report.memory_chart(stream.watch.samples, begin, float(stream.end)),
    ]


def table(found: dict[str, Any]) -> list[str]:
    return [
        *Environment(**found["environment"]).lines(),
        "",
        *(() if found["complete"] else ("stopped before the end; this is what there is", "")),
        f"load          {found['runs_per_s']:,} runs/s for {found['seconds']} s,"
        f" of {found['registered']:,} jobs",
        f"publication   {in_words(found['publish_lateness_ms'])} (due → appended by the broker)",
        f"start         {in_words(found['start_lateness_ms'])} (due → handler started)",
        f"outcome       {in_words(found['durable_lateness_ms'])} (due → durable)",
        f"lost          {found['lost']} of {found['expected']:,}, executed twice {found['executed_twice']},"
        f" published twice {found['published_twice']}",
        "",
        *(
            f"minute {each['minute'] + 1:<6} start {in_words(each.get('start_lateness_ms', {}))}"
            for each in found["minutes"]
        ),
        "",
        *(
            f"{each['name']:<13} {each['first_mb']:,.0f} MB in the first minute,"
            f" {each['last_mb']:,.0f} in the last: {each['drift_mb']:+,.1f} MB"
            for each in found["memory"]
        ),
    ]


@click.command("steady", short_help="so many runs due in each second, for minutes; lateness and memory")
@click.option(
    "--rate", type=click.IntRange(1, 100_000), default=2800, show_default=True, help="runs a second"
)
@click.option("--minutes", type=click.FloatRange(0.1, 1440), default=5, show_default=True, help="measured")
@click.option("--workers", type=click.IntRange(1, 64), default=1, show_default=True, help="processes")
@click.option("--schedulers", type=click.IntRange(1, 64), default=1, show_default=True, help="processes")
@click.option("--concurrency", type=click.IntRange(1, 10_000), default=100, show_default=True)
@click.option("--payload", type=click.IntRange(2, 100_000), default=200, show_default=True, help="bytes each")
@click.option("--seed", type=int, default=1, show_default=True, help="in the result; nothing here is random")
@click.option(
    "--report", "directory", type=click.Path(path_type=Path, file_okay=False), help="pictures there"
)
@click.option("--json", "as_json", is_flag=True, help="one JSON object instead of the table")
def command(*, as_json: bool, directory: Path | None, **given: Any) -> None:
    """How late runs start when RATE of them are due in each second, minute by minute.

    Starts a stack of its own; takes two or three minutes more than it measures.
    """
    found = run_whole(run(Options(**given), directory))
    click.echo(json.dumps(found) if as_json else "\n".join(table(found)))
    conclude(found)
