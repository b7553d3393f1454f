"""One run: traffic and faults until the plan is done, then quiet, then everything that is known.

The directory keeps the log of every process, what the handlers wrote, and the history itself.
"""

from __future__ import annotations

import asyncio
import pickle
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from mainspring.local import LocalStack
from tests.robustness.faults import Faults
from tests.robustness.history import History, collect
from tests.robustness.traffic import Traffic
from tests.robustness.validate import Case
from tests.robustness.world import World

HISTORY = "history.pickle"
_CLOSING_SECONDS = 4
_TOLD_SECONDS = 10


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done: these faults, or whatever comes for so long."""

    seed: int
    kinds: tuple[str, ...] = ()
    seconds: float | None = None
    settle: tuple[float, float] = (1.0, 3.0)
    longest: float = 5.0
    """The longest that anything is away."""

    @property
    def waits_for_books(self) -> bool:
        """What was lost from a topic is found after two minutes."""
        return self.seconds is not None

    def is_over(self, faults: int, began: float) -> bool:
        if self.seconds is not None:
            return time.monotonic() - began >= self.seconds
        return faults >= len(self.kinds)


async def carry_out(
    plan: Plan, stack: LocalStack, directory: Path, progress: Callable[[str], None]
) -> History:
    """Do it, wait until all is quiet, and say what happened."""
    async with World.on(stack, directory) as world:
        traffic = Traffic(world, plan.seed)
        faults = Faults(world, random.Random(plan.seed), plan.settle, plan.longest, plan.kinds)
        stop, began = asyncio.Event(), time.monotonic()
        async with asyncio.TaskGroup() as clients:
            clients.create_task(traffic.run(stop), name="traffic")
            if plan.seconds is not None:
                clients.create_task(_tell(world, traffic, stop, began, progress), name="progress")
            try:
                while not plan.is_over(len(faults.done), began):
                    fault = await faults.next()
                    progress(f"{fault.kind} {fault.target}, {fault.end - fault.begin:.1f} s")
            finally:
                stop.set()
        closes_at = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=_CLOSING_SECONDS)
        await traffic.close(closes_at)
        await world.quiet(closes_at.timestamp(), books=plan.waits_for_books)
        progress("all is quiet")
        history = await collect(world, plan.seed, closes_at.timestamp(), traffic.operations, faults.done)
        history.books_judged = plan.waits_for_books
    (directory / HISTORY).write_bytes(pickle.dumps(history))
    return history


async def _tell(
    world: World, traffic: Traffic, stop: asyncio.Event, began: float, progress: Callable[[str], None]
) -> None:
    """How it goes, every ten seconds."""
    while not stop.is_set():
        before = len(world.journal.lines)
        await asyncio.sleep(_TOLD_SECONDS)
        lag = time.time() - min((row.mark for row in world.watcher.shards.values()), default=0)
        rate = (len(world.journal.lines) - before) / 2 / _TOLD_SECONDS
        progress(
            f"{time.monotonic() - began:.0f} s: {rate:.0f} runs/s, {len(traffic.operations)} operations, "
            f"the last mark {lag:.1f} s ago"
        )


def figures(case: Case) -> str:
    history = case.history
    unanswered = sum(each.error != "" for each in history.operations)
    repeats = sum(len(runs) > 1 for runs in case.runs.values())
    return (
        f"seed {history.seed}: {len(history.faults)} faults, {len(history.operations)} operations "
        f"({unanswered} refused or without an answer), {len(case.model.versions)} jobs, "
        f"{len(case.runs)} occurrences ({len(case.model.must)} for certain), {repeats} in some attempts"
    )
