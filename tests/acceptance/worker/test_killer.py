"""A run that kills its worker, among innocents: it ends as a dead letter, and takes none of them along."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from mainspring.registry import DeadLetters
from mainspring.schema.states import DeadReason
from tests.acceptance.reports import Report
from tests.acceptance.worker.fleet import TENANT, Fleet
from tests.acceptance.worker.judge import Run

INNOCENTS = 30
LOSSES = 5


async def test_a_killer_is_a_dead_letter_after_five_deaths_and_every_innocent_succeeds(
    fleet: Fleet, report: Report
) -> None:
    innocents = await fleet.register(INNOCENTS, payload={"seconds": 2, "again": 2})
    [killer] = await fleet.register(handler="kill", payload={"seconds": 1})
    async with _supervised(fleet):
        verdict = await fleet.verdict([*innocents, killer])
    runs = await fleet.books.runs()
    report(f"{len(fleet.killed)} workers died, {verdict.figures()}")
    verdict.assert_sound()
    assert [(run.occurrence, run.status) for run in verdict.unexpected] == [(killer, "dead")]
    assert _statuses(runs, killer) == ["lost"] * (LOSSES - 1) + ["dead"]
    assert len(fleet.journal.of("start", [killer])) == LOSSES
    [letter] = await DeadLetters(fleet.database, shards=64).find(TENANT)
    assert (letter.job_id, letter.reason) == (killer.job_id, DeadReason.KILLED_WORKERS)
    fleet.assert_sound()


@asynccontextmanager
async def _supervised(fleet: Fleet) -> AsyncIterator[None]:
    """A worker that is started again whenever it has ended."""

    async def supervise() -> None:
        while True:
            worker = await fleet.start()
            await worker.ended()
            fleet.killed |= set(worker.identities)

    task = asyncio.create_task(supervise(), name="supervisor")
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def _statuses(runs: list[Run], occurrence: object) -> list[str]:
    found = [run for run in runs if run.occurrence == occurrence]
    return [run.status for run in sorted(found, key=lambda run: run.attempt)]
