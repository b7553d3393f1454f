"""The words: lanes, pools, topics, and the codes that stored bytes depend on."""

from __future__ import annotations

import pytest

from mainspring.schema.errors import InvalidInput
from mainspring.schema.states import (
    BORN_FINAL,
    RECURRING,
    JobKind,
    Lane,
    Outcome,
    check_pool,
    dead_topic_of,
    lane_of,
    topic_of,
)

POOLS = ["default", "a", "7", "eu-west-1", "0" * 63, "a--b"]
NOT_POOLS = ["", "-a", "a-", "-", "A", "a_b", "a.b", "a b", "a\n", "é", "٣", "0" * 64]


def test_priorities_become_lanes() -> None:
    lanes = [lane_of(priority) for priority in range(10)]
    assert lanes == [Lane.LOW] * 4 + [Lane.NORMAL] * 3 + [Lane.HIGH] * 3


@pytest.mark.parametrize("priority", [-1, 10, 255])
def test_a_priority_out_of_range_has_no_lane(priority: int) -> None:
    with pytest.raises(InvalidInput, match=f"^priority: {priority} is not in 0–9$"):
        lane_of(priority)


@pytest.mark.parametrize("pool", POOLS)
def test_a_pool_names_its_topics(pool: str) -> None:
    assert check_pool(pool) == pool
    assert [topic_of(pool, lane) for lane in Lane] == [
        f"mainspring.{pool}.{lane}" for lane in ("high", "normal", "low", "catchup")
    ]
    assert dead_topic_of(pool) == f"mainspring.{pool}.dead"
    assert len(topic_of(pool, Lane.CATCHUP)) <= 249


@pytest.mark.parametrize("pool", NOT_POOLS)
def test_what_cannot_be_part_of_a_topic_is_no_pool(pool: str) -> None:
    for use in (check_pool, dead_topic_of, lambda name: topic_of(name, Lane.HIGH)):
        with pytest.raises(InvalidInput) as refused:
            use(pool)
        assert refused.value.field == "pool"


def test_outcome_codes_are_part_of_the_stored_format() -> None:
    assert {outcome.word: outcome.value for outcome in Outcome} == {
        "running": 0,
        "succeeded": 1,
        "failed": 2,
        "dead": 3,
        "cancelled": 4,
        "lost": 5,
        "skipped": 6,
        "recalled": 7,
        "missed": 8,
        "void": 9,
    }


def test_what_is_born_final_and_what_recurs() -> None:
    assert sorted(outcome.word for outcome in BORN_FINAL) == ["missed", "recalled", "skipped"]
    assert {JobKind.CRON, JobKind.EVERY} == RECURRING
