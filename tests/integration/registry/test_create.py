"""What a create leaves in Postgres."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from mainspring.schedule import format_instant, jitter_hash, parse_instant
from mainspring.schema.errors import InvalidInput, NameTaken, NotFound
from mainspring.schema.messages import decode_job
from mainspring.schema.sharding import shard_of
from tests.integration.registry.bench import SHARDS, Bench, request
from tests.unit.registry.test_definition import EVERY_FIELD


async def test_a_created_job_is_read_back_as_it_was_requested(bench: Bench) -> None:
    created = await bench.create(**EVERY_FIELD)
    assert created.definition == request(**EVERY_FIELD)
    assert (created.version, created.status, created.tenant_id) == (1, "active", bench.tenant)
    assert created.shard == shard_of(created.id, SHARDS)
    assert created.valid_from == created.created_at == created.updated_at
    read = [
        await bench.registry.get(bench.tenant, created.id),
        await bench.registry.get_by_name(bench.tenant, "report"),
        await bench.registry.find(bench.tenant, "report"),
        await bench.registry.find(bench.tenant, created.job_id),
    ]
    assert all(replace(job, read_at=created.read_at) == created for job in read)


async def test_a_create_tells_the_feed_by_which_transaction_it_was_made(bench: Bench) -> None:
    facts = await bench.facts(await bench.create(name="a", schedule="@daily"))
    assert facts.changed % 2**32 == facts.written_by


async def test_the_ready_bytes_are_stored_with_the_job(bench: Bench) -> None:
    job = await bench.create(name="a", schedule="@daily", payload={"x": 1})
    stored = decode_job(await bench.value("SELECT body FROM jobs WHERE id = $1", job.id))
    assert (stored.job_id, stored.tenant_id, stored.version) == (job.id, bench.tenant, 1)
    assert stored.payload() == {"x": 1}


async def test_a_recurring_job_joins_the_cadence_of_its_shard(bench: Bench) -> None:
    job = await bench.create(
        name="a", schedule="30 2 * * MON", timezone="Asia/Tokyo", dst={"gap": "skip", "repeat": "both"}
    )
    row = await bench.fetch(
        "SELECT shard, kind, expression, timezone, dst_gap, dst_repeat, phase, next_at = '-infinity'"
        " FROM cadences WHERE id = $1",
        job.cadence_id,
    )
    assert row == [(job.shard, "cron", "30 2 * * 1", "Asia/Tokyo", "skip", "both", 0, True)]
    assert await bench.timers(job) == []


async def test_jobs_of_one_schedule_share_one_cadence_per_shard(bench: Bench) -> None:
    spellings = ["every 17m", "every PT17M", "EVERY 1020"]
    jobs = [
        await registry.create(bench.tenant, request(handler="h", schedule=schedule))
        for registry in (bench.registry, bench.another_registry())
        for schedule in spellings * 3
    ]
    cadences = {(job.shard, job.cadence_id) for job in jobs}
    assert len(cadences) == len({job.shard for job in jobs})


async def test_a_one_off_has_a_timer_and_no_cadence(bench: Bench) -> None:
    instant = await bench.in_one_hour()
    job = await bench.create(name="a", schedule=format_instant(instant), jitter_seconds=100)
    due = instant + timedelta(seconds=jitter_hash(job.id) % 100)
    assert await bench.timers(job) == [(instant, due, 1, "one_off")]
    assert job.cadence_id is None
    assert job.next_run_at == due


async def test_a_one_off_of_the_past_is_due_at_once(bench: Bench) -> None:
    job = await bench.create(name="a", schedule="2001-01-01T00:00:00Z")
    assert [timer[1] for timer in await bench.timers(job)] == [parse_instant("2001-01-01T00:00:00Z")]


async def test_the_jitter_of_a_cadence_is_its_members_longest_and_only_grows(bench: Bench) -> None:
    async def longest(cadence_id: int | None) -> Any:
        return await bench.value("SELECT max_jitter FROM cadences WHERE id = $1", cadence_id)

    jitters: dict[int | None, list[int]] = {}
    for jitter in (5, 300, 0, 20, 7, 300, 1, 2) * 2:
        job = await bench.create(handler="h", schedule="*/19 * * * *", jitter_seconds=jitter)
        jitters.setdefault(job.cadence_id, []).append(jitter)
        assert await longest(job.cadence_id) == max(jitters[job.cadence_id])


async def test_the_cadence_is_committed_before_the_job(bench: Bench) -> None:
    await bench.create(name="taken", schedule="@daily")
    with pytest.raises(NameTaken):
        await bench.create(name="taken", schedule="*/23 * * * *", jitter_seconds=77)
    assert await bench.fetch("SELECT max_jitter FROM cadences WHERE expression = '*/23 * * * *'") == [(77,)]


async def test_a_name_is_taken_once_per_tenant(bench: Bench) -> None:
    await bench.create(name="a", schedule="@daily")
    with pytest.raises(NameTaken) as refusal:
        await bench.create(name="a", schedule="@hourly")
    assert refusal.value.names == ("a",)
    assert await bench.jobs() == 1
    other = await bench.value("INSERT INTO tenants (name) VALUES ('other-tenant') RETURNING id")
    assert (await bench.registry.create(other, request(name="a", schedule="@daily"))).tenant_id == other


async def test_jobs_without_a_name_are_many(bench: Bench) -> None:
    for _ in range(3):
        await bench.create(handler="h", schedule="@daily")
    assert await bench.jobs() == 3


async def test_an_unknown_tenant_has_no_jobs(bench: Bench) -> None:
    with pytest.raises(NotFound) as refusal:
        await bench.registry.create(2_000_000_000, request(name="a", schedule="@daily"))
    assert refusal.value.what == "tenant"


async def test_another_tenants_job_does_not_exist(bench: Bench) -> None:
    job = await bench.create(name="a", schedule="@daily")
    for act in (
        bench.registry.get(1, job.id),
        bench.registry.get_by_name(1, "a"),
        bench.registry.find(1, job.job_id),
        bench.registry.edit(1, job.id, {"payload": 1}),
        bench.registry.pause(1, job.id),
        bench.registry.resume(1, job.id),
        bench.registry.delete(1, job.id),
        bench.registry.trigger(1, job.id),
    ):
        with pytest.raises(NotFound) as refusal:
            await act
        assert refusal.value.what == "job"
    assert (await bench.facts(job)).version == 1


@pytest.mark.parametrize("name", ["nobody", "", "a\x00b", "\ud800", "x" * 201])
async def test_a_name_that_no_job_has_is_not_found(bench: Bench, name: str) -> None:
    with pytest.raises(NotFound) as refusal:
        await bench.registry.find(bench.tenant, name)
    assert refusal.value.what == "job"
    str(refusal.value).encode()


async def test_every_column_is_written_by_one_create_or_another(bench: Bench) -> None:
    """A column that the registry forgets would keep its default for ever."""
    await bench.create(**EVERY_FIELD)
    parent = await bench.create(name="parent", schedule="every 1h", phase_seconds=60)
    await bench.create(name="waiting", after=[parent.job_id], on_failure="run")
    await bench.create(name="once", schedule="2027-01-01T00:00:00Z")
    columns = await bench.fetch(
        "SELECT column_name, column_default FROM information_schema.columns WHERE table_name = 'jobs'"
    )
    by_the_database = {"version", "changed", "status", "valid_from", "created_at", "updated_at"}
    only_later = {"paused_reason", "resume_at", "closed_at"}
    for column, default in columns:
        if column not in by_the_database | only_later:
            touched = await bench.value(
                "SELECT count(*) FROM jobs"
                f" WHERE tenant_id = $1 AND {column} IS DISTINCT FROM {default or 'NULL'}",
                bench.tenant,
            )
            assert touched, column


async def test_put_needs_a_name(bench: Bench) -> None:
    with pytest.raises(InvalidInput, match="name: is missing"):
        await bench.registry.put(bench.tenant, request(handler="h", schedule="@daily"))
