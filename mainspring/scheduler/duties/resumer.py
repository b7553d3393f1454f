"""The resumer: a job that was paused until an instant is resumed when it has come."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import asyncpg
import structlog

from mainspring.postgres import database_errors
from mainspring.registry import Registry
from mainspring.registry.audit import Actor
from mainspring.schema.errors import Conflict, NotFound
from mainspring.schema.ids import format_job_id
from mainspring.schema.queries import query

_AT_ONCE = 500
_SELF = Actor(name="scheduler", reason="its pause has ended")

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Resumed:
    """What one round did."""

    jobs: int


class Resumer:
    """Ends pauses that have an end."""

    pause = timedelta(seconds=1)

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record], shards: int) -> None:
        self._pool = pool
        self._registry = Registry(pool, shards=shards)

    async def run_once(self) -> Resumed:
        """Resume what is due, at most some hundred; one query when there is none."""
        with database_errors():
            rows = await self._pool.fetch(query("jobs_to_resume"), _AT_ONCE)
        for row in rows:
            try:
                await self._registry.resume(row["tenant_id"], row["id"], by=_SELF)
            except (Conflict, NotFound) as error:  # its owner was faster
                log.info("resume_overtaken", job_id=format_job_id(row["id"]), reason=str(error))
        return Resumed(len(rows))
