"""Which jobs: by filters for a list, by names or filters for an act on many."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypedDict, TypeVar

import click

from mainspring.cli.confirmation import confirm, counted
from mainspring.cli.output import say
from mainspring.cli.remote import pairs
from mainspring.client import Client

F = TypeVar("F", bound=Callable[..., Any])

_SHOWN = 10


class Where(TypedDict):
    """The filters that the API knows."""

    status: str | None
    handler: str | None
    pool: str | None
    labels: Mapping[str, str] | None
    name_prefix: str | None


def selection_options(command: F) -> F:
    """The filters, handed to the command by their names."""
    for option in (
        click.option("--name-prefix", metavar="TEXT", help="Jobs whose name begins so."),
        click.option(
            "--label", "labels", multiple=True, metavar="KEY=VALUE", help="With this label; repeatable."
        ),
        click.option("--pool", help="Of this pool."),
        click.option("--handler", help="Of this handler."),
        click.option(
            "--status", type=click.Choice(["active", "paused", "completed"]), help="In this status."
        ),
    ):
        command = option(command)
    return command


def where(filters: Mapping[str, Any]) -> Where:
    labels = pairs(filters["labels"], "--label")
    return Where(
        status=filters["status"],
        handler=filters["handler"],
        pool=filters["pool"],
        labels=labels or None,
        name_prefix=filters["name_prefix"],
    )


def choose(
    client: Client,
    verb: str,
    named: tuple[str, ...],
    filters: Mapping[str, Any],
    *,
    yes: bool,
    dry_run: bool,
    ask_for_one: bool = False,
) -> list[str]:
    """The jobs to act on, counted and confirmed; none in a dry run. One that was named is not asked about."""
    chosen = list(named) if named else _fitting(client, filters)
    if named and any(where(filters).values()):
        raise click.UsageError("give jobs or filters, not both")
    if dry_run or len(chosen) > 1 or not named:
        shown = ", ".join(chosen[:_SHOWN]) + (", …" if len(chosen) > _SHOWN else "")
        say(f"{verb} {counted(len(chosen), 'job')}" + (f": {shown}" if chosen else ""))
    if dry_run:
        for job in chosen:
            click.echo(job)
        return []
    if chosen and (ask_for_one or len(chosen) > 1 or not named):
        confirm(f"{verb} {counted(len(chosen), 'job')}?", yes=yes)
    return chosen


def _fitting(client: Client, filters: Mapping[str, Any]) -> list[str]:
    fitting = where(filters)
    if not any(fitting.values()):
        raise click.UsageError("give jobs, or a filter such as --label team=billing")
    return [job.label for job in client.jobs.list(**fitting)]
