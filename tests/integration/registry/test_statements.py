"""What each change costs: as many statements as its docstring says."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from mainspring.registry import Registry
from mainspring.schema import queries
from mainspring.schema.queries import load
from tests.integration.registry.bench import SHARDS, Bench, request

OURS = frozenset(load(Path(queries.__file__).parent / "queries").values())
NEW_YEAR, DAY_AFTER = "2027-01-01T00:00:00Z", "2027-01-02T00:00:00Z"


class Counting:
    """Counts named queries; not transactions, nor what the driver asks on its own."""

    def __init__(self) -> None:
        self.statements: list[str] = []

    async def listen(self, connection: Any) -> None:
        connection.add_query_logger(lambda record: self.statements.append(record.query))

    async def cost(self, change: Awaitable[Any]) -> int:
        self.statements.clear()
        await change
        return sum(statement in OURS for statement in self.statements)


@pytest.fixture
async def counting() -> Counting:
    return Counting()


@pytest.fixture
async def registry(bench: Bench, counting: Counting) -> AsyncIterator[Registry]:
    async with asyncpg.create_pool(bench.dsn, min_size=1, max_size=1, init=counting.listen) as pool:
        registry = Registry(pool, shards=SHARDS)
        daily = [request(handler="h", schedule="@daily")] * 16 * SHARDS
        await registry.create_many(bench.tenant, daily)  # from now on every shard's cadence is known
        yield registry


async def test_each_change_costs_what_it_says(bench: Bench, counting: Counting, registry: Registry) -> None:
    cost, tenant = counting.cost, bench.tenant
    assert await cost(registry.create(tenant, request(name="cron", schedule="@daily"))) == 2
    assert await cost(registry.create(tenant, request(name="once", schedule=NEW_YEAR))) == 3
    assert await cost(registry.create(tenant, request(name="waits", after=["cron"]))) == 4
    cron, once, waits = [(await registry.find(tenant, name)).id for name in ("cron", "once", "waits")]
    assert await cost(registry.get(tenant, cron)) == 1
    assert await cost(registry.get_by_name(tenant, "cron")) == 1
    assert await cost(registry.edit(tenant, cron, {"payload": 1})) == 4
    assert await cost(registry.edit(tenant, cron, {"payload": 1})) == 2
    assert await cost(registry.edit(tenant, once, {"schedule": DAY_AFTER})) == 6
    assert await cost(registry.edit(tenant, waits, {"after": ["once"]})) == 9
    assert await cost(registry.put(tenant, request(name="cron", schedule="@daily"))) == 4
    assert await cost(registry.put(tenant, request(name="other", schedule="@daily"))) == 3
    assert await cost(registry.pause(tenant, cron)) == 4
    assert await cost(registry.resume(tenant, cron)) == 5
    await registry.pause(tenant, once)
    assert await cost(registry.resume(tenant, once)) == 6
    assert await cost(registry.trigger(tenant, cron)) == 2
    assert await cost(registry.delete(tenant, cron)) == 3


async def test_a_hundred_jobs_cost_no_statement_but_their_copies(
    bench: Bench, counting: Counting, registry: Registry
) -> None:
    recurring = [request(handler="h", schedule="@daily")] * 100
    once = [request(handler="h", schedule=NEW_YEAR)] * 100
    assert await counting.cost(registry.create_many(bench.tenant, [*recurring, *once])) == 0
    parent = await registry.create(bench.tenant, request(name="parent", schedule="@daily"))
    waiting = [request(handler="h", after=[parent.job_id])] * 100
    assert await counting.cost(registry.create_many(bench.tenant, waiting)) == 1


async def test_a_schedule_nobody_had_costs_one_short_transaction_more(
    bench: Bench, counting: Counting, registry: Registry
) -> None:
    new = request(handler="h", schedule="10 10 10 10 *", jitter_seconds=5)
    assert await counting.cost(registry.create(bench.tenant, new)) == 2 + 4
