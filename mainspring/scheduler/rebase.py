"""Rebase: after a restore or a failover, `changed` values that lie in the server's future are written anew.

A dump carries the transaction ids of the server it was made on. On a server whose ids are lower, such
rows look like changes that have not happened yet: the feed would show them again and again, or, after the
ids have caught up, hide real changes behind them. Rewriting gives each of them the id of the transaction
that rewrites it. Epochs are raised, so that no leader goes on with a cursor from the other world.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import asyncpg

from mainspring.postgres import database_errors
from mainspring.schema.cluster import verify_shards
from mainspring.schema.queries import query

_BATCH = 10_000


@dataclass(frozen=True, slots=True)
class Rebased:
    """How many rows were rewritten."""

    jobs: int
    timers: int


async def rebase(connection: asyncpg.Connection[asyncpg.Record], progress: Callable[[str], None]) -> Rebased:
    """Rewrite what lies in the future, some thousand rows a transaction, then end every term."""
    with database_errors():
        await verify_shards(connection, None)
        jobs = await _rewrite(connection, query("rebase_jobs"), "jobs", progress)
        timers = await _rewrite(connection, query("rebase_timers"), "timers", progress)
        await connection.execute(query("rebase_shards"))
    return Rebased(jobs, timers)


async def _rewrite(
    connection: asyncpg.Connection[asyncpg.Record], text: str, what: str, progress: Callable[[str], None]
) -> int:
    total = 0
    while True:
        # Each batch commits by itself: only then does the next snapshot see its own id as past.
        answer = await connection.execute(text, _BATCH)
        count = int(answer.split()[-1])
        if not count:
            return total
        total += count
        progress(f"{what}: {total:,} rewritten")
