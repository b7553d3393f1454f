"""`mainspring jobs submit`: many jobs from NDJSON."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import click

from mainspring.cli.output import Format, say
from mainspring.cli.remote import opened, reason_option
from mainspring.client.models import Answered
from mainspring.schema.errors import InvalidInput

_PATIENCE = 60.0
_NAMED = 20
"""Refused lines that are named one by one, where nobody asked for all answers."""


@click.command("submit")
@click.argument("file", metavar="FILE.ndjson")
@click.option("--atomic", is_flag=True, help="All jobs or none; at most 100,000.")
@click.option(
    "-o",
    "--output",
    "format_",
    type=click.Choice(["name", "jsonl"]),
    help="Print the id of each job made, or an answer for each line; default: nothing.",
)
@reason_option
def submit(file: str, *, atomic: bool, format_: str | None, reason: str | None) -> None:
    """Create the jobs of a file, one JSON object on each line; - is stdin.

    A line that is refused stops nothing, unless --atomic is given; the exit code is then 1. A connection
    that breaks is taken up again where it broke.
    """
    shown = _Answers(format_)
    with ExitStack() as stack:
        source, size = _open(stack, file)
        client = stack.enter_context(opened(_PATIENCE, _PATIENCE))
        hidden = not sys.stderr.isatty() or size is None
        bar: Any = stack.enter_context(
            click.progressbar(length=size or 0, file=sys.stderr, hidden=hidden, label="submitting")
        )
        lines = _lines(source, bar.update)
        done = client.jobs.submit_many(lines, atomic=atomic, reason=reason, on_answer=shown.show)
    if done.refused > _NAMED and format_ is None:
        say(f"… and {done.refused - _NAMED:,} more; -o jsonl shows every answer")
    say(f"{done.created:,} created, {done.refused:,} refused")
    if done.refused:
        raise click.exceptions.Exit(1)


class _Answers:
    """Prints what was asked for; of refusals the first few in any case."""

    def __init__(self, format_: str | None) -> None:
        self._format = format_
        self._named = 0

    def show(self, answer: Answered) -> None:
        if self._format == Format.JSONL:
            click.echo(json.dumps(_record(answer), ensure_ascii=False))
        elif self._format == Format.NAME and answer.job_id is not None:
            click.echo(answer.job_id)
        if answer.refusal is not None and self._format != Format.JSONL and self._named < _NAMED:
            self._named += 1
            say(f"line {answer.line:,}: {answer.refusal}")


def _record(answer: Answered) -> dict[str, object]:
    if answer.refusal is None:
        return {"line": answer.line, "job_id": answer.job_id}
    return {"line": answer.line, "problem": dict(answer.refusal.problem)}


def _open(stack: ExitStack, file: str) -> tuple[IO[bytes], int | None]:
    if file == "-":
        return sys.stdin.buffer, None
    try:
        source = Path(file).open("rb")  # noqa: SIM115  (closed by the stack)
    except OSError as error:
        raise InvalidInput(file, f"cannot be read: {error.strerror}") from None
    return stack.enter_context(source), os.fstat(source.fileno()).st_size


def _lines(source: IO[bytes], advance: Callable[[int], None]) -> Iterator[bytes]:
    for line in source:
        yield line
        advance(len(line))
