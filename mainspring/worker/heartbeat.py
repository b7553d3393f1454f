"""The heartbeat: a number in `workers` that counts up while this worker lives.

Dead is what the reaper says: it has seen the same number for 15 s of working Postgres. A worker that
cannot count up must therefore assume the worst in time: after a few seconds it starts nothing more, and
before the 15 s are over it stops what is running, because somebody else may be about to begin the next
attempts.

    renewed            everything goes on
    5 s without        nothing is claimed, nothing is started
    11 s without       what is running is asked to stop, which it does within seconds
    the row is dead    whatever we hold is somebody else's: this life is over
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from enum import StrEnum
from typing import TypeAlias

import asyncpg
import structlog

from mainspring.clock import Clock
from mainspring.postgres import database_errors
from mainspring.schema.errors import DatabaseUnavailable
from mainspring.schema.queries import query
from mainspring.worker.claiming import DeclaredDead

Pool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"

BEAT_SECONDS = 2.0
DOUBT_SECONDS = 5.0
DESPAIR_SECONDS = 11.0

log = structlog.get_logger()


class Fitness(StrEnum):
    """What a worker may do, by the age of its last heartbeat."""

    FIT = "fit"
    DOUBTFUL = "doubtful"
    UNFIT = "unfit"


class Heartbeat:
    """One worker's row."""

    def __init__(self, pool: Pool, worker_id: str, clock: Clock) -> None:
        self._pool = pool
        self._worker_id = worker_id
        self._clock = clock
        self._renewed = clock.monotonic()

    async def register(
        self, pool: str, lanes: Sequence[str], handlers: Sequence[str], concurrency: int
    ) -> None:
        """Write the row of a new life: one statement."""
        sent = self._clock.monotonic()
        with database_errors():
            await self._pool.execute(
                query("register_worker"), self._worker_id, pool, lanes, handlers, concurrency
            )
        self._renewed = sent

    async def beat(self) -> None:
        """Count up, or raise DeclaredDead: one statement. Its age counts from when it was sent."""
        sent = self._clock.monotonic()
        with database_errors():
            renewed = await self._pool.fetchval(query("renew_heartbeat"), self._worker_id)
        if renewed is None:
            raise DeclaredDead(self._worker_id)
        self._renewed = sent

    async def run(self, stop: asyncio.Event) -> None:
        """Beat until told to stop."""
        while not stop.is_set():
            try:
                await self.beat()
            except DatabaseUnavailable as error:
                log.warning("heartbeat_failed", reason=str(error), age=round(self.age, 1))
            try:
                async with asyncio.timeout(BEAT_SECONDS):
                    await stop.wait()
            except TimeoutError:
                continue

    async def stop(self) -> None:
        """This life ends in order."""
        with database_errors():
            await self._pool.execute(query("stop_worker"), self._worker_id)

    @property
    def age(self) -> float:
        return self._clock.monotonic() - self._renewed

    @property
    def fitness(self) -> Fitness:
        if self.age >= DESPAIR_SECONDS:
            return Fitness.UNFIT
        return Fitness.DOUBTFUL if self.age >= DOUBT_SECONDS else Fitness.FIT
