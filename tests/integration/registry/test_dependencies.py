"""Which jobs a job waits for, and that nobody waits for himself."""

from __future__ import annotations

import asyncio

import pytest

from mainspring.registry import Job
from mainspring.schema.errors import InvalidInput
from tests.integration.registry.bench import Bench, request


async def parents(bench: Bench, job: Job) -> list[int]:
    rows = await bench.fetch("SELECT parent_id FROM dependencies WHERE job_id = $1 ORDER BY 1", job.id)
    return [parent for (parent,) in rows]


async def scheduled(bench: Bench, *names: str) -> list[Job]:
    return [await bench.create(name=name, schedule="@daily") for name in names]


async def test_parents_are_given_by_name_or_id(bench: Bench) -> None:
    a, b = await scheduled(bench, "a", "b")
    job = await bench.create(name="c", after=["a", b.job_id, a.job_id], on_failure="run")
    assert await parents(bench, job) == sorted([a.id, b.id])
    assert set(job.definition.after) == {a.job_id, b.job_id}
    assert (job.cadence_id, job.definition.schedule, job.next_run_at) == (None, "", None)
    assert await bench.value("SELECT on_failure FROM jobs WHERE id = $1", job.id) == "run"


async def test_a_parent_must_be_a_job_of_the_tenant_that_is_not_deleted(bench: Bench) -> None:
    [deleted] = await scheduled(bench, "deleted")
    await bench.registry.delete(bench.tenant, deleted.id)
    stranger = await bench.registry.create(1, request(handler="h", schedule="@daily"))
    for parent in ("nobody", "deleted", deleted.job_id, stranger.job_id):
        with pytest.raises(InvalidInput) as refusal:
            await bench.create(name="a", after=[parent])
        assert refusal.value.rule == f"{parent!r} is not a job of this tenant"
    assert await bench.jobs() == 0


async def test_an_edit_replaces_the_parents(bench: Bench) -> None:
    a, b, c = await scheduled(bench, "a", "b", "c")
    job = await bench.create(name="d", after=["a", "b"])
    before = await bench.facts(job)
    edited = await bench.edit(job, after=["b", "c"])
    assert await parents(bench, job) == sorted([b.id, c.id])
    assert edited.version == 2
    after = await bench.facts(job)
    assert after.changed > before.changed
    assert after.valid_from == before.valid_from
    assert a.id not in await parents(bench, job)


async def test_the_same_parents_by_other_words_change_nothing(bench: Bench) -> None:
    a, _ = await scheduled(bench, "a", "b")
    job = await bench.create(name="c", after=["a", "b"])
    before = await bench.facts(job)
    await bench.edit(job, after=["b", a.job_id, "a"])
    assert await bench.facts(job) == before


async def test_a_schedule_takes_the_place_of_parents_and_back(bench: Bench) -> None:
    [a] = await scheduled(bench, "a")
    job = await bench.create(name="b", after=["a"])
    recurring = await bench.edit(job, schedule="@daily")
    assert recurring.valid_from > job.valid_from
    assert await parents(bench, job) == []
    waiting = await bench.edit(job, after=["a"])
    assert waiting.valid_from > recurring.valid_from
    assert (waiting.cadence_id, await parents(bench, job)) == (None, [a.id])


async def test_an_edit_of_something_else_keeps_the_parents(bench: Bench) -> None:
    [a] = await scheduled(bench, "a")
    job = await bench.create(name="b", after=["a"])
    edited = await bench.edit(job, payload=1)
    assert await parents(bench, job) == [a.id]
    assert edited.definition.after == (a.job_id,)


