"""A run that kills its workers, among innocents: it ends as a dead letter and takes none of them along.

Each real death costs the reaper's fifteen seconds of silence. So the first three losses, of the killer and of
runs that were lost beside it each time, are put into the books by hand; the last two happen.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta

from mainspring.registry import DeadLetters
from mainspring.schema.ids import from_microseconds, new_claim_id
from mainspring.schema.states import DeadReason, Outcome
from tests.acceptance.reports import Report
from tests.acceptance.worker.fleet import TENANT, Fleet
from tests.acceptance.worker.journal import Occurrence
from tests.acceptance.worker.judge import Run

EARLIER = 3


async def test_a_killer_is_a_dead_letter_after_five_losses_and_every_innocent_succeeds(
    fleet: Fleet, report: Report
) -> None:
    later = (datetime.now(UTC) + timedelta(hours=1)).replace(microsecond=0).isoformat()
    beside = await fleet.register(2, payload={"seconds": 0, "again": 2}, schedule=later)
    [killer] = await fleet.register(handler="kill", payload={"seconds": 1}, schedule=later)
    await _lost_before(fleet, [*beside, killer])
    fresh = await fleet.register(20, payload={"seconds": 6, "again": 1})
    async with _supervised(fleet):
        verdict = await fleet.verdict([*beside, *fresh, killer])
    runs = await fleet.books.runs()
    report(f"{len(fleet.killed) - EARLIER} workers died, {verdict.figures()}")
    verdict.assert_sound()
    assert [(run.occurrence, run.status) for run in verdict.unexpected] == [(killer, "dead")]
    assert _statuses(runs, killer) == ["lost"] * 4 + ["dead"]
    assert len(fleet.journal.of("start", [killer])) == 5 - EARLIER
    for occurrence in beside:
        assert _statuses(runs, occurrence) == ["lost"] * EARLIER + ["succeeded"], (
            "it has run beside the killer"
        )
    [letter] = await DeadLetters(fleet.database, shards=64).find(TENANT)
    assert (letter.job_id, letter.reason) == (killer.job_id, DeadReason.KILLED_WORKERS)
    fleet.assert_sound()


async def _lost_before(fleet: Fleet, occurrences: Collection[Occurrence]) -> None:
    """The books as they are when all of these were lost together again and again, and are due once more."""
    keys = [(each.job_id, from_microseconds(each.scheduled_at)) for each in occurrences]
    outcomes = bytes([Outcome.LOST]) * len(keys)
    async with fleet.database.acquire() as connection, connection.transaction():
        await connection.execute("DELETE FROM timers WHERE job_id = ANY ($1)", [key[0] for key in keys])
        for attempt in range(1, EARLIER + 1):
            claim, worker = new_claim_id(datetime.now(UTC)), f"gone-{attempt}"
            fleet.killed.add(worker)
            await connection.execute(_CLAIM, claim, worker, outcomes)
            rows = [(*key, claim, place, attempt) for place, key in enumerate(keys)]
            await connection.executemany("INSERT INTO runs VALUES ($1, $2, $3, $4, $5)", rows)
            await connection.executemany(_FAILURE, [(*key, attempt, TENANT, worker) for key in keys])
        await connection.executemany(_TIMER, [(*key, EARLIER + 1, EARLIER) for key in keys])


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


def _statuses(runs: list[Run], occurrence: Occurrence) -> list[str]:
    found = [run for run in runs if run.occurrence == occurrence]
    return [run.status for run in sorted(found, key=lambda run: run.attempt)]


_CLAIM = "INSERT INTO claims (id, worker_id, outcomes, reaped_at) VALUES ($1, $2, $3, now())"

_FAILURE = """
INSERT INTO failures (job_id, scheduled_at, attempt, tenant_id, status, worker_id)
VALUES ($1, $2, $3, $4, 'lost', $5)
"""

_TIMER = """
INSERT INTO timers (shard, due_at, job_id, scheduled_at, attempt, losses, cause)
SELECT shard, now(), id, $2, $3, $4, 'retry' FROM jobs WHERE id = $1
"""
