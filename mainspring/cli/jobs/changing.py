"""`mainspring jobs pause, resume, delete`: one job or many."""

from __future__ import annotations

import click

from mainspring.cli.confirmation import act_on_each, dry_run_option, yes_option
from mainspring.cli.jobs.selection import choose, selection_options
from mainspring.cli.remote import reason_option, with_client
from mainspring.client import Client


@click.command("pause")
@click.argument("jobs", nargs=-1, metavar="[JOB]…")
@selection_options
@click.option("--until", metavar="ISO", help="Resume by itself at this instant.")
@reason_option
@dry_run_option
@yes_option
@with_client
def pause(
    jobs: tuple[str, ...],
    *,
    client: Client,
    until: str | None,
    reason: str | None,
    dry_run: bool,
    yes: bool,
    **filters: object,
) -> None:
    """Stop jobs from firing, those that are named or all that fit the filters."""

    def act(job: str) -> str:
        client.jobs.pause(job, reason=reason, until=until)
        return f"paused {job}"

    act_on_each(choose(client, "pause", jobs, filters, yes=yes, dry_run=dry_run), act)


@click.command("resume")
@click.argument("jobs", nargs=-1, metavar="[JOB]…")
@selection_options
@reason_option
@dry_run_option
@yes_option
@with_client
def resume(
    jobs: tuple[str, ...], *, client: Client, reason: str | None, dry_run: bool, yes: bool, **filters: object
) -> None:
    """Let jobs fire again from now on; the time they were paused is not made up for."""

    def act(job: str) -> str:
        client.jobs.resume(job, reason=reason)
        return f"resumed {job}"

    act_on_each(choose(client, "resume", jobs, filters, yes=yes, dry_run=dry_run), act)


@click.command("delete")
@click.argument("jobs", nargs=-1, metavar="[JOB]…")
@selection_options
@reason_option
@dry_run_option
@yes_option
@with_client
def delete(
    jobs: tuple[str, ...], *, client: Client, reason: str | None, dry_run: bool, yes: bool, **filters: object
) -> None:
    """Delete jobs for good. What runs is not stopped, what has not begun does not begin."""

    def act(job: str) -> str:
        client.jobs.delete(job, reason=reason)
        return f"deleted {job}"

    chosen = choose(client, "delete", jobs, filters, yes=yes, dry_run=dry_run, ask_for_one=True)
    act_on_each(chosen, act)
