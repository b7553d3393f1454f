"""Postgres, Kafka or the way to Kafka is away while workers run, and comes back: nobody needs a restart.

The stack here is this module's own, because its servers are killed; its broker can also be reached through a
proxy, on an address that it tells to those who come that way.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import asyncpg
import pytest

from mainspring.local import LocalStack
from mainspring.local.ports import HOST, free_port
from mainspring.schema.migrate import migrate
from tests.acceptance.waiting import until
from tests.acceptance.worker.fleet import Fleet
from tests.acceptance.worker.proxy import Proxy
from tests.acceptance.worker.status import ask, numbers
from tests.integration.local.environments import own

AWAY_SECONDS = 20
"""Longer than the silence after which a worker is dead."""


@pytest.fixture(scope="module")
def forwarder() -> int:
    """The port of the proxy before the broker."""
    return free_port()


@pytest.fixture(scope="module")
def fragile_stack(forwarder: int) -> Iterator[LocalStack]:
    """A stack whose servers may be killed; never somebody else's."""
    with asyncio.Runner() as runner:
        stack = LocalStack(environment=own(), kafka_forwarder=f"{HOST}:{forwarder}")
        runner.run(stack.start())
        try:
            yield stack
        finally:
            runner.run(stack.stop())


@pytest.fixture
async def fragile(fragile_stack: LocalStack, tmp_path: Path) -> AsyncIterator[Fleet]:
    """A fleet on it; afterwards every server runs again."""
    server = fragile_stack.environment()["MAINSPRING_POSTGRES_DSN"]
    name = f"test_{uuid4().hex}"
    dsn = urlunsplit(urlsplit(server)._replace(path=f"/{name}"))
    connection = await asyncpg.connect(server)
    await connection.execute(f"CREATE DATABASE {name}")
    await connection.close()
    connection = await asyncpg.connect(dsn)
    await migrate(connection, shards=64)
    await connection.close()
    try:
        async with Fleet.on(fragile_stack, dsn, tmp_path) as fleet:
            yield fleet
    finally:
        for member in fragile_stack.members:
            await member.start()


async def test_nobody_is_dead_because_postgres_was_away(fragile: Fleet, fragile_stack: LocalStack) -> None:
    workers = [await fragile.start(concurrency=50), await fragile.start(concurrency=50)]
    long = await fragile.register(10, payload={"seconds": 300})
    await until(lambda: len(fragile.journal.of("start", long)) == 10, "the long runs are under way")
    short = await fragile.register(150, payload={"seconds": 3})
    await until(lambda: len(fragile.journal.of("start", short)) >= 50, "the short runs are under way")
    under_way = {line.occurrence for line in fragile.journal.of("start", short)}
    postgres = fragile_stack.postgres
    assert postgres is not None
    await postgres.kill()
    await asyncio.sleep(AWAY_SECONDS)
    for worker in workers:
        status, answer = await ask(worker, "/readyz")
        assert (status, answer["alive"], answer["ready"]) == (503, True, False)
        assert "postgres does not answer" in answer["reasons"][0]
    await postgres.start()

    verdict = await fragile.verdict([*long, *short])
    verdict.assert_all_succeeded()
    assert not await fragile.books.dead_workers()
    assert not [event for each in fragile.schedulers for event in each.events("worker_dead")]
    assert [len(worker.identities) for worker in workers] == [1, 1]
    runs = await fragile.books.runs()
    lost = [run for run in runs if run.status == "lost"]
    assert {run.occurrence for run in lost} >= set(long), "they were stopped in time, by their own worker"
    assert not [run for run in lost if run.reaped_at is not None]
    assert not {run.occurrence for run in lost} & under_way
    assert len(fragile.journal.of("start", short)) == 150
    fragile.assert_sound()


async def test_a_broker_that_is_killed_costs_no_run(fragile: Fleet, fragile_stack: LocalStack) -> None:
    workers = [await fragile.start(concurrency=50), await fragile.start(concurrency=50)]
    before = await fragile.register(200, payload={"seconds": 2})
    await until(lambda: len(fragile.journal.of("start")) >= 50, "runs are under way")
    [broker] = fragile_stack.brokers
    await broker.kill()
    claimed = {line.occurrence for line in fragile.journal.of("start")}
    await until(lambda: len(fragile.journal.of("end", claimed)) == len(claimed), "they end without Kafka")
    during = await fragile.register(100, payload={"seconds": 0.5})
    await until(
        lambda: all(process.events("messages_refused") for process in fragile.schedulers),
        "what is due meanwhile waits",
    )
    await broker.start()
    verdict = await fragile.verdict([*before, *during])
    verdict.assert_all_succeeded()
    assert verdict.attempts == {1: 300}
    assert not await fragile.books.dead_workers()
    assert [len(worker.identities) for worker in workers] == [1, 1]
    fragile.assert_sound()


async def test_a_worker_cut_off_from_kafka_ends_what_it_has_and_others_take_its_partitions(
    fragile: Fleet, fragile_stack: LocalStack, forwarder: int
) -> None:
    [broker] = fragile_stack.brokers
    async with Proxy.listening(broker.forwarded_address, forwarder) as proxy:
        lonely = await fragile.start(concurrency=50, variables={"MAINSPRING_KAFKA": proxy.address})
        mine = await fragile.register(50, payload={"seconds": 3})
        await fragile.under_way(lonely, 50)
        assert proxy.connections > 1, "also what the broker told it leads through the proxy"
        proxy.silence()
        await fragile.start(concurrency=50)
        theirs = await fragile.register(100, payload={"seconds": 0.2})
        await fragile.settled([*mine, *theirs])
        assert {line.pid for line in fragile.journal.of("end", mine)} == {lonely.pid}
        assert lonely.pid not in {line.pid for line in fragile.journal.of("end", theirs)}

        proxy.restore()
        more = []

        async def takes_part() -> bool:
            more.extend(await fragile.register(20, payload={"seconds": 0.2}))
            return lonely.pid in {line.pid for line in fragile.journal.of("start", more)}

        await until(takes_part, "it takes part again", pause=1)
        verdict = await fragile.verdict([*mine, *theirs, *more])
        verdict.assert_all_succeeded()
        assert verdict.attempts == {1: 150 + len(more)}
        assert (await numbers(lonely))["mainspring_worker_runs_claimed_total"] > 50
        assert not await fragile.books.dead_workers()
        fragile.assert_sound()
