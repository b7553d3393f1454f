"""`mainspring pools`: groups of workers, and what they have to do."""

from __future__ import annotations

import click

from mainspring.cli.output import Column, Output, View, watchable, with_output
from mainspring.cli.remote import with_client
from mainspring.client import Client
from mainspring.client.models import Pool

_POOLS: View[Pool] = View(
    (
        Column("pool", lambda pool, _: pool.pool),
        Column("jobs", lambda pool, _: pool.jobs, right=True),
        Column("workers", lambda pool, _: pool.workers, right=True),
        Column("dead letters", lambda pool, _: pool.dead_letters, right=True),
    ),
    lambda pool: pool.pool,
)


@click.command("pools")
@watchable
@with_output
@with_client
def command(*, client: Client, output: Output) -> None:
    """List the pools that have jobs or workers."""
    output.show(_POOLS, client.pools())
