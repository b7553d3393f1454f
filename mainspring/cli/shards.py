"""`mainspring shards`: who leads each shard, and how far it has fired."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

import asyncpg
import click

from mainspring.cli.output import Column, Format, Output, View, say, watchable, with_output
from mainspring.postgres import connect, database_errors
from mainspring.schema.cluster import verify_shards
from mainspring.schema.queries import query
from mainspring.settings import PostgresSettings

_SHARDS: View[Mapping[str, Any]] = View(
    (
        Column("shard", lambda row, _: row["shard"], right=True),
        Column("leader", lambda row, _: row["leader"]),
        Column("epoch", lambda row, _: str(row["epoch"]), right=True),
        Column("mark", lambda row, times: times.short(datetime.fromisoformat(row["mark"]))),
        Column("lag", lambda row, _: f"{row['lag_seconds']:.1f} s", right=True),
        Column("cadences", lambda row, _: row["cadences"], right=True),
        Column("timers", lambda row, _: row["timers"], right=True),
        Column("per minute", lambda row, _: row["published_last_minute"], right=True),
    ),
    lambda row: row["shard"],
)


@click.command("shards")
@click.option("--json", "as_json", is_flag=True, help="The same as -o json.")
@watchable
@with_output
def command(*, output: Output, as_json: bool) -> None:
    """Show every shard: its leader, epoch, mark, lag and load.

    The mark is the second up to which everything due has been published; the lag is the database's clock
    minus the mark. The load is what the shard holds and what it published in the last minute. Reads Postgres
    (MAINSPRING_POSTGRES_DSN) and needs no API.
    """
    rows = asyncio.run(_read(PostgresSettings.from_environment(os.environ)))
    shown = replace(output, format=Format.JSON) if as_json else output
    shown.show(_SHARDS, rows)
    if shown.format is Format.TABLE:
        say(_summary(rows))


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


def _summary(rows: list[dict[str, Any]]) -> str:
    leaders = {row["leader"] for row in rows if row["leader"]}
    behind = max(row["lag_seconds"] for row in rows)
    return f"{len(rows)} shards, last led by {len(leaders)} schedulers, the furthest behind by {behind:.1f} s"
