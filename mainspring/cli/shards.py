"""`mainspring shards`: who leads each shard, and how far it has fired."""

from __future__ import annotations

import asyncio
import json
import os
from datetime import datetime
from typing import Any

import asyncpg
import click

from mainspring.postgres import connect, database_errors
from mainspring.schema.cluster import verify_shards
from mainspring.schema.queries import query
from mainspring.settings import PostgresSettings


@click.command("shards")
@click.option("--json", "as_json", is_flag=True, help="Print an array of objects instead of a table.")
def command(as_json: bool) -> None:  # noqa: FBT001  (click passes options by name)
    """Show every shard: its leader, epoch, mark, lag and load.

    The mark is the second up to which everything due has been published; the lag is the database's clock
    minus the mark. The load is what the shard holds and what it published in the last minute.
    """
    rows = asyncio.run(_read(PostgresSettings.from_environment(os.environ)))
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    for line in _table(rows):
        click.echo(line)
    click.echo(_summary(rows), err=True)


async def _read(settings: PostgresSettings) -> list[dict[str, Any]]:
    connection = await connect(settings, application="mainspring shards")
    try:
        with database_errors():
            await verify_shards(connection, None)
            return [_shard(row) for row in await connection.fetch(query("list_shards"))]
    finally:
        await connection.close()


def _shard(row: asyncpg.Record) -> dict[str, Any]:
    lag = (row["now"] - row["fired_through"]).total_seconds()
    return {
        "shard": row["shard"],
        "leader": row["leader"],
        "epoch": row["epoch"],
        "mark": _instant(row["fired_through"]),
        "lag_seconds": round(max(0.0, lag), 1),
        "gap_to": None if row["gap_to"] is None else _instant(row["gap_to"]),
        "cadences": row["cadences"],
        "timers": row["timers"],
        "published_last_minute": int(row["published"]),
    }


def _instant(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def _table(rows: list[dict[str, Any]]) -> list[str]:
    width = max([6, *(len(row["leader"] or "-") for row in rows)])
    head = f"{'shard':>5}  {'leader':<{width}}  {'epoch':>6}  {'mark':<20}  {'lag':>8}"
    lines = [f"{head}  {'cadences':>8}  {'timers':>8}  {'per minute':>10}"]
    return lines + [
        f"{row['shard']:>5}  {row['leader'] or '-':<{width}}  {row['epoch']:>6}  {row['mark']:<20}"
        f"  {row['lag_seconds']:>6.1f} s  {row['cadences']:>8,}  {row['timers']:>8,}"
        f"  {row['published_last_minute']:>10,}"
        for row in rows
    ]


def _summary(rows: list[dict[str, Any]]) -> str:
    leaders = {row["leader"] for row in rows if row["leader"]}
    behind = max(row["lag_seconds"] for row in rows)
    return f"{len(rows)} shards, last led by {len(leaders)} schedulers, the furthest behind by {behind:.1f} s"
