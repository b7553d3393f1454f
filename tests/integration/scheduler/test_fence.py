"""etcd chooses, Postgres fences: a stale epoch changes nothing, and the books say what was published."""

from __future__ import annotations

from collections import Counter

from tests.integration.scheduler.leader import ALL
from tests.integration.scheduler.simulated import START
from tests.integration.scheduler.stage import Stage


async def test_a_stale_epoch_cannot_move_the_mark_and_ends_the_term(stage: Stage) -> None:
    job = await stage.create()
    one_off = await stage.create(schedule="2030-01-01T12:00:01Z")
    first = await stage.leading("first")
    await stage.at(START + 1)
    await first.poll()
    await first.fire()
    second = await stage.leading("second")
    await first.settle()
    assert sorted(first.ended) == [(shard, "another_epoch") for shard in ALL]
    assert {await stage.mark(shard) for shard in ALL} == {0}
    assert await stage.value("SELECT count(*) FROM ledger") == 0
    assert await stage.value("SELECT count(*) FROM timers") == 1
    await stage.at(START + 2)
    await first.live()
    assert await stage.instants(job) == [1]
    await second.live()
    assert await stage.instants(job) == [1, 1, 2]
    assert await stage.instants(one_off) == [1, 1]
    assert second.ended == []


async def test_the_same_epoch_under_another_name_is_stale_too(stage: Stage) -> None:
    job = await stage.create()
    first = await stage.leading("first")
    await stage.execute("UPDATE shards SET leader = 'somebody else'")
    await stage.at(START + 1)
    await first.live()
    assert sorted(first.ended) == [(shard, "another_epoch") for shard in ALL]
    assert await stage.mark(job.shard) == 0


async def test_a_settlement_of_the_term_before_is_refused_though_the_leader_is_the_same(stage: Stage) -> None:
    leader = await stage.leading()
    await stage.at(START + 1)
    await leader.fire()
    settlement = leader.settling.pending
    await leader.lead()
    assert await leader.marks.settle(settlement, list(settlement.through)) == set()
    assert {await stage.mark(shard) for shard in ALL} == {0}


async def test_of_several_shards_only_the_stale_one_ends(stage: Stage) -> None:
    jobs = [await stage.create() for _ in range(16)]
    lost = jobs[0].shard
    first = await stage.leading("first")
    second = await stage.leader("second")
    await second.lead([lost])
    await stage.at(START + 1)
    await first.live()
    assert first.ended == [(lost, "another_epoch")]
    assert {shard: await stage.mark(shard) for shard in ALL} == {shard: float(shard != lost) for shard in ALL}
    rows = await stage.fetch("SELECT shard, published FROM ledger")
    assert dict(rows) == Counter(job.shard for job in jobs if job.shard != lost)


async def test_the_ledger_says_what_is_in_the_topics(stage: Stage) -> None:
    for _ in range(12):
        await stage.create("*/7 * * * * *")
        await stage.create("*/20 * * * * *", priority=9)
    await stage.create_many(30, "*/30 * * * * *", jitter_seconds=20)
    for second in range(10, 100, 9):
        await stage.create(schedule=f"2030-01-01T12:{second // 60:02}:{second % 60:02}Z")
    leader = await stage.leading()
    for second in (1, 2, 3, 30, 31, 65, 100, 240):
        await stage.at(START + second)
        await leader.live()
    counted = Counter((message.shard, message.second - START) for _, message in await stage.published())
    rows = await stage.fetch("SELECT shard, second, published FROM ledger")
    assert {(shard, at.timestamp() - START): count for shard, at, count in rows} == counted
    assert len({second for _, second in counted}) > 60


async def test_messages_carry_the_epoch_of_their_term(stage: Stage) -> None:
    await stage.create()
    for name, second in (("first", 1), ("second", 2)):
        leader = await stage.leading(name)
        await stage.at(START + second)
        await leader.live()
    assert sorted((m.second - START, m.epoch) for _, m in await stage.published()) == [(1, 1), (2, 2)]
