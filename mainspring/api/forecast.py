"""What is to come: how many jobs are expected in each second, from cadences and timers.

A million jobs are few cadences, so a forecast evaluates schedules and multiplies. The same cadence of all
shards is one line, and jobs with a jitter are spread evenly over it: which of them has which offset does
not matter to a count.

Expected, not promised: what is edited, paused or retried meanwhile is not known yet. A forecast that would
cost more than MOST_EVALUATIONS stops there and says that it is not complete.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import asyncpg

from mainspring.api.access import Caller
from mainspring.api.shapes import instant
from mainspring.registry.edge import connected
from mainspring.schedule import Cadence, DstPolicy, Gap, Kind, Repeat
from mainspring.schema.queries import query

LONGEST_SECONDS = 3600
MOST_KINDS = 20_000
MOST_EVALUATIONS = 100_000

_TICK = timedelta(microseconds=1)
_SECOND = timedelta(seconds=1)


async def forecast(caller: Caller, start: datetime, seconds: int) -> dict[str, Any]:
    """Two statements, and the evaluation in a thread, which others do not wait for."""
    end = start + timedelta(seconds=seconds)
    async with connected(caller.services.pool) as connection:
        kinds = await connection.fetch(query("forecast_cadences"), caller.tenant_id, end, MOST_KINDS)
        timers = await connection.fetch(query("forecast_timers"), caller.tenant_id, start, end)
    counts, is_complete = await asyncio.to_thread(count, kinds, start, end)
    counts.update({row["second"]: row["jobs"] for row in timers})
    return {
        "from": instant(start),
        "to": instant(end),
        "seconds": [{"at": instant(second), "jobs": counts[second]} for second in sorted(counts)],
        "is_complete": is_complete and len(kinds) < MOST_KINDS,
    }


def count(kinds: Sequence[asyncpg.Record], start: datetime, end: datetime) -> tuple[Counter[datetime], bool]:
    """Jobs by the second in which they are due; and whether everything was evaluated."""
    counts: Counter[datetime] = Counter()
    left = MOST_EVALUATIONS
    for row in kinds:
        jitter = timedelta(seconds=row["jitter_seconds"])
        moments = _cadence(row).between(start - jitter - _TICK, end - _TICK, max(1, left))
        left -= len(moments) + 1
        for moment in moments:
            if (row["starts_at"] is None or moment >= row["starts_at"]) and (
                row["ends_at"] is None or moment < row["ends_at"]
            ):
                _spread(counts, moment, row["jobs"], row["jitter_seconds"], start, end)
        if left <= 0:
            return counts, False
    return counts, True


def _spread(
    counts: Counter[datetime], moment: datetime, jobs: int, jitter: int, start: datetime, end: datetime
) -> None:
    """So many jobs evenly over the seconds of their jitter; what falls outside the range is not counted."""
    width = max(1, jitter)
    for offset in range(width):
        due = moment + offset * _SECOND
        share = jobs * (offset + 1) // width - jobs * offset // width
        if share and start <= due < end:
            counts[due] += share


def _cadence(row: asyncpg.Record) -> Cadence:
    dst = DstPolicy(Gap(row["dst_gap"]), Repeat(row["dst_repeat"]))
    return Cadence(Kind(row["kind"]), row["expression"], row["timezone"], dst, row["phase"])
