"""`mainspring jobs trigger, backfill`: runs that the schedule alone would not make."""

from __future__ import annotations

import click

from mainspring.cli.confirmation import confirm, counted, dry_run_option, yes_option
from mainspring.cli.jobs.views import RUNS, run_pairs
from mainspring.cli.output import Column, Format, Output, View, say, with_output
from mainspring.cli.remote import reason_option, with_client
from mainspring.client import Client
from mainspring.client.models import Backfill, Triggered
from mainspring.schedule import format_instant

_TRIGGERED: View[Triggered] = View(
    (
        Column("run", lambda run, _: run.run_id),
        Column("scheduled", lambda run, times: times.short(run.scheduled_at)),
    ),
    lambda run: run.run_id,
)
_BACKFILLED: View[Backfill] = View(
    (Column("occurrences", lambda done, _: done.count),),
    lambda done: "\n".join(map(format_instant, done.instants)),
)


@click.command("trigger")
@click.argument("job")
@click.option("--wait", is_flag=True, help="Until the run has ended; exit code 1 unless it succeeded.")
@click.option("--timeout", type=click.FloatRange(0), metavar="SECONDS", help="Wait at most so long.")
@reason_option
@with_output
@with_client
def trigger(
    job: str, *, client: Client, output: Output, wait: bool, timeout: float | None, reason: str | None
) -> None:
    """Run a job once, now."""
    asked = client.jobs.trigger(job, reason=reason)
    if not wait:
        output.show(_TRIGGERED, [asked])
        return
    say(f"waiting for {asked.run_id}")
    run = client.runs.wait(asked.run_id, timeout)
    output.show_one(RUNS, run, run_pairs(run, output.times))
    if run.status != "succeeded":
        raise click.exceptions.Exit(1)


@click.command("backfill")
@click.argument("job")
@click.option("--from", "start", required=True, metavar="ISO", help="From this instant on.")
@click.option("--to", "end", required=True, metavar="ISO", help="Up to this one, exclusive.")
@click.option("--again", is_flag=True, help="Also what has run already.")
@click.option(
    "--limit", type=click.IntRange(1), help="At most so many occurrences, the first; default: 1000."
)
@reason_option
@dry_run_option
@yes_option
@with_output
@with_client
def backfill(
    job: str,
    start: str,
    end: str,
    *,
    client: Client,
    output: Output,
    again: bool,
    limit: int | None,
    reason: str | None,
    dry_run: bool,
    yes: bool,
) -> None:
    """Run what a job's schedule had in a range and never ran: counted first, then asked."""
    planned = client.jobs.backfill(job, start, end, again=again, limit=limit)
    if output.format is Format.TABLE:
        for instant in planned.instants:
            click.echo(output.times.whole(instant))
        if planned.count > len(planned.instants):
            click.echo("…")
    say(f"{job}: {counted(planned.count, 'occurrence')} to run")
    if planned.count and not dry_run:
        confirm(f"run {counted(planned.count, 'occurrence')}?", yes=yes)
        planned = client.jobs.backfill(
            job, start, end, dry_run=False, again=again, limit=limit, reason=reason
        )
        say(f"{counted(planned.count, 'run')} will start now")
    if output.format is not Format.TABLE:
        output.show(_BACKFILLED, [planned])
