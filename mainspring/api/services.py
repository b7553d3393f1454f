"""What every request of one process works with: made once, by the composition root."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import asyncpg

from mainspring.api.limits import RateLimits
from mainspring.api.metrics import Metrics
from mainspring.api.payloads import PayloadSchemas
from mainspring.api.settings import ApiSettings
from mainspring.clock import Clock, SystemClock
from mainspring.registry import DeadLetters, Registry, Runs
from mainspring.registry.keys import Keys

Pool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"


@dataclass(frozen=True, slots=True)
class Services:
    """The registry, and what is the API's own beside it."""

    settings: ApiSettings
    pool: Pool
    registry: Registry
    runs: Runs
    letters: DeadLetters
    keys: Keys
    schemas: PayloadSchemas
    limits: RateLimits
    metrics: Metrics
    clock: Clock

    @classmethod
    def build(cls, settings: ApiSettings, pool: Pool, shards: int, clock: Clock | None = None) -> Services:
        clock = clock or SystemClock()
        return cls(
            settings=settings,
            pool=pool,
            registry=Registry(pool, shards=shards),
            runs=Runs(pool, shards),
            letters=DeadLetters(pool, shards),
            keys=Keys(pool),
            schemas=PayloadSchemas(pool),
            limits=RateLimits(clock),
            metrics=Metrics(),
            clock=clock,
        )
