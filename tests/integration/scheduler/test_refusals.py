"""Trap: one oversized message, one forbidden topic, one offline partition stops every shard."""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

from mainspring.kafka.publisher import Refused, Why
from mainspring.schema.messages import decode_job
from tests.integration.scheduler.leader import ALL, Leader
from tests.integration.scheduler.simulated import START, instant
from tests.integration.scheduler.stage import PARTITIONS, Stage


async def marks(stage: Stage) -> set[float]:
    return {await stage.mark(shard) for shard in ALL}


async def ledger(stage: Stage) -> Counter[tuple[int, float]]:
    rows = await stage.fetch("SELECT shard, second, published FROM ledger")
    return Counter({(shard, second.timestamp()): count for shard, second, count in rows})


async def in_topics(stage: Stage) -> Counter[tuple[int, float]]:
    """Messages by shard and second, counted by a reader."""
    return Counter((message.shard, float(message.second)) for _, message in await stage.published())


async def live(leader: Leader, seconds: range, stage: Stage) -> None:
    for second in seconds:
        await stage.at(START + second)
        await leader.live()


async def test_one_oversized_message_becomes_a_dead_letter_and_holds_nobody(stage: Stage) -> None:
    await stage.make_topic(max_message_bytes="10000")
    large = await stage.create("0 * * * * *", payload=os.urandom(10_000).hex())
    jobs = [await stage.create() for _ in range(20)]
    leader = await stage.leading()
    await live(leader, range(59, 62), stage)
    assert await marks(stage) == {61}
    instants = await stage.all_instants()
    assert large.id not in instants
    assert all(instants[job.id] == list(range(1, 62)) for job in jobs)
    [(job_id, scheduled_at, attempt, pool, reason, body)] = await stage.fetch(
        "SELECT job_id, scheduled_at, attempt, pool, reason, body FROM dead_letters"
    )
    assert (job_id, scheduled_at.timestamp(), attempt) == (large.id, START + 60, 1)
    assert (pool, reason) == (stage.name, "too_large")
    assert decode_job(body).payload() == large.definition.payload
    assert await ledger(stage) == await in_topics(stage)


async def test_a_second_whose_only_message_is_oversized_is_settled_at_the_first_try(
    stage: Stage, events: list[Any]
) -> None:
    await stage.make_topic(max_message_bytes="10000")
    await stage.create("0 * * * * *", payload=os.urandom(10_000).hex())
    leader = await stage.leading()
    await stage.at(START + 60)
    await leader.live()
    assert await marks(stage) == {60}
    assert await ledger(stage) == Counter()
    assert await stage.value("SELECT count(*) FROM dead_letters") == 1


async def test_a_refused_topic_becomes_timers_and_holds_nobody(stage: Stage) -> None:
    await stage.make_topic("high", cleanup_policy="compact")
    urgent = [await stage.create("0 * * * * *", priority=9) for _ in range(8)]
    one_off = await stage.create(schedule="2030-01-01T12:01:00Z", priority=9)
    others = [await stage.create() for _ in range(8)]
    leader = await stage.leading()
    await live(leader, range(60, 62), stage)
    assert await marks(stage) == {61}
    instants = await stage.all_instants()
    assert set(instants) == {job.id for job in others}
    assert all(each == list(range(1, 62)) for each in instants.values())
    rows = await stage.fetch("SELECT job_id, scheduled_at, due_at, attempt FROM timers")
    assert sorted(rows) == sorted(
        (job.id, instant(START + 60), instant(START + 90), 1) for job in (*urgent, one_off)
    )
    assert await ledger(stage) == await in_topics(stage)
    await stage.set_topic("high", cleanup_policy="delete")
    await live(leader, range(90, 92), stage)
    late = {job.id: await stage.instants(job, "high") for job in (*urgent, one_off)}
    assert late == {job.id: [60.0] for job in (*urgent, one_off)}
    assert await stage.value("SELECT count(*) FROM timers") == 0


async def test_a_topic_deleted_under_the_producer_becomes_timers_and_holds_nobody(stage: Stage) -> None:
    urgent = await stage.create(priority=9)
    other = await stage.create()
    leader = await stage.leading()
    await live(leader, range(1, 3), stage)
    await stage.delete_topic("high")
    await live(leader, range(3, 5), stage)
    assert await marks(stage) == {4}
    assert await stage.instants(other) == [1, 2, 3, 4]
    deferred = await stage.fetch("SELECT job_id, scheduled_at FROM timers WHERE cause = 'deferred'")
    assert {(job_id, at.timestamp() - START) for job_id, at in deferred} == {(urgent.id, 3), (urgent.id, 4)}
    await live(leader, range(64, 65), stage)  # the topic has been made anew, and the timers are due
    assert await stage.instants(other) == list(range(1, 65))
    assert await stage.instants(urgent) == list(range(3, 65))
    assert await stage.value("SELECT count(*) FROM timers") == 0


async def test_what_an_offline_partition_does_not_take_goes_to_another(stage: Stage) -> None:
    jobs = [await stage.create() for _ in range(10)]
    leader = await stage.leading()
    leader.publisher.offline = {(stage.topic(), 0)}
    await live(leader, range(1, 4), stage)
    assert await marks(stage) == {3}
    assert await stage.all_instants() == {job.id: [1, 2, 3] for job in jobs}
    assert await ledger(stage) == await in_topics(stage)
    assert await stage.value("SELECT count(*) FROM timers") == 0


async def test_a_topic_whose_every_partition_is_offline_becomes_timers_and_holds_nobody(stage: Stage) -> None:
    urgent = await stage.create("0 * * * * *", priority=9)
    other = await stage.create()
    leader = await stage.leading()
    leader.publisher.offline = {(stage.topic("high"), partition) for partition in range(PARTITIONS)}
    await live(leader, range(60, 62), stage)
    assert await marks(stage) == {61}
    assert await stage.instants(other) == list(range(1, 62))
    assert await stage.fetch("SELECT job_id, cause FROM timers") == [(urgent.id, "deferred")]
    leader.publisher.offline = set()
    await live(leader, range(91, 93), stage)
    assert await stage.instants(urgent) == [60]


async def test_a_run_that_was_refused_twice_is_deferred_once(stage: Stage) -> None:
    await stage.make_topic(cleanup_policy="compact")
    job = await stage.create("0 * * * * *")
    leader = await stage.leading()
    await stage.at(START + 60)
    await leader.poll()
    await leader.fire()
    [message] = leader.settling.pending.deferred
    leader.settling.pending.deferred.append(message)
    await leader.settle()
    assert await stage.fetch("SELECT job_id FROM timers") == [(job.id,)]
    assert isinstance(message, Refused)
    assert message.why is Why.TOPIC
