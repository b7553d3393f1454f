"""`mainspring dead-letters`: runs that have no attempt left: look at them, count them, give them another."""

from __future__ import annotations

import json
from itertools import islice
from typing import Any

import click

from mainspring.cli.confirmation import confirm, counted, dry_run_option, yes_option
from mainspring.cli.output import Column, Format, Output, View, say, watchable, with_output
from mainspring.cli.remote import limit_options, reason_option, with_client
from mainspring.cli.times import Times
from mainspring.client import Client
from mainspring.client.models import DeadLetter, DeadLetterDetail, DeadLetterKind, Redrive

_LETTERS: View[DeadLetter] = View(
    (
        Column("id", lambda letter, _: str(letter.id), right=True),
        Column("run", lambda letter, _: letter.run_id),
        Column("handler", lambda letter, _: letter.handler),
        Column("reason", lambda letter, _: letter.reason),
        Column("since", lambda letter, times: times.short(letter.created_at)),
        Column("redriven", lambda letter, times: times.short(letter.redriven_at)),
        Column("fingerprint", lambda letter, _: letter.fingerprint),
        Column("error", lambda letter, _: letter.error),
    ),
    lambda letter: letter.id,
)
_KINDS: View[DeadLetterKind] = View(
    (
        Column("fingerprint", lambda kind, _: kind.fingerprint),
        Column("count", lambda kind, _: kind.count, right=True),
        Column("open", lambda kind, _: kind.open, right=True),
        Column("handler", lambda kind, _: kind.handler),
        Column("last", lambda kind, times: times.short(kind.last)),
        Column("error", lambda kind, _: kind.error),
    ),
    lambda kind: kind.fingerprint,
)
_REDRIVEN: View[Redrive] = View((), lambda done: "\n".join(done.runs))
_AT_ONCE = 1000


def filter_options(command: Any) -> Any:
    """Which letters; handed to the command by their names."""
    for option in (
        click.option("--since", metavar="ISO", help="Dead since this instant."),
        click.option("--job", help="Of this job, by id or name."),
        click.option("--handler", help="Of this handler."),
        click.option("--fingerprint", help="That failed in this way; `summary` lists the ways."),
    ):
        command = option(command)
    return command


@click.group("dead-letters")
def command() -> None:
    """Look at the runs that have no attempt left, and give them another."""


@command.command("list")
@filter_options
@click.option("--redriven/--open", "redriven", default=None, help="Only those redriven, or only those not.")
@limit_options
@watchable
@with_output
@with_client
def list_letters(*, client: Client, output: Output, limit: int | None, **filters: Any) -> None:
    """List dead letters, all or those that fit every filter."""
    if limit is None or limit >= _AT_ONCE:
        output.show(_LETTERS, islice(client.dead_letters.list(**filters), limit))
        return
    page = client.dead_letters.page(None, limit, **filters)
    shown = output.show(_LETTERS, page.items)
    if page.next_cursor is not None and output.format is Format.TABLE:
        say(f"{shown} of {page.total:,} dead letters; --all shows all of them")


@command.command("summary")
@watchable
@with_output
@with_client
def summary(*, client: Client, output: Output) -> None:
    """Count dead letters by the way they failed, the most frequent first."""
    output.show(_KINDS, client.dead_letters.summary())


@command.command("get")
@click.argument("letter", type=click.IntRange(1))
@with_output
@with_client
def get(letter: int, *, client: Client, output: Output) -> None:
    """Show a dead letter with its traceback and payload."""
    found = client.dead_letters.get(letter)
    output.show_one(_LETTERS, found, _pairs(found, output.times))


@command.command("redrive")
@click.argument("letters", nargs=-1, type=click.IntRange(1), metavar="[LETTER]…")
@filter_options
@reason_option
@dry_run_option
@yes_option
@with_output
@with_client
def redrive(
    letters: tuple[int, ...],
    *,
    client: Client,
    output: Output,
    reason: str | None,
    dry_run: bool,
    yes: bool,
    **filters: Any,
) -> None:
    """Give dead letters their next attempt with a fresh budget: those that are named, or all that fit.

    They are counted first, at most 1,000 at a time; then it asks.
    """
    if bool(letters) == any(filters.values()):
        raise click.UsageError("give letters, or a filter such as --fingerprint; not both")
    which = {"ids": list(letters)} if letters else {**filters, "limit": _AT_ONCE}
    planned = client.dead_letters.redrive_many(**which)
    _tell(planned, "to redrive")
    if planned.count and not dry_run:
        if planned.count > 1 or not letters:
            confirm(f"redrive {counted(planned.count, 'dead letter')}?", yes=yes)
        planned = client.dead_letters.redrive_many(**which, dry_run=False, reason=reason)
        _tell(planned, "redriven")
    if output.format is not Format.TABLE:
        output.show(_REDRIVEN, [planned])
    if planned.refused:
        raise click.exceptions.Exit(1)


def _tell(done: Redrive, what: str) -> None:
    for refused in done.refused:
        say(f"mainspring: {refused.detail}")
    say(f"{counted(done.count, 'dead letter')} {what}")


def _pairs(letter: DeadLetterDetail, times: Times) -> list[tuple[str, object]]:
    return [
        ("id", str(letter.id)),
        ("run", letter.run_id),
        ("job", letter.job_id),
        ("scheduled", times.whole(letter.scheduled_at)),
        ("attempt", letter.attempt),
        ("pool", letter.pool),
        ("handler", letter.handler),
        ("reason", letter.reason),
        ("since", times.whole(letter.created_at)),
        ("redriven", times.whole(letter.redriven_at)),
        ("fingerprint", letter.fingerprint),
        ("error", letter.error),
        ("payload", json.dumps(letter.payload, ensure_ascii=False)),
        ("traceback", letter.traceback),
    ]
