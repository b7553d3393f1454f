"""What the installation does: shards, workers, pools, and what is to come.

Shards and workers serve every tenant, so every tenant may see them; jobs are counted for the caller's
alone.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

import asyncpg
from fastapi import APIRouter, Query
from starlette.responses import Response

from mainspring.api import documents, paging, reading
from mainspring.api.access import Viewer
from mainspring.api.forecast import LONGEST_SECONDS, forecast
from mainspring.api.shapes import Json, instant
from mainspring.registry.edge import connected
from mainspring.schema.queries import query

router = APIRouter(tags=["cluster"])


@router.get(
    "/shards", summary="Every shard, its leader and mark", responses=documents.responses(200, "Shards")
)
async def list_shards(caller: Viewer) -> Response:
    async with connected(caller.services.pool) as connection:
        rows = await connection.fetch(query("list_shards"))
    return Json(paging.page([_shard(row) for row in rows], None))


@router.get("/workers", summary="Workers", responses=documents.responses(200, "Workers"))
async def list_workers(
    caller: Viewer, limit: paging.Limit = paging.DEFAULT_PAGE, cursor: paging.Cursor = None
) -> Response:
    after = "" if cursor is None else paging.decode("workers", cursor)
    async with connected(caller.services.pool) as connection:
        rows = await connection.fetch(query("list_workers"), after, limit + 1)
    found, last = paging.cut(rows, limit)
    following = None if last is None else paging.encode("workers", last["id"])
    return Json(paging.page([_worker(row) for row in found], following))


@router.get("/pools", summary="Pools that have jobs or workers", responses=documents.responses(200, "Pools"))
async def list_pools(caller: Viewer) -> Response:
    async with connected(caller.services.pool) as connection:
        rows = await connection.fetch(query("list_pools"), caller.tenant_id)
    items = [
        {"pool": row["pool"], "jobs": row["jobs"], "workers": row["workers"], "dead_letters": row["letters"]}
        for row in rows
    ]
    return Json(paging.page(items, None))


@router.get(
    "/forecast",
    summary="How many of the tenant's jobs are expected, second by second",
    responses=documents.responses(200, "Forecast"),
)
async def forecast_jobs(
    caller: Viewer,
    start: Annotated[str | None, Query(alias="from", description="An ISO-8601 instant; default now.")] = None,
    seconds: Annotated[int, Query(ge=1, le=LONGEST_SECONDS)] = 60,
) -> Response:
    begin = datetime.now(UTC) if start is None else reading.read_instant("from", start)
    return Json(await forecast(caller, begin.replace(microsecond=0), seconds))


def _shard(row: asyncpg.Record) -> dict[str, Any]:
    lag = (row["now"] - row["fired_through"]).total_seconds()
    return {
        "shard": row["shard"],
        "leader": row["leader"],
        "epoch": row["epoch"],
        "mark": instant(row["fired_through"]),
        "lag_seconds": round(max(0.0, lag), 1),
        "gap_to": instant(row["gap_to"]),
        "cadences": row["cadences"],
        "timers": row["timers"],
        "published_last_minute": int(row["published"]),
    }


def _worker(row: asyncpg.Record) -> dict[str, Any]:
    status = "dead" if row["dead_at"] else "stopped" if row["stopped_at"] else "alive"
    return {
        "worker": row["id"],
        "pool": row["pool"],
        "lanes": list(row["lanes"]),
        "handlers": list(row["handlers"]),
        "concurrency": row["concurrency"],
        "status": status,
        "started_at": instant(row["started_at"]),
        "heartbeat_at": instant(row["heartbeat_at"]),
        "running": row["running"],
    }
