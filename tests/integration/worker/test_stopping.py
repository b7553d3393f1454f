"""A worker that is told to stop ends what it can and hands back the rest, which is then due at once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import MutableMapping
from typing import Any

import pytest

from mainspring.worker import Context
from mainspring.worker.batches import Why
from mainspring.worker.claiming import DeclaredDead
from tests.integration.worker.apps import Gate, app_of
from tests.integration.worker.bench import PATIENCE, Bench

Events = list[MutableMapping[str, Any]]


async def drains(events: Events) -> None:
    """Wait until a worker has left its groups, and waits for what is running."""
    async with asyncio.timeout(PATIENCE):
        while all(each["event"] != "worker_drains" for each in events):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_what_is_running_ends_within_the_grace(bench: Bench, events: Events) -> None:
    job = await bench.job()
    gate = Gate()
    await bench.make_topic()
    async with bench.living(gate.app, grace=60) as living:
        await bench.publish(await bench.raw(job))
        await bench.until_status(job, "running")
        living.stop.set()
        await drains(events)
        gate.open.set()
        await living.ended()
    assert await bench.statuses(job) == [(0, 1, "succeeded")]
    assert await bench.value("SELECT stopped_at IS NOT NULL AND dead_at IS NULL FROM workers")


async def test_what_does_not_end_within_the_grace_is_handed_back_and_spends_no_retry(bench: Bench) -> None:
    job = await bench.job(max_retries=1)
    gate = Gate()
    await bench.make_topic()
    async with bench.living(gate.app, grace=0.2) as living:
        await bench.publish(await bench.raw(job, attempt=2, retries=1))
        await bench.until_status(job, "running")
        living.stop.set()
        await living.ended()
    assert len(gate.stopped) == 1
    assert await bench.statuses(job) == [(0, 2, "lost")]
    assert await bench.failures(job) == [(2, "lost", "handed back: the worker stops")]
    assert await bench.timers(job) == [(0, 3, 1, 0, "retry")]
    assert await bench.value("SELECT due_at <= now() FROM timers")


async def test_an_abort_hands_back_at_once(bench: Bench, events: Events) -> None:
    job = await bench.job()
    gate = Gate()
    await bench.make_topic()
    async with bench.living(gate.app, grace=3600) as living:
        await bench.publish(await bench.raw(job))
        await bench.until_status(job, "running")
        living.stop.set()
        await drains(events)
        living.abort.set()
        await living.ended()
    assert await bench.statuses(job) == [(0, 1, "lost")]
    assert await bench.timers(job) == [(0, 2, 0, 0, "retry")]


async def test_claimed_runs_that_have_not_begun_are_handed_back_too(bench: Bench) -> None:
    jobs = await bench.jobs(3)
    hands = await bench.hands(Gate().app, concurrency=1)
    await hands.start(*[await bench.message(job) for job in jobs])
    hands.executor.stop_all(Why.HANDED_BACK, "the worker stops")
    await hands.finish()
    for job in jobs:
        assert await bench.statuses(job) == [(0, 1, "lost")]
        assert await bench.timers(job) == [(0, 2, 0, 0, "retry")]


async def test_a_thread_that_ignores_the_stop_is_left_behind_and_its_run_handed_back(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mainspring.worker.executing.PATIENCE_SECONDS", 0.3)
    job = await bench.job()
    let_go = threading.Event()

    def deaf(context: Context) -> None:
        let_go.wait(60)

    await bench.make_topic()
    try:
        async with bench.living(app_of(deaf), grace=0) as living:
            await bench.publish(await bench.raw(job))
            await bench.until_status(job, "running")
            living.stop.set()
            await living.ended()
    finally:
        let_go.set()
    assert await bench.statuses(job) == [(0, 1, "lost")]
    assert await bench.timers(job) == [(0, 2, 0, 0, "retry")]


async def test_who_stops_claims_nothing_more_and_leaves_its_partitions_to_others(
    bench: Bench, events: Events, long_sessions: None
) -> None:
    first, second = await bench.jobs(2)
    gate, other = Gate(), Gate()
    other.open.set()
    await bench.make_topic()
    async with bench.living(gate.app, name="stopping") as stopping:
        await bench.publish(await bench.raw(first))
        await bench.until_status(first, "running")
        stopping.stop.set()
        await drains(events)
        await bench.publish(await bench.raw(second))
        async with bench.living(other.app, name="another"):
            await bench.until_ended(second)
        assert await bench.statuses(first) == [(0, 1, "running")]
        gate.open.set()
        await stopping.ended()
    assert await bench.statuses(first) == [(0, 1, "succeeded")]
    assert (len(gate.entered), len(other.entered)) == (1, 1)


async def test_a_life_that_is_declared_dead_ends_and_writes_nothing_more(bench: Bench) -> None:
    job = await bench.job()
    gate = Gate()
    await bench.make_topic()
    async with bench.living(gate.app) as living:
        await bench.publish(await bench.raw(job))
        await bench.until_status(job, "running")
        await bench.execute("UPDATE workers SET dead_at = now()")
        with pytest.raises(ExceptionGroup) as ended:
            await living.ended()
    assert ended.group_contains(DeclaredDead)
    assert len(gate.stopped) == 1
    assert await bench.statuses(job) == [(0, 1, "running")]
    assert await bench.count("timers") == 0
