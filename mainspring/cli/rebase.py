"""`mainspring rebase`: make a restored database's change feed readable again."""

from __future__ import annotations

import asyncio
import json
import os

import click

from mainspring.postgres import connect
from mainspring.scheduler.rebase import Rebased, rebase
from mainspring.settings import PostgresSettings


@click.command("rebase")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(as_json: bool) -> None:  # noqa: FBT001  (click passes options by name)
    """Rewrite transaction ids from the future, after a dump was restored or another server took over.

    Every change carries the id of its transaction, and leaders read changes by it. In a restored database the
    ids of the old server may lie ahead of the new one's: schedulers refuse to lead until they are rewritten.
    Safe to run at any time, and to run again; every shard is then taken anew.
    """
    result = asyncio.run(_run(PostgresSettings.from_environment(os.environ)))
    if as_json:
        click.echo(json.dumps({"jobs": result.jobs, "timers": result.timers}))
    elif result.jobs or result.timers:
        click.echo(f"rewrote {result.jobs:,} jobs and {result.timers:,} timers; every term has ended")
    else:
        click.echo("nothing lies in the future; every term has ended")


async def _run(settings: PostgresSettings) -> Rebased:
    connection = await connect(settings, application="mainspring rebase")
    try:
        return await rebase(connection, lambda line: click.echo(line, err=True))
    finally:
        await connection.close()
