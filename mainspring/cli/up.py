"""`mainspring up`: the local stack with its schema brought forward, in one command."""

from __future__ import annotations

import os
from pathlib import Path

import click

from mainspring.cli.local import keep_up, say
from mainspring.local import LocalStack
from mainspring.postgres import connect
from mainspring.schema.migrate import MigrationResult, migrate
from mainspring.schema.sharding import MAXIMUM_SHARDS
from mainspring.settings import PREFIX, Environment, PostgresSettings


@click.command("up")
@click.option(
    "--directory",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(".mainspring"),
    show_default=True,
    help="Where the data stays.",
)
@click.option("--ephemeral", is_flag=True, help="Throw the data away at the end.")
@click.option(
    "--shards",
    type=click.IntRange(1, MAXIMUM_SHARDS),
    help=f"Number of shards of a new cluster, fixed from then on; default: {PREFIX}SHARDS, or 64.",
)
def command(directory: Path, shards: int | None, *, ephemeral: bool) -> None:
    """Start a real Postgres, Kafka and etcd and migrate them; Ctrl-C stops everything.

    A part whose variable is set (MAINSPRING_POSTGRES_DSN, MAINSPRING_KAFKA, MAINSPRING_ETCD) is used instead
    of being started.
    """
    wanted = Environment(os.environ).integer("SHARDS", 1, MAXIMUM_SHARDS) if shards is None else shards
    place = None if ephemeral else directory

    async def prepare(stack: LocalStack) -> None:
        say(_summary(await _migrate(stack, wanted)))

    keep_up(LocalStack(place, progress=say), place, prepare)


async def _migrate(stack: LocalStack, shards: int | None) -> MigrationResult:
    settings = PostgresSettings.from_environment(os.environ | stack.environment())
    connection = await connect(settings, application="mainspring up")
    try:
        return await migrate(connection, shards=shards)
    finally:
        await connection.close()


def _summary(result: MigrationResult) -> str:
    did = f"applied {len(result.applied)} migrations, " if result.applied else ""
    return f"schema: {did}at {result.version:04} with {result.shards} shards"
