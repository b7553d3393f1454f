"""A rehearsal says what then happens, and leaves no trace: not in Postgres, not in Kafka, not at a worker."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import asyncpg
import pytest
from confluent_kafka.admin import AdminClient

from mainspring.scheduler.rehearsal import Line, Rehearsal, Second, Waiting
from mainspring.schema.errors import InvalidInput
from mainspring.settings import PostgresSettings
from tests.integration.scheduler.leader import PATIENCE
from tests.integration.scheduler.simulated import START, instant
from tests.integration.scheduler.stage import Stage

FIRST = START + 120
SECONDS = 61
TABLES = (
    *("jobs", "cadences", "shards", "timers", "ledger", "missed", "dead_letters", "dependencies"),
    *("runs", "claims", "workers", "audit"),
)


async def register(stage: Stage) -> None:
    """Of every kind: plain, hourly beyond the window, urgent, with jitter, with an end, one-off, paused."""
    await stage.create_many(4, "*/20 * * * * *")
    await stage.create_many(25, "2 * * * *", priority=9)
    await stage.create_many(3, "30 23 * * *")
    await stage.create_many(12, "1 * * * *", jitter_seconds=120, priority=1)
    await stage.create("*/10 * * * * *", ends_at=instant(FIRST + 25).isoformat())
    await stage.create_many(5, instant(FIRST + 7).isoformat())
    paused = await stage.create("* * * * * *")
    await stage.registry.pause(stage.tenant, paused.id)


def rehearsal(stage: Stage) -> Rehearsal:
    return Rehearsal(PostgresSettings(dsn=stage.dsn), stage.kafka)


async def rehearsed(stage: Stage, first: int = FIRST, seconds: int = SECONDS) -> list[Second]:
    told: list[Second] = []
    await rehearsal(stage).run(first, seconds, told.append)
    return told


async def everything(stage: Stage) -> dict[str, Any]:
    """Every row of every table, hidden columns included: a row written anew is another one."""
    return {
        table: sorted(await stage.fetch(f"SELECT t::text, xmin::text, ctid::text FROM {table} AS t"))
        for table in TABLES
    }


async def shadows(stage: Stage) -> list[str]:
    """Topics of a rehearsal of this test's pool that are there."""
    admin = AdminClient({**stage.kafka.librdkafka(), "log_level": 0})
    topics = (await asyncio.to_thread(admin.list_topics, timeout=PATIENCE)).topics
    return [name for name in topics if stage.name in name and "rehearsal" in name]


async def gone(stage: Stage) -> None:
    """Brokers learn of a deletion one after the other."""
    async with asyncio.timeout(PATIENCE):
        while await shadows(stage):  # noqa: ASYNC110  (a broker sets no event)
            await asyncio.sleep(0.05)


async def test_it_says_second_by_second_what_then_leaves(stage: Stage) -> None:
    await register(stage)
    told = await rehearsed(stage)
    leader = await stage.leading()
    await stage.at(FIRST - 1)
    await leader.live()
    for second in range(FIRST, FIRST + SECONDS):
        await stage.at(second)
        await leader.live()
    happened = Counter(
        (each.message.second, f"{stage.name}.{each.lane}")
        for each in await stage.published()
        if each.message.second >= FIRST
    )
    of_it = Counter({(each.second, lane): count for each in told for lane, count in each.lanes.items()})
    assert of_it == happened
    assert {f"{stage.name}.{lane}" for lane in ("high", "normal", "low")} == {lane for _, lane in of_it}


async def test_it_changes_nothing_in_postgres_and_publishes_nothing_to_workers(stage: Stage) -> None:
    await register(stage)
    before = await everything(stage)
    told = await rehearsed(stage)
    assert sum(each.messages for each in told) > 30
    assert await everything(stage) == before
    assert await stage.published() == []
    await gone(stage)


async def test_what_it_reads_with_may_not_write(stage: Stage) -> None:
    """Even by mistake: the server itself refuses."""
    async with rehearsal(stage)._parts(FIRST) as (loader, _, _):
        with pytest.raises(asyncpg.ReadOnlySQLTransactionError):
            await loader._pool.execute("UPDATE shards SET epoch = epoch + 1")


async def test_its_topics_are_there_while_it_runs_and_gone_when_it_is_stopped(stage: Stage) -> None:
    await stage.create_many(5)
    under_way = asyncio.Event()
    task = asyncio.create_task(rehearsal(stage).run(FIRST, 3600, lambda _: under_way.set()))
    async with asyncio.timeout(PATIENCE):
        await under_way.wait()
    found = await shadows(stage)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()
    assert len(found) == 3
    await gone(stage)


async def test_it_goes_on_beyond_the_window_that_is_held_in_memory(stage: Stage) -> None:
    jobs = await stage.create_many(6, "*/5 * * * *")
    told = await rehearsed(stage, START + 1, 1800)
    assert [each.second - START for each in told] == [300, 600, 900, 1200, 1500, 1800]
    assert {each.messages for each in told} == {len(jobs)}
    assert all(each.size > 48 * each.messages for each in told)


async def test_the_past_cannot_be_rehearsed(stage: Stage) -> None:
    await stage.at(FIRST + 1)
    with pytest.raises(InvalidInput, match="lies in the past"):
        await rehearsed(stage)


def test_a_second_that_takes_longer_than_one_makes_the_next_ones_wait() -> None:
    line = Line()
    took = ((0, 0.5), (1, 2.5), (2, 1.0), (9, 0.25))
    waits = [line.add(Second(START + at, 1, 1, {}, 0, seconds)) for at, seconds in took]
    assert waits == [Waiting(0, 0.5), Waiting(0, 2.5), Waiting(1.5, 2.5), Waiting(0, 0.25)]
