"""`mainspring runs`: one run, its log, stopping it, waiting for it."""

from __future__ import annotations

import time

import click

from mainspring.cli.confirmation import act_on_each
from mainspring.cli.jobs.views import RUNS, run_pairs
from mainspring.cli.output import Column, Format, Output, View, say, watchable, with_output
from mainspring.cli.remote import reason_option, with_client
from mainspring.client import Client, NotFound
from mainspring.client.models import LogLine

_LOG: View[LogLine] = View(
    (
        Column("at", lambda line, times: times.short(line.at)),
        Column("level", lambda line, _: line.level),
        Column("message", lambda line, _: line.message),
    ),
    lambda line: line.message,
)
_PAUSE_SECONDS = 1.0


@click.group("runs")
def command() -> None:
    """Look at runs, stop them, wait for them; `mainspring jobs runs JOB` lists those of a job."""


@command.command("get")
@click.argument("run")
@watchable
@with_output
@with_client
def get(run: str, *, client: Client, output: Output) -> None:
    """Show a run and the last lines of its log."""
    found = client.runs.get(run)
    output.show_one(RUNS, found, run_pairs(found, output.times))
    if found.log and output.format is Format.TABLE:
        click.echo()
        output.show(_LOG, found.log[-20:])


@command.command("log")
@click.argument("run")
@click.option("--follow", is_flag=True, help="Go on until the run has ended.")
@with_output
@with_client
def log(run: str, *, client: Client, output: Output, follow: bool) -> None:
    """Print what a run's handler said; -o name prints the messages alone."""
    if not follow:
        output.show(_LOG, client.runs.log(run))
        return
    shown = 0
    while True:
        ended = _has_ended(client, run)  # looked at before the log: nothing is said after the end
        lines = list(client.runs.log(run)) if ended is not None else []
        if len(lines) > shown:
            output.show(_LOG, lines[shown:])
            shown = len(lines)
        if ended:
            return
        time.sleep(_PAUSE_SECONDS)


@command.command("cancel")
@click.argument("runs", nargs=-1, required=True, metavar="RUN…")
@reason_option
@with_client
def cancel(runs: tuple[str, ...], *, client: Client, reason: str | None) -> None:
    """Ask runs to stop, or not to start."""

    def act(run: str) -> str:
        done = client.runs.cancel(run, reason=reason)
        return f"{run} is {done.state}, and was asked to stop"

    act_on_each(runs, act)


@command.command("wait")
@click.argument("run")
@click.option(
    "--timeout", type=click.FloatRange(0), metavar="SECONDS", help="At most so long; default: for ever."
)
@click.option("--one-attempt", is_flag=True, help="Do not wait for the attempts that follow a failure.")
@with_output
@with_client
def wait(run: str, *, client: Client, output: Output, timeout: float | None, one_attempt: bool) -> None:
    """Wait until a run has ended, its retries included; exit code 1 unless it succeeded."""
    say(f"waiting for {run}")
    found = client.runs.wait(run, timeout, retries=not one_attempt)
    output.show_one(RUNS, found, run_pairs(found, output.times))
    if found.status != "succeeded":
        raise click.exceptions.Exit(1)


def _has_ended(client: Client, run: str) -> bool | None:
    """None: nobody has taken it yet."""
    try:
        return client.runs.get(run).status != "running"
    except NotFound:
        return None
