"""`mainspring migrate`: create or bring forward the schema, the shards and the days ahead."""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

import click

from mainspring.postgres import connect
from mainspring.schema.migrate import migrate, plan
from mainspring.schema.sharding import MAXIMUM_SHARDS
from mainspring.settings import PREFIX, Environment, PostgresSettings

_DSN = f"{PREFIX}POSTGRES_DSN"


@click.command(name="migrate")
@click.option("--dsn", help=f"Where Postgres is; default: {_DSN}.")
@click.option(
    "--shards",
    type=click.IntRange(1, MAXIMUM_SHARDS),
    help="Number of shards of a new cluster, fixed from then on; default: MAINSPRING_SHARDS, or 64.",
)
@click.option("--dry-run", is_flag=True, help="Say what would be applied, or why not; change nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    dsn: str | None,
    shards: int | None,
    dry_run: bool,  # noqa: FBT001  (click passes options by name)
    as_json: bool,  # noqa: FBT001
) -> None:
    """Bring the database's schema forward. Safe to repeat, and for several to run at once."""
    settings, wanted = _read_settings(dsn, shards)
    report = asyncio.run(_preview(settings, wanted) if dry_run else _migrate(settings, wanted))
    if as_json:
        click.echo(json.dumps(report))
    else:
        click.echo("\n".join(_describe_plan(report) if dry_run else _describe(report)))


def _read_settings(dsn: str | None, shards: int | None) -> tuple[PostgresSettings, int | None]:
    variables = dict(os.environ)
    if dsn is not None:
        variables.pop(f"{_DSN}_FILE", None)
        variables[_DSN] = dsn
    wanted = Environment(variables).integer("SHARDS", 1, MAXIMUM_SHARDS) if shards is None else shards
    return PostgresSettings.from_environment(variables), wanted


async def _preview(settings: PostgresSettings, shards: int | None) -> dict[str, Any]:
    connection = await connect(settings, application="mainspring migrate")
    try:
        return {"pending": [migration.name for migration in await plan(connection, shards=shards)]}
    finally:
        await connection.close()


async def _migrate(settings: PostgresSettings, shards: int | None) -> dict[str, Any]:
    connection = await connect(settings, application="mainspring migrate")
    try:
        result = await migrate(connection, shards=shards)
    finally:
        await connection.close()
    return {
        "applied": list(result.applied),
        "version": result.version,
        "shards": result.shards,
        "created_cluster": result.created_cluster,
        "created_days": [day.isoformat() for day in result.created_days],
    }


def _describe_plan(report: dict[str, Any]) -> list[str]:
    return [f"would apply {name}" for name in report["pending"]] or ["nothing to apply"]


def _describe(report: dict[str, Any]) -> list[str]:
    lines = [f"applied {name}" for name in report["applied"]]
    if report["created_cluster"]:
        lines.append(f"created a cluster of {report['shards']} shards")
    if days := report["created_days"]:
        many = f"{len(days)} days of run tables, {days[0]} to {days[-1]}"
        lines.append(f"made {many if len(days) > 1 else f'a day of run tables, {days[0]}'}")
    if not lines:
        lines.append("nothing to do")
    return [*lines, f"the schema is at {report['version']:04}, with {report['shards']} shards"]
