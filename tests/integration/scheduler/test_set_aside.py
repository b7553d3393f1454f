"""One cadence that cannot be evaluated stops nothing else; other time zone data means: evaluate again."""

from __future__ import annotations

from typing import Any

import pytest

from mainspring.schedule import tzdata_version
from tests.integration.scheduler.leader import ALL
from tests.integration.scheduler.simulated import START, instant
from tests.integration.scheduler.stage import Stage

SPOILT = "UPDATE cadences SET {} WHERE id = (SELECT cadence_id FROM jobs WHERE id = $1)"


@pytest.mark.parametrize("spoilt", ["timezone = 'Mars/Olympus'", "expression = '61 * * * *'"])
async def test_a_cadence_that_cannot_be_evaluated_is_set_aside_and_the_others_go_on(
    stage: Stage, spoilt: str, events: list[Any]
) -> None:
    bad = await stage.create("* * * * *")
    good = [await stage.create() for _ in range(8)]
    await stage.behind_its_back(SPOILT.format(spoilt), bad.id)
    leader = await stage.leading()
    await stage.at(START + 60)
    await leader.live()
    await leader.extend()
    await stage.at(START + 61)
    await leader.live()
    instants = await stage.all_instants()
    assert set(instants) == {job.id for job in good}
    assert {await stage.mark(shard) for shard in ALL} == {61}
    assert leader.loader.set_aside == 1
    told = [event for event in events if event["event"] == "cadence_set_aside"]
    assert [event["cadence_id"] for event in told] == [bad.cadence_id]


async def test_a_change_to_a_job_of_a_cadence_that_was_set_aside_stops_nothing(stage: Stage) -> None:
    bad = await stage.create("* * * * *")
    await stage.behind_its_back(SPOILT.format("timezone = 'Mars/Olympus'"), bad.id)
    leader = await stage.leading()
    await stage.execute("UPDATE jobs SET version = version + 1 WHERE id = $1", bad.id)
    good = await stage.create()
    await stage.at(START + 1)
    await leader.live()
    assert await stage.all_instants() == {good.id: [1]}
    await stage.execute(
        "UPDATE jobs SET cadence_id = $2, shard = $3 WHERE id = $1", bad.id, good.cadence_id, good.shard
    )
    await stage.at(START + 2)
    await leader.live()
    assert {2.0} <= set((await stage.all_instants())[bad.id])


async def bound(stage: Stage, job_id: int) -> tuple[float, str]:
    [(next_at, tzdata)] = await stage.fetch(
        "SELECT next_at, tzdata FROM cadences WHERE id = (SELECT cadence_id FROM jobs WHERE id = $1)", job_id
    )
    return next_at.timestamp() - START, tzdata


@pytest.mark.parametrize("minute", [5, 30], ids=["inside-the-window", "beyond-the-window"])
async def test_a_bound_made_with_other_time_zone_data_is_computed_again(stage: Stage, minute: int) -> None:
    """The old data said tomorrow; with ours the next occurrence comes today."""
    job = await stage.create(f"{minute} * * * *")
    await stage.execute("UPDATE cadences SET next_at = $1, tzdata = '1999a'", instant(START + 86400))
    await stage.execute("UPDATE shards SET seen = pg_current_snapshot()")
    leader = await stage.leading()
    for second in range(0, 3600 + 60 * minute + 300, 300):
        await stage.at(START + second)
        await leader.live()
        await leader.extend()
    assert await stage.instants(job) == [60 * minute, 3600 + 60 * minute]
    assert await bound(stage, job.id) == (7200 + 60 * minute, tzdata_version())
