"""A part of the stack is killed while the schedulers run, and comes back: they need no restart.

The stack here is this module's own, because its servers are killed. MAINSPRING_TEST_OUTAGE sets how many
seconds etcd and Postgres stay away (default 12).
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import asyncpg
import pytest

from mainspring.local import LocalStack
from mainspring.schema.migrate import migrate
from tests.acceptance.reports import Report
from tests.acceptance.scheduler.cluster import SHARDS, Cluster
from tests.acceptance.waiting import until
from tests.integration.local.environments import own

OUTAGE = float(os.environ.get("MAINSPRING_TEST_OUTAGE", "12"))
"""Seconds of schedule that pass while a part is away: four leases, and longer than a process is patient."""


@pytest.fixture(scope="module")
def fragile_stack() -> Iterator[LocalStack]:
    """A stack whose servers may be killed; never somebody else's."""
    with asyncio.Runner() as runner:
        stack = LocalStack(etcd=3, environment=own())
        runner.run(stack.start())
        try:
            yield stack
        finally:
            runner.run(stack.stop())


@pytest.fixture
async def fragile(fragile_stack: LocalStack, tmp_path: Path) -> AsyncIterator[Cluster]:
    """A cluster on it; afterwards every server runs again."""
    name = f"test_{uuid4().hex}"
    server = fragile_stack.environment()["MAINSPRING_POSTGRES_DSN"]
    dsn = urlunsplit(urlsplit(server)._replace(path=f"/{name}"))
    connection = await asyncpg.connect(server)
    await connection.execute(f"CREATE DATABASE {name}")
    await connection.close()
    connection = await asyncpg.connect(dsn)
    await migrate(connection, shards=SHARDS)
    await connection.close()
    try:
        async with Cluster.on(fragile_stack, dsn, tmp_path) as cluster:
            yield cluster
    finally:
        for member in fragile_stack.members:
            if member.pid is None:
                member.launch()
        for member in fragile_stack.members:
            await member.wait_ready()


async def test_without_etcd_firing_goes_on_and_nobody_is_elected(
    fragile: Cluster, fragile_stack: LocalStack, report: Report
) -> None:
    jobs = await fragile.register(300)
    first, second = await fragile.start(2)
    epochs = fragile.observer.epochs()
    for member in fragile_stack.etcd:
        await member.kill()
    gone_at = time.time()
    newcomer = fragile.launch()
    await newcomer.introduced()
    await fragile.marks_pass(gone_at + OUTAGE)
    assert fragile.observer.epochs() == epochs
    for member in fragile_stack.etcd:
        member.launch()
    for member in fragile_stack.etcd:
        await member.wait_ready()
    back_at = time.time()
    await fragile.even()
    assert fragile.observer.led_by(newcomer.identity)
    await first.kill()
    await fragile.even()
    assert second.running
    verdict = await fragile.verdict(jobs)
    report(f"etcd away for {back_at - gone_at:.1f} s, {verdict.figures()}")
    assert not verdict.unordered


async def test_without_postgres_recurring_jobs_fire_on_from_the_wheel_and_the_marks_wait(
    fragile: Cluster, fragile_stack: LocalStack, report: Report
) -> None:
    jobs = await fragile.register(300)
    await fragile.start(2)
    epochs = fragile.observer.epochs()
    shards = {job.shard for job in jobs}
    postgres = fragile_stack.postgres
    assert postgres is not None
    await postgres.kill()
    gone_at = time.time()
    await until(
        lambda: all(fragile.recorder.reached(shard, int(gone_at + OUTAGE)) for shard in shards),
        "every shard has fired through the outage",
    )
    assert max(row.mark for row in fragile.observer.shards.values()) <= gone_at
    await postgres.start()
    back_at = time.time()
    await fragile.marks_pass(back_at)
    assert fragile.observer.epochs() == epochs
    verdict = await fragile.verdict(jobs)
    report(f"postgres away for {back_at - gone_at:.1f} s, {verdict.figures()}")
    assert not verdict.repeated


async def test_without_kafka_buckets_wait_in_order_and_are_published_when_it_is_back(
    fragile: Cluster, fragile_stack: LocalStack, report: Report
) -> None:
    jobs = await fragile.register(300)
    leaving, staying = await fragile.start(2)
    led = fragile.observer.led_by(staying.identity)
    [broker] = fragile_stack.brokers
    await broker.kill()
    gone_at = time.time()
    await until(
        lambda: all(process.events("messages_refused") for process in (leaving, staying)), "buckets wait"
    )
    assert max(row.mark for row in fragile.observer.shards.values()) <= gone_at
    assert await leaving.terminate() == 0, "a scheduler that waits for Kafka can be stopped"
    await broker.start()
    back_at = time.time()
    await fragile.marks_pass(back_at)
    assert all(fragile.observer.shards[shard].epoch == row.epoch for shard, row in led.items())
    verdict = await fragile.verdict(jobs)
    report(f"kafka away for {back_at - gone_at:.1f} s, {verdict.figures()}")
    assert not verdict.overtaken
