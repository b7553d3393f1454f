"""A load that goes on, from its registration to the last outcome: what `steady` and `failover` share.

Schedulers and workers run first, then the jobs are registered over HTTP; when all are armed the measured
window begins with a whole second. It ends with one, too: the marks pass it, the schedulers stop, the workers
finish, and what happened is counted against what had to happen in the window. What was due before it is not
judged.
"""

from __future__ import annotations

import asyncio
import time
from array import array
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.harness import books, topics
from bench.harness.beats import Group, expected, job_lines, until_fired, until_settled
from bench.harness.cluster import Cluster, progress, running_api, running_cluster
from bench.harness.interrupt import Interrupt
from bench.harness.noop import executions
from bench.harness.percentiles import summary
from bench.harness.processes import Watch, watching
from bench.harness.registration import make_tenants, register
from bench.harness.second import Fleet, Seen, counted
from bench.harness.topics import make_topics

_BEFORE_SECONDS = 2  # from all jobs armed to the window


@dataclass(slots=True)
class Stream:
    """A cluster under load, and the window in which it is measured."""

    cluster: Cluster
    fleet: Fleet
    watch: Watch
    groups: Sequence[Group]
    ids: array[int]
    directory: Path
    begin: int
    end: int = 0

    @property
    def seconds(self) -> int:
        return self.end - self.begin

    async def finish(self) -> Seen:
        """Close the window, let everything in it end, stop the processes, and ask everybody."""
        self.end = int(time.time())
        progress(f"the window of {self.seconds} s has ended; waiting for what was due in it")
        await until_fired(self.cluster, self.end)
        for scheduler in self.fleet.schedulers:
            await asyncio.to_thread(scheduler.stop)
        published = await asyncio.to_thread(topics.published, self.cluster)
        await until_settled(self.cluster, len(set(published.counts())))
        await self.fleet.stop()
        progress("counting")
        return Seen(
            float(self.begin),
            float(self.end),
            published,
            await books.read_runs(self.cluster),
            await asyncio.to_thread(executions, self.directory),
            self.watch.usage(self.begin, self.end),
        )

    def counts(self, seen: Seen) -> dict[str, int]:
        """What had to be, and what was."""
        keys = list(expected(self.groups, self.ids, self.begin, self.end))
        return {"expected": len(keys)} | counted(keys, seen)

    def within(self, second: float) -> bool:
        return self.begin <= second < self.end


@asynccontextmanager
async def streaming(
    groups: Sequence[Group],
    directory: Path,
    interrupt: Interrupt,
    *,
    schedulers: int,
    workers: int,
    concurrency: int,
    payload_bytes: int,
) -> AsyncIterator[Stream]:
    """Start everything, register, and wait until all is armed."""
    async with running_cluster() as cluster, watching() as watch:
        await asyncio.to_thread(make_topics, cluster)
        fleet = Fleet(cluster, directory, watch)
        try:
            for _ in range(schedulers):
                fleet.start_scheduler()
            for _ in range(workers):
                fleet.start_worker(concurrency)
            total = sum(group.jobs for group in groups)
            async with running_api(cluster) as api:
                [secret] = await make_tenants(cluster, 1)
                ids = await register(api, secret, job_lines(groups, payload_bytes), total)
            progress("arming")
            await interrupt.unless(fleet.armed(total))
            begin = int(time.time()) + _BEFORE_SECONDS
            yield Stream(cluster, fleet, watch, groups, ids, directory, begin)
        finally:
            await fleet.stop()


async def pass_time(
    stream: Stream, seconds: float, interrupt: Interrupt, tell: Callable[[float], Awaitable[str]]
) -> None:
    """Let the window be open for so long; every ten seconds a line says where it stands."""

    async def wait() -> None:
        while (left := stream.begin + seconds - time.time()) > 0:
            await asyncio.sleep(min(left, 10.0))
            progress(await tell(time.time() - stream.begin))

    await interrupt.unless(wait())


def lateness(stream: Stream, seen: Seen) -> dict[str, dict[str, Any]]:
    """Percentiles of the whole window, of publication, start and durable outcome."""
    moments = by_kind(stream, seen)
    return {
        f"{name}_lateness_ms": summary(sorted(late for _, late in points)) for name, points in moments.items()
    }


def by_kind(stream: Stream, seen: Seen) -> dict[str, list[tuple[float, float]]]:
    """Of each run in the window the second in which it was due, and by how many milliseconds it was late."""
    published = zip(seen.published.seconds, seen.published.appended, strict=True)
    started = zip(seen.runs.scheduled, seen.runs.started, strict=True)
    durable = zip(seen.runs.scheduled, seen.runs.durable, strict=True)
    return {
        "publish": [(due, (at - due) * 1000) for due, at in published if stream.within(due)],
        "start": [(due / 1e6, at * 1000 - due / 1000) for due, at in started if stream.within(due / 1e6)],
        "durable": [(due / 1e6, at * 1000 - due / 1000) for due, at in durable if stream.within(due / 1e6)],
    }
