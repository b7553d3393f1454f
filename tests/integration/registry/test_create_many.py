"""Many jobs at once are what as many creates would have made, or nothing."""

from __future__ import annotations

from datetime import timedelta

import pytest

from mainspring.registry import JobRequest
from mainspring.schedule import jitter_hash
from mainspring.schema.errors import InvalidInput, NameTaken, NotFound
from tests.integration.registry.bench import Bench, request
from tests.unit.registry.test_definition import EVERY_FIELD


async def read(bench: Bench, ids: list[int]) -> list[JobRequest]:
    return [(await bench.registry.get(bench.tenant, job_id)).definition for job_id in ids]


async def test_every_kind_is_written_as_a_create_would(bench: Bench) -> None:
    requests = [
        request(**EVERY_FIELD),
        request(handler="h", schedule="every 1h", phase_seconds=7, jitter_seconds=3),
        request(name="once", schedule="2027-01-01T00:00:00Z", jitter_seconds=100),
    ]
    ids = await bench.registry.create_many(bench.tenant, requests)
    assert await read(bench, ids) == requests
    for job_id in ids:
        job = await bench.registry.get(bench.tenant, job_id)
        facts = await bench.facts(job)
        assert (job.version, job.status, job.valid_from) == (1, "active", job.created_at)
        assert facts.changed % 2**32 == facts.written_by
        twin = await bench.create(**{**job.definition.as_mapping(), "name": f"twin-{job_id}"})
        if twin.shard == job.shard:
            assert twin.cadence_id == job.cadence_id
    once = await bench.registry.get(bench.tenant, ids[2])
    run_at = once.definition.run_at
    assert run_at is not None
    due = run_at + timedelta(seconds=jitter_hash(once.id) % 100)
    assert await bench.timers(once) == [(run_at, due, 1, "one_off")]


async def test_ids_come_in_the_order_of_the_requests(bench: Bench) -> None:
    requests = [request(name=f"job-{number}", schedule="@daily", payload=number) for number in range(3000)]
    ids = await bench.registry.create_many(bench.tenant, requests)
    rows = await bench.fetch("SELECT id, name FROM jobs WHERE tenant_id = $1", bench.tenant)
    assert dict(rows) == {job_id: each.name for job_id, each in zip(ids, requests, strict=True)}


async def test_nothing_asked_is_nothing_done(bench: Bench) -> None:
    assert await bench.registry.create_many(bench.tenant, []) == []


async def test_names_that_exist_are_named_and_nothing_is_written(bench: Bench) -> None:
    await bench.create(name="job-3", schedule="@daily")
    await bench.create(name="job-7", schedule="@daily")
    requests = [request(name=f"job-{number}", schedule="2027-01-01T00:00:00Z") for number in range(10)]
    with pytest.raises(NameTaken) as refusal:
        await bench.registry.create_many(bench.tenant, requests)
    assert refusal.value.names == ("job-3", "job-7")
    assert await bench.jobs() == 2
    assert await bench.value(
        "SELECT count(*) FROM timers JOIN jobs ON jobs.id = job_id WHERE tenant_id = $1", bench.tenant
    ) == 0  # fmt: skip


async def test_a_name_may_not_come_twice(bench: Bench) -> None:
    with pytest.raises(NameTaken) as refusal:
        await bench.registry.create_many(
            bench.tenant, [request(name=name, schedule="@daily") for name in ("a", "b", "a")]
        )
    assert refusal.value.names == ("a",)
    assert await bench.jobs() == 0


async def test_the_longest_jitter_of_a_cadence_is_raised(bench: Bench) -> None:
    requests = [request(handler="h", schedule="*/37 * * * *", jitter_seconds=number) for number in range(100)]
    ids = await bench.registry.create_many(bench.tenant, requests)
    for job_id in ids:
        assert await bench.value(
            "SELECT max_jitter >= jitter_seconds FROM jobs JOIN cadences ON cadences.id = cadence_id"
            " WHERE jobs.id = $1",
            job_id,
        )


async def test_a_parent_may_be_in_the_batch_or_before_it(bench: Bench) -> None:
    old = await bench.create(name="old", schedule="@daily")
    ids = await bench.registry.create_many(
        bench.tenant,
        [
            request(name="last", after=["middle", "old"]),
            request(name="middle", after=[old.job_id, "first"]),
            request(name="first", schedule="@daily"),
        ],
    )
    rows = await bench.fetch("SELECT job_id, parent_id FROM dependencies WHERE job_id = ANY($1)", ids)
    last, middle, first = ids
    assert set(rows) == {(last, middle), (last, old.id), (middle, old.id), (middle, first)}


@pytest.mark.parametrize(
    ("after", "rule"),
    [
        ({"a": ["b"], "b": ["c"], "c": ["a"]}, "a job cannot wait for itself: a → b → c → a"),
        ({"a": ["a"]}, "a job cannot wait for itself: a → a"),
        ({"a": ["b"], "b": ["nobody"]}, "'nobody' is not a job of this tenant"),
    ],
)
async def test_bad_parents_are_refused_and_nothing_is_written(
    bench: Bench, after: dict[str, list[str]], rule: str
) -> None:
    requests = [request(name=name, after=parents) for name, parents in after.items()]
    with pytest.raises(InvalidInput) as refusal:
        await bench.registry.create_many(bench.tenant, requests)
    assert refusal.value.rule == rule
    assert await bench.jobs() == 0


async def test_an_unknown_tenant_has_no_jobs(bench: Bench) -> None:
    with pytest.raises(NotFound, match="tenant"):
        await bench.registry.create_many(2_000_000_000, [request(name="a", schedule="@daily")])
