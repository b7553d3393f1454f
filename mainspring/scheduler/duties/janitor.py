"""The janitor: the days ahead exist before anybody needs them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta
from typing import cast

import asyncpg

from mainspring.postgres import database_errors
from mainspring.schema.partitions import days_ahead, ensure_days


@dataclass(frozen=True, slots=True)
class Swept:
    """What one round did."""

    days_made: tuple[date, ...]


class Janitor:
    """Keeps house in Postgres."""

    pause = timedelta(minutes=10)

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record]) -> None:
        self._pool = pool

    async def run_once(self) -> Swept:
        """Make the days that are missing: two queries when none is."""
        with database_errors():
            async with self._pool.acquire() as pooled:
                connection = cast("asyncpg.Connection[asyncpg.Record]", pooled)
                return Swept(tuple(await ensure_days(connection, await days_ahead(connection))))
