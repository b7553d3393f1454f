"""Run now: an instant of its own, every time."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import pytest

from mainspring.registry import Registry
from mainspring.schema.errors import WrongStatus
from mainspring.schema.ids import RunKey
from tests.integration.registry.bench import SHARDS, Bench


async def test_a_trigger_is_a_timer_due_now(bench: Bench) -> None:
    job = await bench.create(name="a", schedule="@daily")
    before = await bench.value("SELECT clock_timestamp()")
    key = await bench.registry.trigger(bench.tenant, job.id)
    after = await bench.value("SELECT clock_timestamp()")
    assert key == RunKey(job.id, key.scheduled_at, 1)
    assert before < key.scheduled_at < after
    assert await bench.timers(job) == [(key.scheduled_at, key.scheduled_at, 1, "trigger")]
    assert await bench.value("SELECT shard FROM timers WHERE job_id = $1", job.id) == job.shard


async def test_a_trigger_does_not_change_the_job(bench: Bench) -> None:
    job = await bench.create(name="a", schedule="@daily")
    before = await bench.facts(job)
    await bench.registry.trigger(bench.tenant, job.id)
    assert await bench.facts(job) == before


async def test_several_in_one_second_stay_several(bench: Bench) -> None:
    job = await bench.create(name="a", schedule="@daily")
    keys = await asyncio.gather(*(bench.registry.trigger(bench.tenant, job.id) for _ in range(40)))
    assert len(set(keys)) == len(await bench.timers(job)) == 40
    assert all(key.scheduled_at.microsecond for key in keys)


@pytest.mark.parametrize("body", [{"schedule": "2027-01-01T00:00:00Z"}, {"after": ["parent"]}])
async def test_every_kind_of_job_can_be_triggered(bench: Bench, body: dict[str, Any]) -> None:
    await bench.create(name="parent", schedule="@daily")
    job = await bench.create(name="a", **body)
    key = await bench.registry.trigger(bench.tenant, job.id)
    assert (key.scheduled_at, key.scheduled_at, 1, "trigger") in await bench.timers(job)


async def test_a_job_that_does_not_fire_is_not_triggered(bench: Bench) -> None:
    job = await bench.create(name="a", schedule="@daily")
    await bench.registry.pause(bench.tenant, job.id, reason="holiday")
    with pytest.raises(WrongStatus) as refusal:
        await bench.registry.trigger(bench.tenant, job.id)
    assert (refusal.value.status, refusal.value.reason) == ("paused", "holiday")
    assert await bench.timers(job) == []
    await bench.set_status(await bench.one_off(), "completed")
    done = await bench.one_off()
    await bench.set_status(done, "completed")
    with pytest.raises(WrongStatus, match="cannot trigger a job that is completed"):
        await bench.registry.trigger(bench.tenant, done.id)


async def triggers_by(bench: Bench, clock: str, times: int) -> list[int]:
    """The microseconds of triggers under a clock of our own, which stands before Postgres's in the path."""
    job = await bench.create(name="a", schedule="@daily")
    schema = f"clock_{bench.tenant}"
    await bench.fetch(f"CREATE SCHEMA {schema}")
    await bench.fetch(f"CREATE SEQUENCE {schema}.ticks")
    await bench.fetch(
        f"CREATE FUNCTION {schema}.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS"
        f" $$ SELECT timestamptz '2026-11-18 12:00:00+00' + ({clock}) * interval '1 microsecond'"
        f" FROM nextval('{schema}.ticks') AS tick $$"
    )
    settings = {"search_path": f"{schema}, pg_catalog, public"}
    async with asyncpg.create_pool(bench.dsn, min_size=1, max_size=1, server_settings=settings) as pool:
        registry = Registry(pool, shards=SHARDS)
        keys = [await registry.trigger(bench.tenant, job.id) for _ in range(times)]
    return [key.scheduled_at.microsecond for key in keys]


async def test_a_trigger_on_the_second_is_a_microsecond_after_it(bench: Bench) -> None:
    """A whole second would meet the cron occurrence of that second, and one of the two would not run."""
    assert await triggers_by(bench, "0", times=1) == [1]


async def test_triggers_in_one_microsecond_stay_several(bench: Bench) -> None:
    assert await triggers_by(bench, "5 + tick / 3", times=3) == [5, 6, 7]
