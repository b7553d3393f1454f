"""What every command shows: data on stdout as `table`, `json`, `jsonl` or `name`; talk on stderr.

JSON is what the API answers, in UTC. A table is for people: times are local, or UTC with `--utc`, and there
is colour on a terminal unless NO_COLOR is set. `name` is one name or id per line, for the next command.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import wraps
from typing import Any, Generic, TypeVar, cast

import click

from mainspring.cli.times import Times
from mainspring.client import NoAnswer, Unavailable

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

_COLOURS = {
    "active": "green",
    "alive": "green",
    "succeeded": "green",
    "running": "cyan",
    "paused": "yellow",
    "failed": "yellow",
    "lost": "yellow",
    "missed": "yellow",
    "recalled": "yellow",
    "dead": "red",
    "revoked": "red",
}


class Format(StrEnum):
    """How data is printed."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
    NAME = "name"


@dataclass(frozen=True, slots=True)
class Column(Generic[T]):
    """A column of a table."""

    title: str
    cell: Callable[[T, Times], object]
    right: bool = False


@dataclass(frozen=True, slots=True)
class View(Generic[T]):
    """How things of one kind are shown."""

    columns: Sequence[Column[T]]
    name: Callable[[T], object]


@dataclass(frozen=True, slots=True)
class Output:
    """Where data goes, and in which shape."""

    format: Format = Format.TABLE
    utc: bool = False

    @property
    def times(self) -> Times:
        return Times(utc=self.utc, now=datetime.now(UTC))

    def show(self, view: View[T], things: Iterable[T]) -> int:
        """Print them; their number."""
        if self.format is Format.TABLE:
            return self._table(view, list(things))
        if self.format is Format.JSON:
            found = [record(thing) for thing in things]
            click.echo(json.dumps(found, indent=2, ensure_ascii=False))
            return len(found)
        count = 0
        for count, thing in enumerate(things, 1):  # noqa: B007  (the count is the answer)
            click.echo(view.name(thing) if self.format is Format.NAME else _line(record(thing)))
        return count

    def show_one(self, view: View[T], thing: T, pairs: Sequence[tuple[str, object]]) -> None:
        """Print one thing: as a table its fields, each on a line."""
        if self.format is Format.JSON:
            click.echo(json.dumps(record(thing), indent=2, ensure_ascii=False))
        elif self.format is Format.JSONL:
            click.echo(_line(record(thing)))
        elif self.format is Format.NAME:
            click.echo(view.name(thing))
        else:
            self.show_pairs(pairs)

    def show_pairs(self, pairs: Sequence[tuple[str, object]]) -> None:
        width = max(len(name) for name, _ in pairs)
        for name, value in pairs:
            first, *others = str(_cell(value)).split("\n")
            click.echo(f"{name:<{width}}  {paint(first)}".rstrip())
            for line in others:
                click.echo(" " * (width + 2) + line)

    def _table(self, view: View[T], things: list[T]) -> int:
        times = self.times
        rows = [[column.title for column in view.columns]]
        rows += [[_one_line(_cell(column.cell(thing, times))) for column in view.columns] for thing in things]
        widths = [max(len(row[index]) for row in rows) for index in range(len(view.columns))]
        for row in rows if things else []:
            cells = [
                paint(text.rjust(width) if column.right else text.ljust(width))
                for text, width, column in zip(row, widths, view.columns, strict=True)
            ]
            click.echo("  ".join(cells).rstrip())
        if not things:
            say("nothing found")
        return len(things)


def with_output(command: F) -> F:
    """`-o` and `--utc`, handed to the command as `output`."""

    @wraps(command)
    def run(*args: Any, format_: str, utc: bool, **kwargs: Any) -> Any:
        return command(*args, output=Output(Format(format_), utc), **kwargs)

    run = click.option("--utc", is_flag=True, help="Times in UTC; default: local.")(run)
    shape = click.option(
        "-o",
        "--output",
        "format_",
        type=click.Choice([each.value for each in Format]),
        default=Format.TABLE.value,
        show_default=True,
        help="How data is printed on stdout.",
    )
    return cast("F", shape(run))


def watchable(command: F) -> F:
    """`--watch`: the whole command again and again."""

    @wraps(command)
    def run(*args: Any, watch: float | None, **kwargs: Any) -> None:
        _repeat(lambda: command(*args, **kwargs), watch)

    option = click.option(
        "--watch",
        is_flag=False,
        flag_value=2.0,
        type=click.FloatRange(0.1),
        metavar="[SECONDS]",
        help="Show it again every 2 seconds, or so many, until Ctrl-C.",
    )
    return cast("F", option(run))


def record(thing: Any) -> Any:
    """A model as JSON has it, with the API's names."""
    if is_dataclass(thing) and not isinstance(thing, type):
        return {
            each.metadata.get("name", each.name): record(getattr(thing, each.name)) for each in fields(thing)
        }
    if isinstance(thing, datetime):
        return thing.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(thing, tuple | list):
        return [record(each) for each in thing]
    return thing


def say(text: str) -> None:
    """Talk, on stderr."""
    click.echo(text, err=True)


def paint(text: str) -> str:
    """A word that is a status in its colour, where there is colour."""
    colour = _COLOURS.get(text.strip())
    return click.style(text, fg=colour) if colour and is_coloured(sys.stdout) else text


def is_coloured(stream: Any) -> bool:
    return bool(stream.isatty()) and not os.environ.get("NO_COLOR")


def _repeat(show: Callable[[], object], seconds: float | None) -> None:
    """Show once, or again and again until Ctrl-C; an API that is away for a while does not end it."""
    if seconds is None:
        show()
        return
    try:
        while True:
            if sys.stdout.isatty():
                click.clear()
            try:
                show()
            except (NoAnswer, Unavailable) as error:
                say(f"mainspring: {error}")
            sys.stdout.flush()
            time.sleep(seconds)
    except KeyboardInterrupt:
        return


def _cell(value: object) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, tuple | list):
        return ", ".join(map(str, value)) or "-"
    if isinstance(value, dict):
        return ", ".join(f"{name}={each}" for name, each in value.items()) or "-"
    return str(value)


def _one_line(text: str, longest: int = 60) -> str:
    text = " ".join(text.split("\n"))
    return text if len(text) <= longest else text[: longest - 1] + "…"


def _line(content: Any) -> str:
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"))