async def test_a_cycle_is_refused_and_its_path_named(bench: Bench) -> None:
    await scheduled(bench, "root")
    a = await bench.create(name="a", after=["root"])
    await bench.create(name="b", after=["a", "root"])
    await bench.create(name="c", after=["b", "root"])
    before = await bench.facts(a)
    with pytest.raises(InvalidInput) as refusal:
        await bench.edit(a, after=["root", "c"])
    assert refusal.value.field == "after"
    assert refusal.value.rule == "a job cannot wait for itself: a → c → b → a"
    assert await bench.facts(a) == before
    with pytest.raises(InvalidInput, match="cannot wait for itself: a → a"):
        await bench.edit(a, after=["a"])
    with pytest.raises(InvalidInput, match="cannot wait for itself: a → b → a"):
        await bench.registry.put(bench.tenant, request(name="a", after=["b"]))


async def test_a_diamond_is_no_cycle(bench: Bench) -> None:
    await scheduled(bench, "top")
    await bench.create(name="left", after=["top"])
    await bench.create(name="right", after=["top"])
    bottom = await bench.create(name="bottom", after=["left", "right"])
    assert len(await parents(bench, bottom)) == 2


async def test_edits_at_once_make_no_cycle(bench: Bench) -> None:
    """Each of them alone would be fine; together they would be a ring."""
    for _ in range(3):
        jobs = [await bench.create(handler="h", schedule="@daily") for _ in range(4)]
        edits = [
            bench.another_registry().edit(bench.tenant, job.id, {"after": [parent.job_id]})
            for job, parent in zip(jobs, [*jobs[1:], jobs[0]], strict=True)
        ]
        answers = await asyncio.gather(*edits, return_exceptions=True)
        refused = [answer for answer in answers if isinstance(answer, BaseException)]
        assert len(refused) == 1
        assert isinstance(refused[0], InvalidInput)


async def test_a_change_of_parents_waits_for_another_of_the_tenant(bench: Bench) -> None:
    a, b = await scheduled(bench, "a", "b")
    lock = "SELECT pg_advisory_xact_lock(1836278896, $1)"
    async with bench.holding(lock, bench.tenant) as first:
        second = asyncio.create_task(bench.edit(b, after=["a"]))
        await bench.until_waiting(first)
        await first.execute("INSERT INTO dependencies VALUES ($1, $2)", a.id, b.id)
    with pytest.raises(InvalidInput, match="cannot wait for itself: b → a → b"):
        await second


async def test_other_changes_do_not_wait_for_a_change_of_parents(bench: Bench) -> None:
    a, b = await scheduled(bench, "a", "b")
    async with (
        bench.holding("SELECT pg_advisory_xact_lock(1836278896, $1)", bench.tenant),
        asyncio.timeout(30),
    ):
        await bench.edit(a, payload=1)
        await bench.create(name="c", schedule="@daily")
        await bench.registry.pause(bench.tenant, b.id)
        await bench.registry.delete(bench.tenant, b.id)


async def test_a_parent_deleted_at_the_same_time_is_not_waited_for(bench: Bench) -> None:
    """Either the create comes first and the delete removes the dependency, or the parent is not found."""
    for _ in range(5):
        [parent] = await scheduled(bench, "parent")
        created, deleted = await asyncio.gather(
            bench.create(handler="h", after=["parent"]),
            bench.registry.delete(bench.tenant, parent.id),
            return_exceptions=True,
        )
        assert deleted is None
        assert isinstance(created, Job | InvalidInput)
        assert await bench.fetch("SELECT FROM dependencies WHERE parent_id = $1", parent.id) == []


async def test_a_create_holds_its_parents_until_it_is_done(bench: Bench) -> None:
    """The delete of a parent that a create has seen waits, and then finds the dependency."""
    [parent] = await scheduled(bench, "parent")
    async with bench.holding("SELECT FROM jobs WHERE id = $1 FOR NO KEY UPDATE", parent.id) as delete:
        create = asyncio.create_task(bench.create(name="child", after=["parent"]))
        await bench.until_waiting(delete)
        await delete.execute("UPDATE jobs SET status = 'deleted', closed_at = now() WHERE id = $1", parent.id)
    with pytest.raises(InvalidInput, match="'parent' is not a job of this tenant"):
        await create
