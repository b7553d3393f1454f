"""What Postgres says about the runs: when each started, and when its outcome was durable.

A claim's `finished_at` is written by the transaction that makes the last of its outcomes durable, so for all
others of that claim it is late rather than early. When the very last one is durable is seen from outside, by
asking twenty times a second.
"""

from __future__ import annotations

import asyncio
import time
from array import array
from dataclasses import dataclass, field
from typing import NamedTuple

import asyncpg

from bench.harness.cluster import Cluster, progress
from bench.harness.keys import run_key
from mainspring.schema.states import Outcome

PATIENCE_SECONDS = 60.0
"""How long nothing may become durable before the rest counts as lost."""

_LOOK_SECONDS = 0.05
_ROWS = 20_000

_DURABLE = "SELECT coalesce(sum(octet_length(outcomes)), 0) FROM claims WHERE finished_at IS NOT NULL"
_CLAIMS = """
SELECT id, extract(epoch FROM claimed_at)::float8 AS claimed,
       extract(epoch FROM finished_at)::float8 AS finished, started_ms, outcomes
FROM claims
"""
_RUNS = """
SELECT job_id, (extract(epoch FROM scheduled_at) * 1000000)::bigint AS scheduled, claim_id, position FROM runs
"""


class _Claim(NamedTuple):
    claimed: float
    finished: float | None
    started_ms: list[int | None]
    outcomes: bytes


@dataclass(slots=True)
class Runs:
    """Every run that succeeded, a column each; instants in seconds since 1970."""

    job_ids: array[int] = field(default_factory=lambda: array("q"))
    scheduled: array[int] = field(default_factory=lambda: array("q"))
    """Microseconds since 1970."""
    started: array[float] = field(default_factory=lambda: array("d"))
    durable: array[float] = field(default_factory=lambda: array("d"))

    def __len__(self) -> int:
        return len(self.job_ids)

    def keys(self) -> set[int]:
        return set(map(run_key, self.job_ids, self.scheduled))

    def start_lateness_ms(self) -> list[float]:
        """From due to started, in order of size."""
        return self._lateness(self.started)

    def durable_lateness_ms(self) -> list[float]:
        """From due to durable, in order of size."""
        return self._lateness(self.durable)

    def _lateness(self, moments: array[float]) -> list[float]:
        return sorted((at - due / 1e6) * 1000 for at, due in zip(moments, self.scheduled, strict=True))


async def read_runs(cluster: Cluster) -> Runs:
    """All there are now; the database's clock is that of all processes here, because the machine is."""
    connection = await asyncpg.connect(cluster.settings.postgres.dsn)
    try:
        claims = {row["id"]: _Claim(*tuple(row)[1:]) for row in await connection.fetch(_CLAIMS)}
        runs = Runs()
        async with connection.transaction(readonly=True):
            cursor = await connection.cursor(_RUNS)
            while rows := await cursor.fetch(_ROWS):
                for row in rows:
                    _add(runs, row, claims[row["claim_id"]])
        return runs
    finally:
        await connection.close()


def _add(runs: Runs, row: asyncpg.Record, claim: _Claim) -> None:
    position = row["position"]
    started = claim.started_ms[position] if claim.started_ms else None
    succeeded = position < len(claim.outcomes) and claim.outcomes[position] == Outcome.SUCCEEDED
    if succeeded and started is not None and claim.finished is not None:
        runs.job_ids.append(row["job_id"])
        runs.scheduled.append(row["scheduled"])
        runs.started.append(claim.claimed + started / 1000)
        runs.durable.append(claim.finished)


async def until_durable(cluster: Cluster, outcomes: int, *, since: float = 0.0) -> float | None:
    """When Postgres first shows so many outcomes; None if nothing more becomes durable.

    Patience is counted from `since` on, in seconds since 1970: before it nothing is expected.
    """
    connection = await asyncpg.connect(cluster.settings.postgres.dsn)
    seen, moved = 0, max(time.time(), since)
    try:
        while True:
            found = await connection.fetchval(_DURABLE)
            if found >= outcomes:
                return time.time()
            if found > seen:
                seen, moved = found, time.time()
            elif time.time() - moved > PATIENCE_SECONDS:
                progress(f"nothing more becomes durable: {found:,} of {outcomes:,}")
                return None
            await asyncio.sleep(_LOOK_SECONDS)
    finally:
        await connection.close()
