"""Locks held by a test: to stop a process at the statement that needs them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.acceptance.scheduler.cluster import Cluster

_WAITING = """
SELECT count(*) > 0 FROM pg_stat_activity
WHERE datname = current_database() AND wait_event_type = 'Lock' AND strpos(application_name, $1) > 0
"""


@asynccontextmanager
async def locked(cluster: Cluster, statement: str) -> AsyncIterator[None]:
    """Hold what this statement locks."""
    async with cluster.database.acquire() as connection, connection.transaction():
        await connection.execute(statement)
        yield


async def waits(cluster: Cluster, application: str = "") -> bool:
    """Whether a backend waits for a lock; of those whose name has this in it."""
    found: bool = await cluster.database.fetchval(_WAITING, application)
    return found
