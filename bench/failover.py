"""Failover: leaders are killed under load, again and again; how long nobody publishes for their shards.

Every job is due in every second, some in each of the 64 shards, so a shard that nobody leads shows as a gap.
A kill is a SIGKILL of the scheduler that has led longest, at a moment within the second that the seed
chooses; then a new one is started, and the next kill waits until the shards are shared again. How long it
took is read from the topics, which the broker stamps: from the kill to the first message of a shard of the
victim's under a later epoch, and to the first such message of the last of its shards.

What lay after the mark of a killed leader is published twice; the claims remove it, so nothing is executed
twice.
"""

from __future__ import annotations

import asyncio
import json
import random
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import asyncpg
import click

from bench.harness import report
from bench.harness.beats import each_second
from bench.harness.charts import Chart, Series
from bench.harness.cluster import progress
from bench.harness.environment import Environment
from bench.harness.interrupt import Interrupt, run_whole
from bench.harness.percentiles import in_words, summary
from bench.harness.second import Seen, conclude
from bench.harness.servers import describe_servers
from bench.harness.streams import Stream, by_kind, lateness, streaming
from bench.harness.topics import Published

_LOOK_SECONDS = 0.1
_QUIET_SECONDS = 2  # at least, between a recovery and the next kill
_TAKEN = """
SELECT count(*) FROM unnest($1::smallint[], $2::bigint[]) AS held (shard, epoch)
JOIN shards USING (shard)
WHERE shards.epoch > held.epoch AND shards.fired_through >= to_timestamp($3)
"""
_LEADERS = "SELECT shard, epoch, leader FROM shards WHERE leader IS NOT NULL"


@dataclass(frozen=True, slots=True)
class Options:
    """What was asked for: the settings of the result."""

    kills: int
    rate: int
    schedulers: int
    workers: int
    concurrency: int
    payload: int
    seed: int


@dataclass(frozen=True, slots=True)
class Kill:
    """A leader that was killed: when, and the epochs of the shards it led."""

    at: float
    led: Mapping[int, int]


async def run(options: Options, directory: Path | None) -> dict[str, Any]:
    interrupt = Interrupt()
    kills: list[Kill] = []
    with tempfile.TemporaryDirectory(prefix="mainspring-bench-") as scratch:
        async with streaming(
            each_second(options.rate),
            Path(scratch),
            interrupt,
            schedulers=options.schedulers,
            workers=options.workers,
            concurrency=options.concurrency,
            payload_bytes=options.payload,
        ) as stream:
            await interrupt.unless(kill_again_and_again(stream, options, kills))
            seen = await stream.finish()
            environment = Environment.capture(await describe_servers(stream.cluster))
    found = {"scenario": "failover", "complete": not interrupt.came, "settings": asdict(options)}
    found |= measures(stream, seen, kills) | {"environment": asdict(environment)}
    if directory is not None:
        progress(f"the report is {report.write(directory, found, charts(stream, seen, kills))}")
    return found


async def kill_again_and_again(stream: Stream, options: Options, kills: list[Kill]) -> None:
    """One after the other, each when the one before has been recovered from."""
    generator = random.Random(options.seed)
    connection = await asyncpg.connect(stream.cluster.settings.postgres.dsn)
    try:
        await shared(stream, connection)
        for number in range(options.kills):
            victim = stream.fleet.alive[0]
            await asyncio.sleep(_QUIET_SECONDS + 1 - time.time() % 1 + generator.random())
            led = await led_by(connection, victim.pid)
            kills.append(Kill(time.time(), led))
            await asyncio.to_thread(victim.kill)
            await taken_over(connection, kills[-1])
            progress(f"kill {number + 1} of {options.kills}: {len(led)} shards, taken over")
            stream.fleet.start_scheduler()
            await shared(stream, connection)
    finally:
        await connection.close()


async def led_by(connection: asyncpg.Connection[asyncpg.Record], pid: int) -> dict[int, int]:
    """The epochs of the shards of a scheduler, by shard; its identity names its process."""
    rows = await connection.fetch(_LEADERS)
    return {row["shard"]: row["epoch"] for row in rows if f"-{pid}-" in row["leader"]}


async def taken_over(connection: asyncpg.Connection[asyncpg.Record], kill: Kill) -> None:
    """Until every shard of the victim's has another leader who has moved its mark past the kill."""
    arguments = (list(kill.led), list(kill.led.values()), kill.at)
    while await connection.fetchval(_TAKEN, *arguments) < len(kill.led):  # noqa: ASYNC110
        await asyncio.sleep(_LOOK_SECONDS)


async def shared(stream: Stream, connection: asyncpg.Connection[asyncpg.Record]) -> None:
    """Until every scheduler leads something."""
    while not all([await led_by(connection, each.pid) for each in stream.fleet.alive]):
        for scheduler in stream.fleet.alive:
            scheduler.refuse_the_dead()
        await asyncio.sleep(_LOOK_SECONDS)


