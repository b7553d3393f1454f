"""One hot second: jobs that are armed, due at one instant, published, executed, their outcomes durable.

`execute` and `midnight` differ in how the jobs come to be there. What follows is this, and it is counted
against the list of job ids made beforehand: a job is *lost* if no run of it succeeded, or no worker says that
it executed it; *executed twice* is what the workers say, *published twice* what lies in the topics.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from bench.harness import books, topics
from bench.harness.books import Runs
from bench.harness.cluster import Child, Cluster, SchedulerProcess, WorkerProcess, progress
from bench.harness.interrupt import EXIT_CODE, Interrupt
from bench.harness.keys import run_key
from bench.harness.noop import DIRECTORY_VARIABLE, executions
from bench.harness.percentiles import in_words, summary
from bench.harness.processes import Usage, Watch
from bench.harness.topics import Published

ARMED = "mainspring_scheduler_shard_jobs_armed"
_SETTLE_SECONDS = 1.0  # what is measured begins so long before due


@dataclass(frozen=True, slots=True)
class Seen:
    """What the broker, Postgres, the handlers and the kernel say afterwards."""

    due: float
    durable_at: float | None
    published: Published
    runs: Runs
    executed: Counter[int]
    usage: list[Usage] = field(default_factory=list)


class Fleet:
    """Schedulers and workers of a scenario, each by name."""

    def __init__(self, cluster: Cluster, directory: Path, watch: Watch) -> None:
        self._cluster = cluster
        self._directory = directory
        self._watch = watch
        self.schedulers: list[SchedulerProcess] = []
        self.workers: list[WorkerProcess] = []

    def start_scheduler(self) -> SchedulerProcess:
        scheduler = SchedulerProcess(self._cluster)
        self.schedulers.append(scheduler)
        self._watch.add(f"scheduler {len(self.schedulers)}", scheduler.pid)
        return scheduler

    def start_worker(self, concurrency: int) -> WorkerProcess:
        worker = WorkerProcess(
            self._cluster,
            *("--app", "bench.harness.noop:app", "--concurrency", str(concurrency)),
            variables={DIRECTORY_VARIABLE: str(self._directory)},
        )
        self.workers.append(worker)
        self._watch.add(f"worker {len(self.workers)}", worker.pid)
        return worker

    async def armed(self, jobs: int) -> None:
        """Until all schedulers together hold so many jobs ready."""
        while True:
            counts = [(await scheduler.metrics()).get(ARMED, 0.0) for scheduler in self.alive]
            if sum(counts) >= jobs:
                return
            for scheduler in self.alive:
                scheduler.refuse_the_dead()
            await asyncio.sleep(0.2)

    @property
    def alive(self) -> list[SchedulerProcess]:
        return [scheduler for scheduler in self.schedulers if not scheduler.ended]

    async def stop(self) -> None:
        """Schedulers first, so that nothing more is published while the workers finish."""
        for child in (*self.schedulers, *self.workers):
            await asyncio.to_thread(_stop, child)


def _stop(child: Child) -> None:
    try:
        child.stop()
    except OSError as error:
        progress(f"a process could not be stopped: {error}")


async def fire_and_execute(
    cluster: Cluster, fleet: Fleet, jobs: int, due: datetime, interrupt: Interrupt
) -> float | None:
    """Wait until the jobs are armed, due, and every outcome is durable: when that was."""
    found: list[float | None] = []

    async def wait() -> None:
        await fleet.armed(jobs)
        refuse_if_late(due)
        progress(f"armed; due in {(due - datetime.now(UTC)).total_seconds():.0f} s")
        found.append(await books.until_durable(cluster, jobs, since=due.timestamp()))

    await interrupt.unless(wait())
    return found[0] if found else None


async def look(
    cluster: Cluster, due: datetime, durable_at: float | None, directory: Path, watch: Watch
) -> Seen:
    """Ask everybody; the processes have been stopped."""
    until = durable_at or time.time()
    return Seen(
        due.timestamp(),
        durable_at,
        await asyncio.to_thread(topics.published, cluster),
        await books.read_runs(cluster),
        await asyncio.to_thread(executions, directory),
        watch.usage(due.timestamp() - _SETTLE_SECONDS, until),
    )


def refuse_if_late(due: datetime) -> None:
    left = (due - datetime.now(UTC)).total_seconds()
    if left < 2:
        raise click.ClickException("registering took longer than --lead; give it more seconds")


def measures(ids: Sequence[int], seen: Seen, *, complete: bool = True) -> dict[str, Any]:
    """The figures of one hot second; null is what was not reached.

    Of a run that was stopped nobody can say whether what is not there is lost.
    """
    durable_s = None if seen.durable_at is None else seen.durable_at - seen.due
    return {
        "jobs": len(ids),
        "published_s": _rounded(max(seen.published.appended, default=None), seen.due),
        "started_s": _rounded(max(seen.runs.started, default=None), seen.due),
        "durable_s": None if durable_s is None else round(durable_s, 3),
        "runs_per_s": None if durable_s is None else round(len(ids) / durable_s),
        "publish_lateness_ms": summary(seen.published.lateness_ms()),
        "start_lateness_ms": summary(seen.runs.start_lateness_ms()),
        "durable_lateness_ms": summary(seen.runs.durable_lateness_ms()),
        **counted((run_key(job_id, round(seen.due * 1_000_000)) for job_id in ids), seen),
        **({} if complete else {"lost": None}),
        "processes": [asdict(each) for each in seen.usage],
    }


def counted(expected: Iterable[int], seen: Seen) -> dict[str, int]:
    """Lost, and twice, against the runs that had to be."""
    succeeded = seen.runs.keys()
    return {
        "lost": sum(1 for key in expected if key not in succeeded or key not in seen.executed),
        "executed_twice": _twice(seen.executed),
        "published_twice": _twice(seen.published.counts()),
    }


def _twice(counts: Mapping[int, int]) -> int:
    return sum(count - 1 for count in counts.values() if count > 1)


def _rounded(moment: float | None, due: float) -> float | None:
    return None if moment is None else round(moment - due, 3)


def lines(found: dict[str, Any]) -> list[str]:
    """The figures of a hot second, for people."""
    lost = "–" if found["lost"] is None else found["lost"]
    return [
        f"published     {_seconds(found['published_s'])} after due, all of them",
        f"durable       {_seconds(found['durable_s'])} after due, all outcomes; "
        f"{found['runs_per_s'] or 0:,} runs/s",
        f"publication   {in_words(found['publish_lateness_ms'])} (due → appended by the broker)",
        f"start         {in_words(found['start_lateness_ms'])} (due → handler started)",
        f"outcome       {in_words(found['durable_lateness_ms'])} (due → durable)",
        f"lost          {lost}, executed twice {found['executed_twice']},"
        f" published twice {found['published_twice']}",
        "",
        *(
            f"{each['name']:<13} {each['cpu_s']:.1f} s of processor time, at most {each['peak_mb']:,.0f} MB"
            for each in found["processes"]
        ),
    ]


def conclude(found: dict[str, Any]) -> None:
    """End with what the run deserves: a benchmark that lost something has no result."""
    if not found["complete"]:
        click.get_current_context().exit(EXIT_CODE)
    if found["lost"] or found["executed_twice"]:
        raise click.ClickException("what came out is not what went in")


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f} s"
