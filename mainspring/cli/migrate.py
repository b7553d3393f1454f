"""`mainspring migrate`: create or bring forward the schema, the shards and the days ahead."""

from __future__ import annotations

import asyncio
import json
import os

import asyncpg
import click

from mainspring.postgres import connect
from mainspring.schema.cluster import verify_shards
from mainspring.schema.errors import MigrationRefused
from mainspring.schema.migrate import MigrationResult, migrate, plan
from mainspring.settings import PREFIX, Environment, PostgresSettings


@click.command(name="migrate")
@click.option("--dsn", help="Where Postgres is; default: MAINSPRING_POSTGRES_DSN.")
@click.option(
    "--shards",
    type=int,
    help="Number of shards of a new cluster; default: MAINSPRING_SHARDS, or 64. Fixed once created.",
)
@click.option("--dry-run", is_flag=True, help="Say what would be applied; change nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(dsn: str | None, shards: int | None, *, dry_run: bool, as_json: bool) -> None:
    """Bring the database's schema forward; safe to run at any time and by several at once."""
    variables = dict(os.environ)
    if dsn:
        variables[f"{PREFIX}POSTGRES_DSN"] = dsn
        variables.pop(f"{PREFIX}POSTGRES_DSN_FILE", None)
    settings = PostgresSettings.from_environment(variables)
    wanted = Environment(variables).integer("SHARDS", 1, 4096) if shards is None else shards
    work = _preview(settings, wanted) if dry_run else _migrate(settings, wanted)
    report = asyncio.run(work)
    if as_json:
        click.echo(json.dumps(report))
    else:
        _tell(report, dry_run=dry_run)