def measures(stream: Stream, seen: Seen, kills: Sequence[Kill]) -> dict[str, Any]:
    """The figures of the window."""
    gaps = recoveries(seen.published, kills)
    return {
        "kills": len(kills),
        "seconds": stream.seconds,
        "first_publication_s": summary(sorted(gap["first_s"] for gap in gaps), 3),
        "all_shards_s": summary(sorted(gap["all_s"] for gap in gaps), 3),
        **stream.counts(seen),
        **lateness(stream, seen),
        "each": gaps,
        "processes": [asdict(each) for each in seen.usage],
    }


def recoveries(published: Published, kills: Sequence[Kill]) -> list[dict[str, Any]]:
    """Of each kill: to the first message of a successor, and until every shard had one."""
    begun: dict[int, dict[int, float]] = {}
    for shard, epoch, at in zip(published.shards, published.epochs, published.appended, strict=True):
        terms = begun.setdefault(shard, {})
        terms[epoch] = min(terms.get(epoch, at), at)
    found = []
    for kill in kills:
        firsts = [_first_after(begun.get(shard, {}), epoch) for shard, epoch in kill.led.items()]
        reached = [first - kill.at for first in firsts if first is not None]
        if reached and len(reached) == len(firsts):
            found.append(
                {
                    "at": round(kill.at, 3),
                    "shards": len(firsts),
                    "first_s": round(min(reached), 3),
                    "all_s": round(max(reached), 3),
                }
            )
    return found


def _first_after(terms: Mapping[int, float], epoch: int) -> float | None:
    later = [number for number in terms if number > epoch]
    return terms[min(later)] if later else None


def charts(stream: Stream, seen: Seen, kills: Sequence[Kill]) -> list[Chart]:
    """What the window looks like, and the seconds around the first kill."""
    begin = float(stream.begin)
    moments = {
        name: [(due - begin, late) for due, late in points] for name, points in by_kind(stream, seen).items()
    }
    marks = [(kill.at - begin, "kill") for kill in kills]
    worst = report.worst_chart("The latest of each second", moments)
    named = {name: [due + late / 1000 for due, late in points] for name, points in moments.items()}
    whole = Chart(worst.title, worst.x_label, worst.y_label, worst.series, marks)
    return [
        whole,
        *(_around(kills[0].at - begin, named) if kills else ()),
        report.percentile_chart(
            {name: sorted(late for _, late in points) for name, points in moments.items()}
        ),
        report.processor_chart(stream.watch.samples, begin, float(stream.end)),
    ]


def _around(at: float, named: Mapping[str, Sequence[float]]) -> list[Chart]:
    near = {
        name: [moment - at for moment in moments if -5 <= moment - at < 12] for name, moments in named.items()
    }
    series = [Series(name, report.per_second(moments, -5.0, 0.25)) for name, moments in near.items()]
    shifted = [Series(each.name, [(x - 5.0, y) for x, y in each.points]) for each in series]
    return [Chart("Before and after a kill", "seconds after it", "per second", shifted, [(0.0, "kill")])]


def table(found: dict[str, Any]) -> list[str]:
    settings = found["settings"]
    return [
        *Environment(**found["environment"]).lines(),
        "",
        *(() if found["complete"] else ("stopped before the end; this is what there is", "")),
        f"kills         {found['kills']}, seed {settings['seed']}, beside {settings['rate']:,} runs/s",
        f"first         {_seconds(found['first_publication_s'])} (kill → a successor publishes)",
        f"all           {_seconds(found['all_shards_s'])} (kill → it publishes for all shards of the victim)",
        f"start         {in_words(found['start_lateness_ms'])} (due → handler started)",
        f"lost          {found['lost']} of {found['expected']:,}, executed twice {found['executed_twice']},"
        f" published twice {found['published_twice']}",
    ]


def _seconds(found: Mapping[str, float | None]) -> str:
    shown = ((name.replace("p999", "p99.9"), value) for name, value in found.items())
    return ", ".join(f"{name} –" if value is None else f"{name} {value:.2f} s" for name, value in shown)


@click.command("failover", short_help="leaders killed under load: until a successor publishes, lost, twice")
@click.option("--kills", type=click.IntRange(1, 10_000), default=10, show_default=True, help="SIGKILLs")
@click.option(
    "--rate", type=click.IntRange(64, 50_000), default=1000, show_default=True, help="runs a second"
)
@click.option("--schedulers", type=click.IntRange(2, 16), default=2, show_default=True, help="processes")
@click.option("--workers", type=click.IntRange(1, 64), default=1, show_default=True, help="processes")
@click.option("--concurrency", type=click.IntRange(1, 10_000), default=100, show_default=True)
@click.option("--payload", type=click.IntRange(2, 100_000), default=200, show_default=True, help="bytes each")
@click.option("--seed", type=int, default=1, show_default=True, help="of the moments of the kills")
@click.option(
    "--report", "directory", type=click.Path(path_type=Path, file_okay=False), help="pictures there"
)
@click.option("--json", "as_json", is_flag=True, help="one JSON object instead of the table")
def command(*, as_json: bool, directory: Path | None, **given: Any) -> None:
    """How long after a leader's SIGKILL its successor publishes, and what is lost or done twice.

    Starts a stack of its own; a kill takes about ten seconds.
    """
    found = run_whole(run(Options(**given), directory))
    click.echo(json.dumps(found) if as_json else "\n".join(table(found)))
    conclude(found)
