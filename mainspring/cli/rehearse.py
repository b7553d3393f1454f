"""`mainspring rehearse`: what would tonight's midnight look like?"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from mainspring.clock import SystemClock
from mainspring.kafka.topic_settings import read_topic_settings
from mainspring.schedule import parse_instant
from mainspring.scheduler.rehearsal import LONGEST_SECONDS, Line, Rehearsal, Second, Waiting
from mainspring.settings import Environment, KafkaSettings, PostgresSettings

INTERRUPTED = 130
_SHOWN = 10
_REPORT_SECONDS = 2.0


@dataclass(slots=True)
class Told:
    """What the rehearsal has told so far."""

    first: int
    seconds: int
    complete: bool = False
    line: Line = field(default_factory=Line)
    rows: list[tuple[Second, Waiting]] = field(default_factory=list)
    _reported: float = field(default_factory=time.monotonic)

    def hear(self, second: Second) -> None:
        self.rows.append((second, self.line.add(second)))
        if time.monotonic() - self._reported > _REPORT_SECONDS:
            self._reported = time.monotonic()
            click.echo(f"through {_clock(second.second)}", err=True)

    def document(self) -> dict[str, Any]:
        """All of it, for programs."""
        lanes = Counter[str]()
        for second, _ in self.rows:
            lanes.update(second.lanes)
        largest = max(self.rows, key=lambda row: row[0].messages, default=None)
        return {
            "from": _instant(self.first),
            "seconds": self.seconds,
            "complete": self.complete,
            "messages": lanes.total(),
            "bytes": sum(second.size for second, _ in self.rows),
            "refused": sum(second.refused for second, _ in self.rows),
            "lanes": dict(sorted(lanes.items())),
            "largest": None if largest is None else _row(*largest),
            "longest_wait_s": round(max((waiting.begun for _, waiting in self.rows), default=0.0), 3),
            "latest_s": round(max((waiting.ended for _, waiting in self.rows), default=0.0), 3),
            "by_second": [_row(*row) for row in self.rows],
        }


@click.command("rehearse")
@click.option("--from", "start", metavar="ISO", help="The first second; default: the coming midnight, UTC.")
@click.option(
    "--seconds", type=click.IntRange(1, LONGEST_SECONDS), default=60, show_default=True, help="How many."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of the tables.")
def command(start: str | None, seconds: int, as_json: bool) -> None:  # noqa: FBT001  (by name)
    """Publish coming seconds now, onto topics that no worker reads.

    Takes the jobs as they are registered, and goes through the seconds as a scheduler would, one after the
    other, as fast as it can: what leaves in each, how long that takes, and by how much the clock would have
    to wait. Changes nothing in Postgres, and deletes its topics when it ends. Ctrl-C prints what there is.

    It needs memory for all that is due within ten minutes, and Kafka and this machine are busy with it.
    """
    first = _midnight() if start is None else _whole(parse_instant(start, "UTC", field="--from"))
    told = Told(first, seconds)
    environment = Environment(os.environ)
    rehearsal = Rehearsal(
        PostgresSettings.from_environment(os.environ),
        KafkaSettings.from_environment(os.environ),
        read_topic_settings(environment),
    )
    asyncio.run(_run(rehearsal, told))
    found = told.document()
    click.echo(json.dumps(found, indent=2) if as_json else "\n".join(_tables(found)))
    if not told.complete:
        click.get_current_context().exit(INTERRUPTED)


async def _run(rehearsal: Rehearsal, told: Told) -> None:
    task = asyncio.create_task(rehearsal.run(told.first, told.seconds, told.hear))
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, task.cancel)
    try:
        await task
        told.complete = True
    except asyncio.CancelledError:
        click.echo("stopped; this is what there is", err=True)


def _row(second: Second, waiting: Waiting) -> dict[str, Any]:
    return {
        "second": _instant(second.second),
        **{name: value for name, value in asdict(second).items() if name not in ("second", "took", "size")},
        "bytes": second.size,
        "publishing_s": round(second.took, 4),
        "wait_s": round(waiting.begun, 4),
        "lateness_s": round(waiting.ended, 4),
    }


def _tables(found: dict[str, Any]) -> list[str]:
    """For people: the whole, the lanes, and the largest seconds."""
    if not found["by_second"]:
        return [f"Nothing is due in the {found['seconds']:,} s from {found['from']} on."]
    lines = [
        f"{found['messages']:,} messages, {found['bytes'] / 1e6:,.1f} MB, in {len(found['by_second']):,} of "
        f"{found['seconds']:,} seconds from {found['from']} on",
        *(f"  {lane:<30} {count:>12,}" for lane, count in found["lanes"].items()),
        "",
        f"{'second':<20}  {'messages':>10}  {'MB':>8}  {'publishing':>10}  {'clock waits':>11}"
        f"  {'lateness':>8}",
    ]
    largest = sorted(found["by_second"], key=lambda row: -row["messages"])[:_SHOWN]
    lines += [
        f"{row['second']:<20}  {row['messages']:>10,}  {row['bytes'] / 1e6:>8.1f}  "
        f"{row['publishing_s']:>8.2f} s  {row['wait_s']:>9.2f} s  {row['lateness_s']:>6.2f} s"
        for row in largest
    ]
    if found["refused"]:
        lines += ["", f"{found['refused']:,} messages were not taken by Kafka"]
    return [
        *lines,
        "",
        f"The clock would have to wait for {found['longest_wait_s']:.2f} s at most, and the latest message"
        f" would leave {found['latest_s']:.2f} s after it is due.",
    ]


def _midnight() -> int:
    tomorrow = SystemClock().now().astimezone(UTC) + timedelta(days=1)
    return _whole(tomorrow.replace(hour=0, minute=0, second=0, microsecond=0))


def _whole(instant: datetime) -> int:
    return int(instant.timestamp())


def _instant(second: int) -> str:
    return f"{datetime.fromtimestamp(second, UTC):%Y-%m-%dT%H:%M:%SZ}"


def _clock(second: int) -> str:
    return _instant(second)[11:-1]
