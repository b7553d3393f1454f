"""Jobs for a scenario, registered through the registry as the API does."""

from __future__ import annotations

from datetime import datetime

from bench.harness.cluster import SHARDS, Cluster, progress
from mainspring.postgres import make_pool
from mainspring.registry import JobRequest, Registry

TENANT = 1
BATCH = 20_000
HANDLER = "noop"


def once_at(due: datetime) -> str:
    """A cron expression, with seconds, that fires at this instant and then not for a year."""
    return f"{due.second} {due.minute} {due.hour} {due.day} {due.month} *"


def same_jobs(count: int, schedule: str, payload_bytes: int, pool: str = "default") -> list[JobRequest]:
    """So many jobs of one schedule, without names: one request stands for all, since it is never changed."""
    request = JobRequest.from_mapping(
        {"handler": HANDLER, "schedule": schedule, "pool": pool, "payload": "x" * (payload_bytes - 2)}
    )
    return [request] * count


async def register(cluster: Cluster, requests: list[JobRequest]) -> list[int]:
    """Register them; their ids, the list against which what happened is counted."""
    pool = make_pool(cluster.settings.postgres, application="bench", size=2, command_seconds=120)
    ids: list[int] = []
    async with pool:
        registry = Registry(pool, shards=SHARDS)
        for start in range(0, len(requests), BATCH):
            ids += await registry.create_many(TENANT, requests[start : start + BATCH])
            progress(f"registered {len(ids):,} of {len(requests):,}")
    return ids
