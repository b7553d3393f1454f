"""Trap: two takeovers in a row run RUN_ONCE twice. And each policy after three hours of nobody."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.integration.scheduler.leader import PATIENCE
from tests.integration.scheduler.simulated import START
from tests.integration.scheduler.stage import Stage

HALF_PAST = "30 * * * *"  # 12:30, 13:30, 14:30: three in the gap
GAP = 3 * 3600
HOUR = 3600


async def missed(stage: Stage) -> list[tuple[float, float, int]]:
    """What was given up: from when to when, how many."""
    rows = await stage.fetch("SELECT gap_from, gap_to, skipped FROM missed ORDER BY gap_to")
    return [(begin.timestamp() - START, end.timestamp() - START, count) for begin, end, count in rows]


@pytest.mark.parametrize(
    ("policy", "instants", "given_up"),
    [
        ({"missed_window": "RUN_ONCE"}, [9000], 2),
        ({"missed_window": "SKIP"}, [], 3),
        ({"missed_window": "RUN_ALL"}, [1800, 5400, 9000], 0),
        ({"missed_window": "RUN_ALL", "max_missed": 2}, [5400, 9000], 1),
        ({"missed_window": "RUN_ONCE", "ends_at": "2030-01-01T14:00:00Z"}, [5400], 1),
        ({"missed_window": "SKIP", "grace_seconds": 1800}, [9000], 2),
    ],
    ids=["run-once", "skip", "run-all", "run-all-capped", "run-once-ended", "skip-with-grace"],
)
async def test_three_hours_of_nobody_follow_the_policy_of_each_job(
    stage: Stage, policy: dict[str, Any], instants: list[float], given_up: int
) -> None:
    job = await stage.create(HALF_PAST, **policy)
    await stage.at(START + GAP)
    leader = await stage.leading()
    await leader.live()
    assert await stage.instants(job) == instants
    lane = "normal" if "grace_seconds" in policy else "catchup"
    assert await stage.instants(job, lane) == instants
    assert await missed(stage) == ([(0, GAP, given_up)] if given_up else [])
    assert await stage.mark(job.shard) == GAP


@pytest.mark.parametrize(
    ("policy", "instants", "given_up"),
    [
        ({"missed_window": "RUN_ONCE"}, [9000], 2),
        ({"missed_window": "SKIP"}, [], 3),
        ({"missed_window": "RUN_ALL", "max_missed": 2}, [5400, 9000], 1),
    ],
    ids=["run-once", "skip", "run-all-capped"],
)
async def test_two_takeovers_in_a_row_decide_the_same(
    stage: Stage, policy: dict[str, Any], instants: list[float], given_up: int
) -> None:
    """The first leader publishes what it decided and dies; when the second comes, another is due."""
    job = await stage.create(HALF_PAST, **policy)
    await stage.at(START + GAP)
    first = await stage.leading("first")
    await first.fire()
    await first.die()
    assert await stage.instants(job) == instants
    assert await missed(stage) == []
    await stage.at(START + GAP + 1860)
    second = await stage.leading("second")
    await second.live()
    assert set(await stage.instants(job)) == {*instants, GAP + 1800}
    assert await missed(stage) == ([(0, GAP, given_up)] if given_up else [])


async def test_a_gap_whose_half_was_settled_is_counted_once(stage: Stage) -> None:
    job = await stage.create(HALF_PAST)
    await stage.at(START + GAP)
    first = await stage.leading("first")
    while await stage.mark(job.shard) < 6000:
        for _ in range(20):
            await first.firing.run_once()
        await first.settle()
    await first.die()
    assert await missed(stage) == [(0, GAP, 2)]
    await stage.at(START + GAP + 1860)
    second = await stage.leading("second")
    await second.live()
    assert await stage.instants(job) == [9000, GAP + 1800]
    assert await missed(stage) == [(0, GAP, 2)]


async def test_the_end_of_a_gap_is_forgotten_when_the_mark_has_passed_it(stage: Stage) -> None:
    job = await stage.create(HALF_PAST)
    await stage.at(START + GAP)
    first = await stage.leading("first")
    await first.live()
    assert await stage.fetch("SELECT DISTINCT gap_to FROM shards") == [(None,)]
    await first.die()
    await stage.at(START + 2 * GAP)
    second = await stage.leading("second")
    await second.live()
    assert await stage.instants(job) == [9000, 9000 + GAP]
    assert await missed(stage) == [(0, GAP, 2), (GAP, 2 * GAP, 2)]


async def test_several_buckets_of_one_gap_can_be_settled_together(stage: Stage) -> None:
    """Postgres may be slower than the catching up: what each bucket gave up then meets in one transaction."""
    jobs = [await stage.create("* * * * *", missed_window="SKIP") for _ in range(6)]
    await stage.at(START + 600)
    leader = await stage.leading()
    await leader.fire()
    await leader.settle()
    assert await stage.all_instants() == {job.id: [540, 600] for job in jobs}
    rows = await missed(stage)
    assert {(begin, end) for begin, end, _ in rows} == {(0, 600)}
    assert sum(count for *_, count in rows) == 8 * len(jobs)


async def test_three_days_of_nobody_are_caught_up_with(stage: Stage) -> None:
    """Further than a wheel reaches: a weekend without a leader."""
    days = 3 * 86400
    weekly = await stage.create("0 12 * * FRI")
    one_off = await stage.create(schedule="2030-01-03T18:00:00Z")
    at_the_end = await stage.create(schedule="2030-01-04T12:00:05Z")
    await stage.at(START + days)
    leader = await stage.leading()
    await leader.live()
    await stage.at(START + days + 5)
    await leader.live()
    assert await stage.all_instants() == {
        weekly.id: [days],
        one_off.id: [2 * 86400 + 6 * HOUR],
        at_the_end.id: [days + 5],
    }


async def test_who_is_behind_catches_up_at_once_and_lets_others_run_meanwhile(stage: Stage) -> None:
    """Not a minute of schedule a second; and the feed, the marks and the lease go on between the chunks."""
    job = await stage.create(HALF_PAST)
    await stage.at(START + GAP)
    leader = await stage.leading()
    stop, steps = asyncio.Event(), set[int]()
    firing = asyncio.create_task(leader.firing.run(stop))
    async with asyncio.timeout(PATIENCE):
        while leader.terms[job.shard].fired < START + GAP:
            steps.add(leader.terms[job.shard].fired)
            await asyncio.sleep(0)
    stop.set()
    leader.firing.wake.set()
    await firing
    assert len(steps) > 20
    assert await stage.instants(job) == [9000]
