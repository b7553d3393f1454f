"""`mainspring jobs import-crontab`: a crontab as a file for `jobs apply`."""

from __future__ import annotations

import sys
from pathlib import Path

import click
import yaml

from mainspring.cli.confirmation import counted
from mainspring.cli.jobs.crontab import Crontab, Options, comments, read_crontab
from mainspring.cli.output import say
from mainspring.cli.remote import pairs
from mainspring.schedule import load_zone
from mainspring.schema.errors import InvalidInput

_HEAD = """\
# Made of {source} by `mainspring jobs import-crontab`. Look through it, then: mainspring jobs apply FILE
# Each command is the payload of the handler {handler!r}, which is yours to write. Cron neither retries, nor
# makes up for what it missed, nor stops a command: max_retries, missed_window and timeout_seconds say so.
"""


@click.command("import-crontab")
@click.argument("file", metavar="FILE")
@click.option("--system", is_flag=True, help="It has a user column, as /etc/crontab has.")
@click.option("--timezone", "--tz", "timezone", metavar="ZONE", help="Where it names none; default: UTC.")
@click.option("--handler", default="command", show_default=True, help="The handler of the jobs.")
@click.option("--prefix", default="", metavar="TEXT", help="What every name begins with.")
@click.option(
    "--label", "labels", multiple=True, metavar="KEY=VALUE", help="A label of the jobs; repeatable."
)
@click.option("--lenient", is_flag=True, help="Exit code 0 even if lines could not be carried over.")
def import_crontab(
    file: str,
    *,
    system: bool,
    timezone: str | None,
    handler: str,
    prefix: str,
    labels: tuple[str, ...],
    lenient: bool,
) -> None:
    """Write the jobs of a crontab (- is stdin) as YAML to stdout.

    Every line that cannot be carried over is named on stderr, with its number and the reason; the exit code
    is then 1.
    """
    load_zone(timezone or "UTC")
    options = Options(
        handler=handler,
        prefix=prefix,
        timezone=timezone or "UTC",
        system=system,
        labels=pairs(labels, "--label"),
    )
    found = read_crontab(_read(file), options)
    click.echo(
        _HEAD.format(source=Path(file).name if file != "-" else "a crontab", handler=handler), nl=False
    )
    click.echo(write_yaml(found), nl=False)
    _report(file, found, asked_for_zone=timezone is not None)
    if found.problems and not lenient:
        raise click.exceptions.Exit(1)


def write_yaml(found: Crontab) -> str:
    """A list of jobs, each under its comment."""
    blocks = []
    for entry in found.entries:
        above = "".join(f"# {line}\n" if line else "#\n" for line in comments(entry))
        blocks.append(above + yaml.safe_dump([entry.job], sort_keys=False, allow_unicode=True, width=1000))
    return "\n".join(blocks) if blocks else "[]\n"


def _report(file: str, found: Crontab, *, asked_for_zone: bool) -> None:
    for line, reason in found.problems:
        say(f"{file}:{line}: not carried over: {reason}")
    for line, note in found.notes:
        say(f"{file}:{line}: note: {note}")
    if not asked_for_zone and any("timezone" not in entry.job for entry in found.entries):
        say(f"{file}: note: without a time zone, UTC is taken; --timezone gives another")
    summary = f"{counted(len(found.entries), 'job')} read"
    say(f"{summary}, {counted(len(found.problems), 'line')} not carried over")


def _read(file: str) -> str:
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(file, f"cannot be read: {error}") from None
