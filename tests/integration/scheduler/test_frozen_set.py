"""Trap: a shard taken in the middle of a bucket gets its mark moved by that bucket."""

from __future__ import annotations

from tests.integration.scheduler.leader import ALL
from tests.integration.scheduler.simulated import START
from tests.integration.scheduler.stage import Stage


async def ledger_of(stage: Stage, shard: int) -> list[tuple[float, int]]:
    rows = await stage.fetch("SELECT second, published FROM ledger WHERE shard = $1 ORDER BY second", shard)
    return [(second.timestamp() - START, published) for second, published in rows]


async def test_a_shard_that_another_leader_takes_in_the_middle_of_a_bucket_keeps_its_mark(
    stage: Stage,
) -> None:
    job = await stage.create()
    first = await stage.leading("first")
    second = await stage.leader("second")
    await stage.at(START + 1)

    async def second_takes_the_shard() -> None:
        first.publisher.before = None
        await second.lead([job.shard])

    first.publisher.before = second_takes_the_shard
    await first.live()
    assert first.ended == [(job.shard, "another_epoch")]
    assert await stage.mark(job.shard) == 0
    assert await ledger_of(stage, job.shard) == []
    assert {await stage.mark(shard) for shard in ALL if shard != job.shard} == {1}
    await second.live()
    assert await stage.mark(job.shard) == 1
    assert await stage.instants(job) == [1, 1]


async def test_a_shard_that_the_same_leader_takes_anew_in_the_middle_of_a_bucket_keeps_its_mark(
    stage: Stage,
) -> None:
    job = await stage.create()
    leader = await stage.leading()
    await stage.at(START + 1)

    async def it_is_lost_and_taken_anew() -> None:
        leader.publisher.before = None
        leader.leadership.end([job.shard], "lost")
        await leader.lead([job.shard])

    leader.publisher.before = it_is_lost_and_taken_anew
    await leader.firing.run_once()
    await leader.settle()
    assert await stage.mark(job.shard) == 0
    assert {await stage.mark(shard) for shard in ALL if shard != job.shard} == {1}
    await leader.live()
    assert await stage.mark(job.shard) == 1
    assert await stage.instants(job) == [1, 1]


async def test_a_shard_taken_anew_before_the_bucket_is_settled_keeps_its_mark(stage: Stage) -> None:
    job = await stage.create()
    leader = await stage.leading()
    await stage.at(START + 1)
    await leader.fire()
    leader.leadership.end([job.shard], "lost")
    await leader.lead([job.shard])
    await leader.settle()
    assert await stage.mark(job.shard) == 0
    await leader.live()
    assert await stage.mark(job.shard) == 1


async def test_a_shard_that_joins_in_the_middle_of_a_bucket_is_not_in_its_set(stage: Stage) -> None:
    jobs = [await stage.create() for _ in range(40)]
    late = jobs[0].shard
    others = [shard for shard in ALL if shard != late]
    leader = await stage.leader()
    await leader.lead(others)
    await stage.at(START + 3)

    async def the_other_shard_joins() -> None:
        leader.publisher.before = None
        await leader.lead([late])

    leader.publisher.before = the_other_shard_joins
    await leader.firing.run_once()
    await leader.settle()
    assert await stage.mark(late) == 0
    assert {await stage.mark(shard) for shard in others} == {3}
    await leader.live()
    assert await stage.mark(late) == 3
    assert await stage.instants(jobs[0]) == [1, 2, 3]


async def test_what_was_refused_of_a_lost_term_is_not_taken_from_the_ledger_of_the_new_one(
    stage: Stage,
) -> None:
    await stage.make_topic(cleanup_policy="compact")
    job = await stage.create()
    leader = await stage.leading()
    await stage.at(START + 1)

    async def it_is_taken_anew_and_the_topic_put_right() -> None:
        leader.publisher.before = None
        leader.leadership.end([job.shard], "lost")
        await leader.lead([job.shard])
        await stage.set_topic(cleanup_policy="delete")

    leader.publisher.before = it_is_taken_anew_and_the_topic_put_right
    await leader.fire()
    await leader.settle()
    assert await stage.instants(job) == [1]
    assert await ledger_of(stage, job.shard) == [(1, 1)]
    assert await stage.value("SELECT count(*) FROM timers") == 0
