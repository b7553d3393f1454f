"""SIGKILL of workers in the middle of slow runs: each occurrence ends once, each attempt more has a reason.

MAINSPRING_TEST_KILLS sets how often a worker is killed (default 3).
"""

from __future__ import annotations

import os
import time
from statistics import median

from tests.acceptance.processes import MainspringProcess
from tests.acceptance.reports import Report
from tests.acceptance.waiting import until
from tests.acceptance.worker.fleet import Fleet
from tests.acceptance.worker.journal import Occurrence
from tests.acceptance.worker.judge import Run

KILLS = int(os.environ.get("MAINSPRING_TEST_KILLS", "3"))
RUNS = 1000
CONCURRENCY = 200
SECONDS = 2.5
WORTH_A_KILL = 20
"""Runs that a worker must have in hand."""


async def test_workers_killed_again_and_again_end_every_run_once(fleet: Fleet, report: Report) -> None:
    occurrences = await fleet.register(RUNS, payload={"seconds": SECONDS})
    await fleet.start(concurrency=CONCURRENCY)
    await fleet.start(concurrency=CONCURRENCY)
    killed_at: dict[str, float] = {}
    for _ in range(KILLS):
        victim = await _busy_worker(fleet, occurrences)
        await fleet.kill(victim)
        killed_at[victim.identity] = time.time()
        await fleet.start(concurrency=CONCURRENCY)
    verdict = await fleet.verdict(occurrences)
    runs = await fleet.books.runs()
    lost = [run for run in runs if run.status == "lost"]
    waited = [_reaped_after(run, killed_at) for run in lost]
    report(
        f"{KILLS} kills, {verdict.figures()}; {len(lost)} lost, declared so {median(waited):.1f} s after the "
        f"death, at most {max(waited):.1f} s"
    )
    verdict.assert_sound()
    deaths = [run for run in verdict.unexpected if run.status == "dead"]
    assert len(deaths) == len(verdict.unexpected)
    assert all(_losses(runs, run.occurrence) == 4 for run in deaths), "only the fifth loss is the last"
    assert max(waited) < 60
    fleet.assert_sound()


async def _busy_worker(fleet: Fleet, occurrences: list[Occurrence]) -> MainspringProcess:
    """The worker with the most runs in hand; when all is done, there is more to do."""
    found: list[MainspringProcess] = []

    async def look() -> bool:
        under_way = fleet.journal.under_way()
        alive = [worker for worker in fleet.workers if worker.running]
        busiest = max(alive, key=lambda worker: len(under_way[worker.pid]))
        if len(under_way[busiest.pid]) >= WORTH_A_KILL:
            found.append(busiest)
        elif await fleet.books.are_settled(occurrences):
            occurrences.extend(await fleet.register(RUNS, payload={"seconds": SECONDS}))
        return bool(found)

    await until(look, "a worker is busy", pause=0.25)
    return found[0]


def _reaped_after(run: Run, killed_at: dict[str, float]) -> float:
    assert run.reaped_at is not None
    return run.reaped_at.timestamp() - killed_at[run.worker]


def _losses(runs: list[Run], occurrence: Occurrence) -> int:
    return sum(run.status == "lost" for run in runs if run.occurrence == occurrence)
