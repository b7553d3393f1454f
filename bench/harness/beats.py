"""Load that goes on: jobs that are due again and again, so that a known number is due in each second."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import asyncpg

from bench.harness.books import PATIENCE_SECONDS
from bench.harness.cluster import Cluster, progress
from bench.harness.keys import run_key
from bench.harness.registration import line

_LOOK_SECONDS = 0.5
_STANDING = "SELECT extract(epoch FROM min(fired_through))::float8 FROM shards"
_UNFINISHED = """
SELECT (SELECT count(*) FROM runs) AS runs,
       (SELECT count(*) FROM claims WHERE finished_at IS NULL AND reaped_at IS NULL) AS open
"""


@dataclass(frozen=True, slots=True)
class Beat:
    """A schedule that is due whenever the second, divided by the period, leaves the phase."""

    schedule: str
    period: int
    phase: int
    fields: dict[str, Any] = field(default_factory=dict)

    def due(self, begin: int, end: int) -> range:
        """Its seconds from `begin` to before `end`."""
        return range(begin + (self.phase - begin) % self.period, end, self.period)


class Group(NamedTuple):
    """So many jobs of one beat."""

    beat: Beat
    jobs: int


def each_second(jobs: int, **fields: Any) -> list[Group]:
    """Jobs that are all due in every second."""
    return [Group(Beat("* * * * * *", 1, 0, fields), jobs)]


def spread(rate: int) -> list[Group]:
    """So many runs due in each second, of jobs of every second, of every ten and of every minute.

    71 schedules, and with them as many cadences in every shard.
    """
    often, now_and_then = rate // 10, rate * 3 // 10
    groups = [Group(Beat("* * * * * *", 1, 0), often)]
    groups += [
        Group(Beat("every 10s", 10, phase, {"phase_seconds": phase}), now_and_then) for phase in range(10)
    ]
    rest = rate - often - now_and_then
    groups += [Group(Beat(f"{phase} * * * * *", 60, phase), rest) for phase in range(60)]
    return [group for group in groups if group.jobs]


def job_lines(groups: Iterable[Group], payload_bytes: int) -> Iterator[bytes]:
    """Whatever is late runs all the same, so that every occurrence can be asked for."""
    for beat, jobs in groups:
        fields = {"missed_window": "RUN_ALL", "max_missed": 1000} | beat.fields
        yield from [line(beat.schedule, payload_bytes, **fields)] * jobs


def expected(groups: Iterable[Group], ids: Sequence[int], begin: int, end: int) -> Iterator[int]:
    """The runs that had to be, of jobs registered in the order of `job_lines`."""
    place = 0
    for beat, jobs in groups:
        seconds = beat.due(begin, end)
        for job_id in ids[place : place + jobs]:
            for second in seconds:
                yield run_key(job_id, second * 1_000_000)
        place += jobs


async def until_fired(cluster: Cluster, second: int) -> None:
    """Until every mark has passed this second; or until none moves any more."""
    connection = await asyncpg.connect(cluster.settings.postgres.dsn)
    stands, moved = 0.0, time.monotonic()
    try:
        while (found := await connection.fetchval(_STANDING)) < second:
            if found > stands:
                stands, moved = found, time.monotonic()
            elif time.monotonic() - moved > PATIENCE_SECONDS:
                progress(f"the marks stand {second - found:.0f} s before the end")
                return
            await asyncio.sleep(_LOOK_SECONDS)
    finally:
        await connection.close()


async def until_settled(cluster: Cluster, runs: int) -> None:
    """Until so many runs are there and none is under way; or until nothing moves any more."""
    connection = await asyncpg.connect(cluster.settings.postgres.dsn)
    seen, moved = (-1, -1), time.monotonic()
    try:
        while True:
            row = await connection.fetchrow(_UNFINISHED)
            assert row is not None
            found = (row["runs"], row["open"])
            if row["runs"] >= runs and not row["open"]:
                return
            if found != seen:
                seen, moved = found, time.monotonic()
            elif time.monotonic() - moved > PATIENCE_SECONDS:
                progress(f"{row['runs']:,} of {runs:,} runs, {row['open']} claims open, and nothing moves")
                return
            await asyncio.sleep(_LOOK_SECONDS)
    finally:
        await connection.close()
