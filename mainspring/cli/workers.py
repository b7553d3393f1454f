"""`mainspring workers`: who executes."""

from __future__ import annotations

import click

from mainspring.cli.output import Column, Output, View, watchable, with_output
from mainspring.cli.remote import with_client
from mainspring.client import Client
from mainspring.client.models import Worker

_WORKERS: View[Worker] = View(
    (
        Column("worker", lambda worker, _: worker.worker),
        Column("pool", lambda worker, _: worker.pool),
        Column("status", lambda worker, _: worker.status),
        Column("running", lambda worker, _: worker.running, right=True),
        Column("of", lambda worker, _: worker.concurrency, right=True),
        Column("lanes", lambda worker, _: worker.lanes),
        Column("heartbeat", lambda worker, times: times.short(worker.heartbeat_at)),
        Column("handlers", lambda worker, _: worker.handlers),
    ),
    lambda worker: worker.worker,
)


@click.command("workers")
@click.option("--pool", help="Of this pool.")
@click.option("--status", type=click.Choice(["alive", "stopped", "dead"]), help="In this status.")
@watchable
@with_output
@with_client
def command(*, client: Client, output: Output, pool: str | None, status: str | None) -> None:
    """List workers: what they take, what they run, when they were last heard of."""
    found = (
        worker
        for worker in client.workers()
        if pool in (None, worker.pool) and status in (None, worker.status)
    )
    output.show(_WORKERS, found)
