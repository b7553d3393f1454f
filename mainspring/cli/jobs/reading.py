"""`mainspring jobs get, list, runs, explain`."""

from __future__ import annotations

from itertools import islice

import click

from mainspring.cli.jobs.selection import selection_options, where
from mainspring.cli.jobs.views import JOBS, RUNS, job_pairs
from mainspring.cli.output import Column, Format, Output, View, say, watchable, with_output
from mainspring.cli.remote import limit_options, with_client
from mainspring.client import Client
from mainspring.client.models import Explanation

_EXPLAINED: View[Explanation] = View(
    (
        Column("job", lambda found, _: found.job_id),
        Column("at", lambda found, times: times.short(found.at)),
        Column("verdict", lambda found, _: found.verdict),
        Column("because", lambda found, _: found.text),
    ),
    lambda found: found.verdict,
)


@click.command("get")
@click.argument("job")
@watchable
@with_output
@with_client
def get(job: str, *, client: Client, output: Output) -> None:
    """Show a job: what it is, its last run, when it runs next."""
    found = client.jobs.get(job)
    output.show_one(JOBS, found, job_pairs(found, output.times))


@click.command("list")
@selection_options
@limit_options
@watchable
@with_output
@with_client
def list_jobs(*, client: Client, output: Output, limit: int | None, **filters: object) -> None:
    """List jobs, all or those that fit every filter."""
    fitting = where(filters)
    if limit is None or limit > 1000:
        output.show(JOBS, islice(client.jobs.list(**fitting), limit))
        return
    page = client.jobs.page(None, limit, **fitting)
    shown = output.show(JOBS, page.items)
    if page.next_cursor is not None and output.format is Format.TABLE:
        about = "" if page.total_is_exact else "about "
        say(f"{shown} of {about}{page.total:,} jobs; --all shows all of them")


@click.command("runs")
@click.argument("job")
@limit_options
@watchable
@with_output
@with_client
def runs(job: str, *, client: Client, output: Output, limit: int | None) -> None:
    """List the runs of a job, newest first."""
    if limit is None or limit >= 1000:
        output.show(RUNS, islice(client.runs.iterate(job), limit))
    else:
        output.show(RUNS, client.runs.page(None, limit, job).items)


@click.command("explain")
@click.argument("job")
@click.option("--at", metavar="ISO", help="The instant to explain; default: now.")
@with_output
@with_client
def explain(job: str, at: str | None, *, client: Client, output: Output) -> None:
    """Say why a job ran, or did not run, at an instant."""
    found = client.jobs.explain(job, at if at is not None else output.times.now.replace(microsecond=0))
    pairs: list[tuple[str, object]] = [
        ("at", output.times.whole(found.at)),
        ("verdict", found.verdict),
        ("because", found.text),
        *((name.replace("_", " "), value) for name, value in found.facts.items()),
    ]
    output.show_one(_EXPLAINED, found, pairs)
    if found.runs and output.format is Format.TABLE:
        click.echo()
        output.show(RUNS, found.runs)
