"""Create or replace by name, also by several at once."""

from __future__ import annotations

import asyncio

from mainspring.registry import Job
from tests.integration.registry.bench import Bench, request


async def test_put_creates_and_then_replaces_the_whole_definition(bench: Bench) -> None:
    first = request(name="a", schedule="@daily", payload=1, timeout_seconds=5)
    created, was_created = await bench.registry.put(bench.tenant, first)
    assert was_created
    assert created.definition == first
    second = request(name="a", schedule="@daily", payload=2)
    replaced, was_created = await bench.registry.put(bench.tenant, second)
    assert not was_created
    assert (replaced.id, replaced.version) == (created.id, 2)
    assert replaced.definition == second
    assert replaced.valid_from == created.valid_from


async def test_putting_the_same_again_changes_nothing(bench: Bench) -> None:
    body = {"name": "a", "schedule": "@daily", "payload": {"x": [1, 2]}, "labels": {"k": "v"}}
    job, _ = await bench.registry.put(bench.tenant, request(**body))
    before = await bench.facts(job)
    again, created = await bench.registry.put(bench.tenant, request(**body))
    assert not created
    assert again.version == 1
    assert await bench.facts(job) == before


async def test_a_paused_job_stays_paused_when_it_is_replaced(bench: Bench) -> None:
    job = await bench.create(name="a", schedule="@daily")
    await bench.registry.pause(bench.tenant, job.id, reason="holiday")
    replaced, _ = await bench.registry.put(bench.tenant, request(name="a", schedule="@hourly"))
    assert (replaced.status, replaced.paused_reason) == ("paused", "holiday")


async def test_a_name_of_a_deleted_job_makes_a_new_one(bench: Bench) -> None:
    job = await bench.create(name="a", schedule="@daily")
    await bench.registry.delete(bench.tenant, job.id)
    new, created = await bench.registry.put(bench.tenant, request(name="a", schedule="@daily"))
    assert created
    assert new.id != job.id


async def test_two_puts_at_once_make_one_job(bench: Bench) -> None:
    """The second finds nothing, meets the first's row in the index, and replaces it."""
    async with bench.holding(
        "INSERT INTO jobs (id, tenant_id, shard, name, kind, schedule, handler, body, run_at)"
        " VALUES (1 + floor(random() * 1e15)::bigint, $1, 0, 'a', 'at', '2027-01-01T00:00:00Z', 'h', $2,"
        " '2027-01-01T00:00:00Z')",
        bench.tenant,
        request(name="a", schedule="@daily").body(1, bench.tenant, 1),
    ) as first:
        second = asyncio.create_task(
            bench.registry.put(bench.tenant, request(name="a", schedule="@daily", payload="mine"))
        )
        await bench.until_waiting(first)
    job, created = await second
    assert not created
    assert job.definition.payload == "mine"
    assert await bench.jobs() == 1


async def test_many_puts_at_once_make_one_job_and_lose_none(bench: Bench) -> None:
    async def put(number: int) -> tuple[Job, bool]:
        body = request(name="a", schedule=f"every {1 + number % 3}h", payload=number)
        return await bench.another_registry().put(bench.tenant, body)

    answers = await asyncio.gather(*(put(number) for number in range(24)))
    assert sum(created for _, created in answers) == 1
    assert len({job.id for job, _ in answers}) == 1
    assert sorted(job.version for job, _ in answers) == list(range(1, 25))
    assert await bench.jobs() == 1


async def test_puts_and_deletes_at_once_end_in_one_job_or_none(bench: Bench) -> None:
    async def put(number: int) -> None:
        await bench.registry.put(bench.tenant, request(name="a", schedule="@daily", payload=number))

    async def delete() -> None:
        for (job_id,) in await bench.fetch(
            "SELECT id FROM jobs WHERE tenant_id = $1 AND status = 'active'", bench.tenant
        ):
            await bench.registry.delete(bench.tenant, job_id)

    for _ in range(3):
        await put(0)
        await asyncio.gather(*(put(number) for number in range(6)), delete())
        assert await bench.jobs() in (0, 1)
