"""What the end of a run means: slots, one-offs, dependents."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any

import asyncpg
import pytest

from mainspring.registry import Job
from mainspring.registry.endings import Ended, end_runs
from mainspring.schema.ids import to_microseconds
from mainspring.schema.states import Outcome
from tests.integration.registry.bench import Bench

HOUR = timedelta(hours=1)
FINAL = (
    Outcome.SUCCEEDED,
    Outcome.DEAD,
    Outcome.CANCELLED,
    Outcome.SKIPPED,
    Outcome.RECALLED,
    Outcome.MISSED,
)


def ending(
    job: Job,
    at: datetime,
    outcome: Outcome = Outcome.SUCCEEDED,
    attempt: int = 1,
    *,
    overlaps: bool = False,
    one_off: bool = False,
) -> Ended:
    return Ended(job.id, to_microseconds(at), attempt, outcome, overlaps, one_off)


async def end(bench: Bench, *ended: Ended) -> int:
    async with bench.pool.acquire() as connection, connection.transaction():
        return await end_runs(connection, ended)


def run_at(job: Job) -> datetime:
    assert job.definition.run_at is not None
    return job.definition.run_at


async def status(bench: Bench, job: Job) -> Any:
    return await bench.value("SELECT status FROM jobs WHERE id = $1", job.id)


# Slots


async def hold_slot(
    bench: Bench, job: Job, at: datetime, attempt: int = 1, queued: datetime | None = None
) -> None:
    await bench.fetch(
        'INSERT INTO "overlaps" (job_id, claim_id, position, scheduled_at, attempt, queued_at,'
        " queued_attempt)"
        " VALUES ($1, 1, 0, $2, $3, $4, $5)",
        job.id,
        at,
        attempt,
        queued,
        None if queued is None else 1,
    )


async def slot(bench: Bench, job: Job) -> list[Any]:
    return await bench.fetch(
        'SELECT scheduled_at, attempt, queued_at, queued_attempt FROM "overlaps" WHERE job_id = $1', job.id
    )


async def queue_timer(connection: Any, job: Job, at: datetime) -> None:
    await connection.execute(
        "INSERT INTO timers (shard, due_at, job_id, scheduled_at, cause)"
        " VALUES ($1, now() + interval '1 day', $2, $3, 'deferred')",
        job.shard,
        job.id,
        at,
    )


async def is_due(bench: Bench, job: Job) -> list[bool]:
    rows = await bench.fetch(
        "SELECT due_at <= clock_timestamp() FROM timers WHERE job_id = $1 ORDER BY scheduled_at", job.id
    )
    return [due for (due,) in rows]


async def overlapping(bench: Bench) -> tuple[Job, datetime]:
    return await bench.create(handler="h", schedule="@daily", overlap="queue_one"), await bench.in_one_hour()


@pytest.mark.parametrize("outcome", [*FINAL, Outcome.FAILED, Outcome.LOST])
async def test_every_outcome_frees_the_slot(bench: Bench, outcome: Outcome) -> None:
    job, at = await overlapping(bench)
    await hold_slot(bench, job, at)
    await end(bench, ending(job, at, outcome, overlaps=True))
    assert await slot(bench, job) == []


async def test_a_slot_that_another_run_holds_stays(bench: Bench) -> None:
    job, at = await overlapping(bench)
    await hold_slot(bench, job, at, attempt=2, queued=at + HOUR)
    await end(bench, ending(job, at, overlaps=True), ending(job, at + HOUR, attempt=2, overlaps=True))
    assert await slot(bench, job) == [(at, 2, at + HOUR, 1)]


async def test_the_one_that_waits_becomes_due(bench: Bench) -> None:
    job, at = await overlapping(bench)
    await hold_slot(bench, job, at, queued=at + HOUR)
    async with bench.pool.acquire() as connection:
        await queue_timer(connection, job, at + HOUR)
        await queue_timer(connection, job, at + 2 * HOUR)
    await end(bench, ending(job, at, overlaps=True))
    assert await is_due(bench, job) == [True, False]
    assert await slot(bench, job) == []


async def test_the_one_that_waits_may_have_no_timer_left(bench: Bench) -> None:
    job, at = await overlapping(bench)
    await hold_slot(bench, job, at, queued=at + HOUR)
    await end(bench, ending(job, at, overlaps=True))
    assert (await slot(bench, job), await bench.timers(job)) == ([], [])


async def test_one_that_ends_while_it_waits_leaves_the_queue(bench: Bench) -> None:
    """A cancelled or recalled one: nobody else could wait behind a queue that never empties."""
    job, at = await overlapping(bench)
    await hold_slot(bench, job, at, queued=at + HOUR)
    await end(bench, ending(job, at + HOUR, Outcome.CANCELLED, overlaps=True))
    assert await slot(bench, job) == [(at, 1, None, None)]


async def test_the_holder_and_the_one_that_waits_may_end_together(bench: Bench) -> None:
    job, at = await overlapping(bench)
    await hold_slot(bench, job, at, queued=at + HOUR)
    async with bench.pool.acquire() as connection:
        await queue_timer(connection, job, at + HOUR)
    both = ending(job, at, overlaps=True), ending(job, at + HOUR, Outcome.CANCELLED, overlaps=True)
    await end(bench, *both)
    assert await slot(bench, job) == []
    assert await is_due(bench, job) == [False]


async def test_one_that_queues_itself_while_the_holder_ends_becomes_due(bench: Bench) -> None:
    """Its timer is younger than the snapshot with which the end waited for the slot."""
    job, at = await overlapping(bench)
    await hold_slot(bench, job, at)
    queue = 'UPDATE "overlaps" SET queued_at = $2, queued_attempt = 1 WHERE job_id = $1'
    async with asyncio.TaskGroup() as tasks, bench.holding(queue, job.id, at + HOUR) as claim:
        await queue_timer(claim, job, at + HOUR)
        tasks.create_task(end(bench, ending(job, at, overlaps=True)))
        await bench.until_waiting(claim)
    assert await is_due(bench, job) == [True]
    assert await slot(bench, job) == []


async def test_a_slot_that_changes_hands_while_the_old_holder_ends_stays(bench: Bench) -> None:
    job, at = await overlapping(bench)
    await hold_slot(bench, job, at)
    take = 'UPDATE "overlaps" SET scheduled_at = $2 WHERE job_id = $1'
    async with asyncio.TaskGroup() as tasks, bench.holding(take, job.id, at + HOUR) as claim:
        tasks.create_task(end(bench, ending(job, at, overlaps=True)))
        await bench.until_waiting(claim)
    assert await slot(bench, job) == [(at + HOUR, 1, None, None)]


# One-offs


async def has_run(bench: Bench, job: Job, outcome: Outcome = Outcome.SUCCEEDED) -> None:
    """As the end finds it: the run is in its claim, and the leader has not yet deleted the fired timer."""
    await bench.record_runs(job, run_at(job), outcome)


@pytest.mark.parametrize("outcome", [outcome for outcome in FINAL if outcome is not Outcome.RECALLED])
async def test_a_one_off_that_has_run_is_completed(bench: Bench, outcome: Outcome) -> None:
    job = await bench.one_off()
    await has_run(bench, job, outcome)
    before = await bench.facts(job)
    await end(bench, ending(job, run_at(job), outcome, one_off=True))
    after = await bench.facts(job)
    assert after.status == "completed"
    assert after.changed > before.changed
    assert await bench.value("SELECT closed_at <= clock_timestamp() FROM jobs WHERE id = $1", job.id)


@pytest.mark.parametrize("outcome", [Outcome.RECALLED, Outcome.FAILED, Outcome.LOST])
async def test_what_is_to_be_repeated_does_not_complete_a_one_off(bench: Bench, outcome: Outcome) -> None:
    job = await bench.one_off()
    await has_run(bench, job, outcome)
    await end(bench, ending(job, run_at(job), outcome, one_off=True))
    assert await status(bench, job) == "active"


async def test_a_one_off_with_a_timer_to_come_is_not_completed(bench: Bench) -> None:
    """A trigger that has not run yet; the end of that one completes the job."""
    job = await bench.one_off()
    trigger = await bench.registry.trigger(bench.tenant, job.id)
    await has_run(bench, job)
    await end(bench, ending(job, run_at(job), one_off=True))
    assert await status(bench, job) == "active"
    await bench.record_runs(job, trigger.scheduled_at, Outcome.SUCCEEDED)
    await end(bench, ending(job, trigger.scheduled_at, one_off=True))
    assert await status(bench, job) == "completed"


async def test_a_trigger_does_not_complete_a_one_off_that_is_under_way(bench: Bench) -> None:
    """Its own timer has left for Kafka and is deleted: only the run that is missing tells."""
    job = await bench.one_off()
    trigger = await bench.registry.trigger(bench.tenant, job.id)
    await bench.fetch("DELETE FROM timers WHERE job_id = $1", job.id)
    await bench.record_runs(job, trigger.scheduled_at, Outcome.SUCCEEDED)
    await end(bench, ending(job, trigger.scheduled_at, one_off=True))
    assert await status(bench, job) == "active"


async def test_a_paused_or_recurring_job_is_not_completed(bench: Bench) -> None:
    paused = await bench.one_off()
    await bench.registry.pause(bench.tenant, paused.id)
    await has_run(bench, paused)
    recurring, at = await bench.create(handler="h", schedule="@daily"), await bench.in_one_hour()
    await end(bench, ending(paused, run_at(paused), one_off=True), ending(recurring, at, one_off=True))
    assert (await status(bench, paused), await status(bench, recurring)) == ("paused", "active")


async def test_a_trigger_that_comes_while_a_one_off_ends_keeps_it_active(bench: Bench) -> None:
    job = await bench.one_off()
    await has_run(bench, job)
    lock = "SELECT FROM jobs WHERE id = $1 FOR SHARE"
    async with asyncio.TaskGroup() as tasks, bench.holding(lock, job.id) as trigger:
        await queue_timer(trigger, job, run_at(job) + HOUR)
        tasks.create_task(end(bench, ending(job, run_at(job), one_off=True)))
        await bench.until_waiting(trigger)
    assert await status(bench, job) == "active"


# Dependents


async def parents_and_child(bench: Bench, *names: str, **body: Any) -> tuple[list[Job], Job, datetime]:
    parents = [await bench.create(name=name, schedule="@daily") for name in names]
    child = await bench.create(name="child", after=list(names), **body)
    return parents, child, await bench.in_one_hour()


async def arrivals(bench: Bench, job: Job) -> list[Any]:
    """Who succeeded, who failed, and whether it was decided."""
    return await bench.fetch(
        "SELECT succeeded, failed, released_at IS NOT NULL FROM arrivals WHERE job_id = $1"
        " ORDER BY scheduled_at",
        job.id,
    )


async def released(bench: Bench, job: Job) -> list[Any]:
    rows = await bench.timers(job)
    assert all((attempt, cause) == (1, "dependency") for _, _, attempt, cause in rows)
    return [scheduled_at for scheduled_at, _, _, _ in rows]


async def test_a_dependent_is_released_for_the_same_instant_when_its_parent_succeeded(bench: Bench) -> None:
    [parent], child, at = await parents_and_child(bench, "a")
    assert await end(bench, ending(parent, at)) == 1
    assert await released(bench, child) == [at]
    assert await is_due(bench, child) == [True]
    assert await bench.value("SELECT shard FROM timers WHERE job_id = $1", child.id) == child.shard
    assert await arrivals(bench, child) == [([parent.id], [], True)]


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.LOST])
async def test_a_parent_with_an_attempt_to_come_has_not_arrived(bench: Bench, outcome: Outcome) -> None:
    [parent], child, at = await parents_and_child(bench, "a")
    assert await end(bench, ending(parent, at, outcome)) == 0
    assert (await released(bench, child), await arrivals(bench, child)) == ([], [])


@pytest.mark.parametrize("outcome", FINAL[1:])
async def test_a_parent_that_did_not_succeed_skips_its_dependent(bench: Bench, outcome: Outcome) -> None:
    [parent], child, at = await parents_and_child(bench, "a")
    assert await end(bench, ending(parent, at, outcome)) == 0
    assert await released(bench, child) == []
    assert await arrivals(bench, child) == [([], [parent.id, child.id], True)]


@pytest.mark.parametrize("outcome", FINAL[1:])
async def test_a_dependent_that_wants_to_run_anyway_is_released(bench: Bench, outcome: Outcome) -> None:
    [parent], child, at = await parents_and_child(bench, "a", on_failure="run")
    assert await end(bench, ending(parent, at, outcome)) == 1
    assert await released(bench, child) == [at]
    assert await arrivals(bench, child) == [([], [parent.id], True)]


async def test_a_dependent_waits_for_all_its_parents(bench: Bench) -> None:
    (a, b, c), child, at = await parents_and_child(bench, "a", "b", "c")
    assert await end(bench, ending(a, at)) == 0
    assert await end(bench, ending(b, at), ending(c, at + HOUR)) == 0
    assert await released(bench, child) == []
    assert await end(bench, ending(c, at)) == 1
    assert await released(bench, child) == [at]


async def test_a_failed_parent_decides_only_when_the_others_have_arrived(bench: Bench) -> None:
    (a, b), child, at = await parents_and_child(bench, "a", "b")
    await end(bench, ending(a, at, Outcome.DEAD))
    assert await arrivals(bench, child) == [([], [a.id], False)]
    await end(bench, ending(b, at))
    assert await arrivals(bench, child) == [([b.id], [a.id, child.id], True)]


async def test_parents_that_end_in_one_transaction_release_once(bench: Bench) -> None:
    (a, b), child, at = await parents_and_child(bench, "a", "b")
    assert await end(bench, ending(a, at), ending(b, at), ending(a, at)) == 1
    assert await released(bench, child) == [at]


async def test_one_parent_releases_all_its_dependents(bench: Bench) -> None:
    [parent], first, at = await parents_and_child(bench, "a")
    others = [await bench.create(name=f"child-{number}", after=["a"]) for number in range(4)]
    assert await end(bench, ending(parent, at), ending(parent, at + HOUR)) == 10
    for child in (first, *others):
        assert await released(bench, child) == [at, at + HOUR]


async def test_two_parents_that_end_in_the_same_moment_release_once(bench: Bench) -> None:
    """Each began when the other had not committed: neither alone sees the row complete."""
    (a, b), child, at = await parents_and_child(bench, "a", "b")
    async with asyncio.TaskGroup() as tasks, bench.holding("SELECT 1") as first:
        counts = [await end_runs(first, [ending(a, at)])]
        second = tasks.create_task(end(bench, ending(b, at)))
        await bench.until_waiting(first)
    counts.append(second.result())
    assert counts == [0, 1]
    assert await released(bench, child) == [at]
    assert await arrivals(bench, child) == [(sorted([a.id, b.id]), [], True)]


async def test_many_parents_that_end_at_once_release_every_dependent_once(bench: Bench) -> None:
    names = [f"parent-{number}" for number in range(8)]
    parents, child, at = await parents_and_child(bench, *names)
    other = await bench.create(name="other", after=names[:4])
    counts = await asyncio.gather(*(end(bench, ending(parent, at)) for parent in parents))
    assert sum(counts) == 2
    assert (await released(bench, child), await released(bench, other)) == ([at], [at])


async def test_an_end_that_is_undone_releases_nobody(bench: Bench) -> None:
    [parent], child, at = await parents_and_child(bench, "a")
    async with bench.pool.acquire() as connection:
        undone = connection.transaction()
        await undone.start()
        assert await end_runs(connection, [ending(parent, at)]) == 1
        await undone.rollback()
    assert (await released(bench, child), await arrivals(bench, child)) == ([], [])
    assert await end(bench, ending(parent, at)) == 1


async def test_an_end_that_is_repeated_releases_nobody_again(bench: Bench) -> None:
    [parent], child, at = await parents_and_child(bench, "a")
    await end(bench, ending(parent, at))
    await bench.fetch("DELETE FROM timers WHERE job_id = $1", child.id)
    assert await end(bench, ending(parent, at)) == 0
    assert await end(bench, ending(parent, at, Outcome.DEAD, attempt=2)) == 0
    assert await released(bench, child) == []
    assert await arrivals(bench, child) == [([parent.id], [], True)]


async def test_a_skip_goes_on_to_the_dependents_of_the_dependent(bench: Bench) -> None:
    [parent], child, at = await parents_and_child(bench, "a")
    grandchild = await bench.create(name="grandchild", after=["child"])
    stubborn = await bench.create(name="stubborn", after=["grandchild"], on_failure="run")
    assert await end(bench, ending(parent, at, Outcome.DEAD)) == 1
    assert await arrivals(bench, grandchild) == [([], [child.id, grandchild.id], True)]
    assert (await released(bench, grandchild), await released(bench, stubborn)) == ([], [at])


async def test_a_skip_meets_the_other_parents_of_the_next_generation(bench: Bench) -> None:
    (a, b), child, at = await parents_and_child(bench, "a", "b")
    both = await bench.create(name="both", after=["b", "child"], on_failure="run")
    assert await end(bench, ending(b, at)) == 0
    assert await end(bench, ending(a, at, Outcome.DEAD)) == 1
    assert await released(bench, both) == [at]
    assert await arrivals(bench, both) == [([b.id], [child.id], True)]


async def test_a_skipped_dependent_is_released_when_its_parent_succeeds_after_all(bench: Bench) -> None:
    [parent], child, at = await parents_and_child(bench, "a")
    grandchild = await bench.create(name="grandchild", after=["child"])
    await end(bench, ending(parent, at, Outcome.DEAD))
    assert await end(bench, ending(parent, at, attempt=2)) == 1
    assert await arrivals(bench, child) == [([parent.id], [], True)]
    assert (await released(bench, child), await released(bench, grandchild)) == ([at], [])
    assert await end(bench, ending(child, at)) == 1
    assert await arrivals(bench, grandchild) == [([child.id], [], True)]
    assert await released(bench, grandchild) == [at]


async def test_a_skipped_dependent_waits_until_all_have_succeeded_after_all(bench: Bench) -> None:
    (a, b), child, at = await parents_and_child(bench, "a", "b")
    await end(bench, ending(a, at, Outcome.DEAD), ending(b, at, Outcome.DEAD))
    assert await end(bench, ending(a, at, attempt=2)) == 0
    assert await end(bench, ending(b, at, Outcome.DEAD, attempt=2)) == 0
    assert await end(bench, ending(b, at, attempt=3)) == 1
    assert await released(bench, child) == [at]


async def test_a_dependent_that_ran_anyway_does_not_run_again_when_its_parent_succeeds(bench: Bench) -> None:
    [parent], child, at = await parents_and_child(bench, "a", on_failure="run")
    await end(bench, ending(parent, at, Outcome.DEAD))
    await bench.fetch("DELETE FROM timers WHERE job_id = $1", child.id)
    assert await end(bench, ending(parent, at, attempt=2)) == 0
    assert await released(bench, child) == []
    assert await arrivals(bench, child) == [([parent.id], [], True)]


async def test_a_paused_dependent_has_its_timer_and_a_deleted_one_has_nothing(bench: Bench) -> None:
    [parent], paused, at = await parents_and_child(bench, "a")
    deleted = await bench.create(name="deleted", after=["a"])
    await bench.registry.pause(bench.tenant, paused.id)
    await bench.registry.delete(bench.tenant, deleted.id)
    assert await end(bench, ending(parent, at)) == 1
    assert await released(bench, paused) == [at]
    assert (await released(bench, deleted), await arrivals(bench, deleted)) == ([], [])


async def test_a_parent_that_is_deleted_is_not_waited_for(bench: Bench) -> None:
    (a, b), child, at = await parents_and_child(bench, "a", "b")
    await bench.registry.delete(bench.tenant, b.id)
    assert await end(bench, ending(a, at)) == 1
    assert await released(bench, child) == [at]


async def test_a_parent_that_was_removed_does_not_count_any_more(bench: Bench) -> None:
    (a, b), child, at = await parents_and_child(bench, "a", "b")
    await end(bench, ending(a, at, Outcome.DEAD))
    await bench.edit(child, after=["b"])
    assert await end(bench, ending(b, at)) == 1
    assert await released(bench, child) == [at]


async def test_a_run_of_a_day_that_does_not_exist_fails_the_whole_transaction(bench: Bench) -> None:
    """Its run could not exist either; nothing is half done."""
    [parent], child, at = await parents_and_child(bench, "a")
    with pytest.raises(asyncpg.CheckViolationError):
        await end(bench, ending(parent, at + timedelta(days=365)))
    assert await arrivals(bench, child) == []


# What it costs


class Counting:
    """A connection that counts what passes through it."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self.statements = 0

    async def fetch(self, *arguments: Any) -> Any:
        self.statements += 1
        return await self._connection.fetch(*arguments)

    async def execute(self, *arguments: Any) -> Any:
        self.statements += 1
        return await self._connection.execute(*arguments)


async def statements(bench: Bench, *ended: Ended) -> int:
    async with bench.pool.acquire() as connection, connection.transaction():
        counting: Any = Counting(connection)
        await end_runs(counting, ended)
        return int(counting.statements)


async def test_ends_that_mean_nothing_else_cost_one_statement(bench: Bench) -> None:
    job, at = await overlapping(bench)
    assert await statements(bench, *(ending(job, at, attempt=n) for n in range(1, 5001))) == 1
    assert await statements(bench, ending(job, at, Outcome.FAILED)) == 0
    assert await statements(bench) == 0


async def test_slots_one_offs_and_dependents_cost_what_the_docstring_says(bench: Bench) -> None:
    [parent], _, at = await parents_and_child(bench, "a")
    job, _ = await overlapping(bench)
    once = await bench.one_off()
    assert await statements(bench, ending(job, at, Outcome.FAILED, overlaps=True)) == 1
    assert await statements(bench, ending(job, at, one_off=True)) == 2
    assert await statements(bench, ending(once, run_at(once), one_off=True)) == 3
    assert await statements(bench, ending(parent, at)) == 3
