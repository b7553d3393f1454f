"""What else is true once runs have ended: the overlap slot is free, a one-off is completed, dependents go on.

Called inside the transaction that records the outcomes, after the runs are in `runs`: by workers, by the
claim (for runs that are born final) and by the reaper. Either everything here is committed with the
outcomes or nothing is, so a crash leaves no dependent that nobody will release.

**Slots.** A job whose overlap policy is not `allow` has one row in `overlaps` while a run of it is under
way. It goes with the run it holds; the one that queued behind it becomes due.

**One-offs.** A job of kind `at` is completed by a final run when nothing of it is to come: it has run at
its instant, and every timer it has left has been fired. Never by a recalled run: its job was paused, and a
resume repeats it.

**Dependents.** Each parent that ends writes itself into `arrivals(dependent, scheduled_at)`, sorted; the
lock of that row makes two parents that end in the same moment one after the other, and whoever finds
the row complete inserts the timer. A dependent that must not run is *skipped*: no run, its own id among its
`failed`, and to its own dependents it is a parent that failed. docs/dependencies.md has the table.

Nothing here is repeated in its effect: an attempt that ends twice finds its slot gone, its job completed,
its arrival recorded. Rows are locked in order within one step, but not across the steps of a chain of
skipped dependents: two such chains that meet may deadlock, and the transaction is then tried again by
whoever began it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple, TypeAlias

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from mainspring.schema.ids import from_microseconds
from mainspring.schema.queries import query
from mainspring.schema.states import Outcome

# In quotes: the driver's classes are generic for the type checker only.
Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record] | PoolConnectionProxy[asyncpg.Record]"

_FINAL = frozenset(
    {
        Outcome.SUCCEEDED,
        Outcome.DEAD,
        Outcome.CANCELLED,
        Outcome.SKIPPED,
        Outcome.RECALLED,
        Outcome.MISSED,
    }
)
_Occurrence: TypeAlias = tuple[int, datetime]
"""A job's id and an instant."""


class Ended(NamedTuple):
    """A run that has an outcome now: any but PENDING and VOID."""

    job_id: int
    scheduled_at: int
    attempt: int
    outcome: Outcome
    overlaps: bool
    """The job's overlap policy is not `allow`."""
    one_off: bool
    """It may be one: its message had no following occurrence."""


async def somebody_depends(connection: Connection) -> bool:
    """Whether any job waits for another one: half a million successes need not be looked at if none does."""
    somebody: bool = await connection.fetchval(query("somebody_depends"))
    return somebody


async def end_runs(connection: Connection, ended: Sequence[Ended]) -> int:
    """Do what follows from these outcomes; how many dependents were released.

    FAILED and LOST are not the end of the occurrence: they only free the slot. One statement for any number
    of final runs without dependents; one or two more if some have a slot, one or two more if some may be
    one-offs, and two for each generation of dependents.
    """
    await _free_overlaps(connection, [run for run in ended if run.overlaps])
    final = [run for run in ended if run.outcome in _FINAL]
    await _complete_one_offs(
        connection, [run.job_id for run in final if run.one_off and run.outcome is not Outcome.RECALLED]
    )
    return await _reach_dependents(connection, final)


async def _free_overlaps(connection: Connection, ended: Sequence[Ended]) -> None:
    if not ended:
        return
    waiting = await connection.fetch(
        query("free_overlaps"),
        [run.job_id for run in ended],
        [from_microseconds(run.scheduled_at) for run in ended],
        [run.attempt for run in ended],
    )
    if waiting:
        await connection.execute(
            query("make_due"),
            [row["job_id"] for row in waiting],
            [row["queued_at"] for row in waiting],
            [row["queued_attempt"] for row in waiting],
        )


async def _complete_one_offs(connection: Connection, job_ids: Sequence[int]) -> None:
    if not job_ids:
        return
    locked = await connection.fetch(query("lock_one_offs"), sorted(set(job_ids)))
    if locked:
        await connection.execute(query("complete_one_offs"), [row["id"] for row in locked])


async def _reach_dependents(connection: Connection, final: Sequence[Ended]) -> int:
    """Tell the dependents, then the dependents of those that are skipped, until nobody is left to tell."""
    if not final:
        return 0
    rows = await connection.fetch(query("jobs_with_dependents"), sorted({run.job_id for run in final}))
    if not rows:
        return 0
    parents = {row["parent_id"] for row in rows}
    arrived: dict[_Occurrence, bool] = {}
    for run in final:
        if run.job_id in parents:
            key = run.job_id, from_microseconds(run.scheduled_at)
            arrived[key] = arrived.get(key, False) or run.outcome is Outcome.SUCCEEDED
    released = 0
    while arrived:
        went, skipped = await _arrive(connection, arrived)
        released += went
        arrived = dict.fromkeys(skipped, False)
    return released


async def _arrive(connection: Connection, arrived: dict[_Occurrence, bool]) -> tuple[int, list[_Occurrence]]:
    """One generation: how many dependents were released, and which were skipped."""
    touched = await connection.fetch(
        query("record_arrivals"),
        [job_id for job_id, _ in arrived],
        [scheduled_at for _, scheduled_at in arrived],
        list(arrived.values()),
    )
    if not touched:
        return 0, []
    settled = await connection.fetch(
        query("settle_arrivals"),
        [row["job_id"] for row in touched],
        [row["scheduled_at"] for row in touched],
    )
    skipped = [(row["job_id"], row["scheduled_at"]) for row in settled if not row["is_released"]]
    return len(settled) - len(skipped), skipped
