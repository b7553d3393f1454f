"""What becomes of each message of a batch, before anything is written."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.registry.letters import Letter
from mainspring.schedule import Verdict, decide
from mainspring.schema.ids import from_microseconds
from mainspring.schema.messages import Message
from mainspring.schema.states import DeadReason, MissedPolicy, Outcome, TimerCause
from mainspring.worker.plans import Final, Key, NewTimer, Plan, is_missed, key_of
from tests.unit.worker.runs import NOON, SECOND, message

MIXED = [
    message(1, shard=3),
    message(2, shard=3),
    message(3, shard=3, second=SECOND + 1),
    message(4, shard=5, attempt=2, retries=1, losses=1),
    message(5, shard=5),
]


def letter_of(each: Message) -> Letter:
    reason = DeadReason.UNKNOWN_HANDLER
    return Letter(1, each.job.job_id, each.scheduled_at, each.attempt, "p", "h", reason, "no", None, b"")


def mixed() -> Plan:
    """Two runs to execute, one that is over, one that is dead, and one put off."""
    plan = Plan()
    plan.execute(MIXED[0])
    plan.finish(MIXED[1], Outcome.RECALLED, "paused")
    plan.execute(MIXED[2])
    plan.put_off(MIXED[3], NOON, timedelta(seconds=5))
    plan.letters.append(letter_of(MIXED[4]))
    plan.finish(MIXED[4], Outcome.DEAD, "no handler")
    return plan


def ends(plan: Plan) -> list[Key]:
    """Where each message ended: a position of the claim, or a timer."""
    timers = [(each.job_id, each.scheduled_at, each.attempt) for each in plan.timers]
    return sorted([*map(key_of, plan.runs), *timers])


def test_every_message_ends_in_exactly_one_place() -> None:
    plan = mixed()
    assert ends(plan) == sorted(map(key_of, MIXED))
    assert plan.bytes == bytes([Outcome.PENDING, Outcome.RECALLED, Outcome.PENDING, Outcome.DEAD])
    assert [key_of(each) for each in plan.runs] == [key_of(MIXED[place]) for place in (0, 1, 2, 4)]


def test_what_is_born_final_has_its_position_and_its_reason() -> None:
    assert mixed().finals == [Final(1, Outcome.RECALLED, "paused"), Final(3, Outcome.DEAD, "no handler")]


def test_what_is_put_off_is_the_same_attempt_and_spends_nothing() -> None:
    put_off = MIXED[3]
    assert mixed().timers == [
        NewTimer(
            5, NOON + timedelta(seconds=5), 4, put_off.scheduled_at, 2, 1, 1, TimerCause.DEFERRED
        )
    ]  # fmt: skip


def test_every_message_is_counted_by_shard_and_second_whatever_became_of_it() -> None:
    shards, seconds, counts = mixed().tallies()
    assert shards == [3, 3, 5]
    assert seconds == [NOON, NOON + timedelta(seconds=1), NOON]
    assert counts == [2, 1, 2]


def test_a_void_position_is_taken_out_of_the_count_and_of_what_follows() -> None:
    plan = mixed()
    plan.void([1, 2])
    assert plan.bytes == bytes([Outcome.PENDING, Outcome.VOID, Outcome.VOID, Outcome.DEAD])
    assert plan.tallies() == ([3, 5], [NOON, NOON], [1, 2])
    assert plan.finals == [Final(3, Outcome.DEAD, "no handler")]
    assert len(plan.letters) == 1


def test_a_run_that_is_somebody_elses_gets_no_dead_letter_from_us() -> None:
    plan = mixed()
    plan.void([3])
    assert plan.letters == []
    assert plan.finals == [Final(1, Outcome.RECALLED, "paused")]


def test_the_letter_stays_when_only_a_second_copy_of_its_message_is_void() -> None:
    plan = mixed()
    plan.finish(MIXED[4], Outcome.DEAD, "no handler")
    plan.void([4])
    assert plan.letters == [letter_of(MIXED[4])]
    assert plan.tallies()[2] == [2, 1, 2]


def test_a_plan_of_timers_alone_has_one_void_position_and_is_finished() -> None:
    plan = Plan()
    plan.put_off(MIXED[0], NOON, timedelta(seconds=1))
    assert plan.bytes == bytes([Outcome.VOID])
    assert plan.is_finished
    assert plan.tallies() == ([3], [NOON], [1])


def test_a_plan_is_finished_when_nothing_of_it_is_to_be_executed() -> None:
    plan = mixed()
    assert not plan.is_finished
    plan.void([0, 2])
    assert plan.is_finished


def test_the_key_tells_attempts_and_occurrences_apart() -> None:
    keys = {key_of(message(1)), key_of(message(1, attempt=2)), key_of(message(1, second=SECOND + 1))}
    assert keys == {(1, SECOND * 10**6, 1), (1, SECOND * 10**6, 2), (1, (SECOND + 1) * 10**6, 1)}


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


@pytest.mark.parametrize("policy", list(MissedPolicy))
@pytest.mark.parametrize("late", [-5, 0, 59, 60, 60.999])
def test_within_its_grace_nothing_is_missed(policy: MissedPolicy, late: float) -> None:
    due = message(missed_window=policy, grace_seconds=60, following=(SECOND + 10) * 10**6)
    assert not is_missed(due, at(late))


@pytest.mark.parametrize(
    ("policy", "following", "missed"),
    [
        (MissedPolicy.SKIP, None, True),
        (MissedPolicy.SKIP, 3600, True),
        (MissedPolicy.RUN_ONCE, None, False),
        (MissedPolicy.RUN_ONCE, 62, False),
        (MissedPolicy.RUN_ONCE, 61, True),
        (MissedPolicy.RUN_ONCE, 30, True),
        (MissedPolicy.RUN_ALL, None, False),
        (MissedPolicy.RUN_ALL, 30, False),
    ],
)
def test_beyond_its_grace_the_policy_decides(
    policy: MissedPolicy, following: int | None, missed: bool
) -> None:
    """RUN_ONCE runs as long as no newer occurrence is due."""
    next_one = 0 if following is None else (SECOND + following) * 10**6
    due = message(missed_window=policy, grace_seconds=60, following=next_one)
    assert is_missed(due, at(61.5)) is missed


@given(
    st.sampled_from(MissedPolicy), st.integers(0, 100), st.floats(-10, 200), st.none() | st.integers(1, 200)
)
def test_it_is_the_rule_by_which_leaders_decide(
    policy: MissedPolicy, grace: int, late: float, following: int | None
) -> None:
    next_one = 0 if following is None else (SECOND + following) * 10**6
    verdict = decide(
        due=NOON,
        now=at(late).replace(microsecond=0),
        grace=timedelta(seconds=grace),
        policy=policy,
        following=from_microseconds(next_one) if next_one else None,
    )
    due = message(missed_window=policy, grace_seconds=grace, following=next_one)
    assert is_missed(due, at(late)) is (verdict is Verdict.MISSED)


@given(st.lists(st.tuples(st.integers(1, 4), st.sampled_from(["run", "final", "timer"]))), st.data())
def test_tallies_count_what_is_ours(fates: Sequence[tuple[int, str]], data: st.DataObject) -> None:
    plan = Plan()
    for shard, fate in fates:
        each = message(len(plan.runs) + len(plan.timers) + 1, shard=shard)
        if fate == "run":
            plan.execute(each)
        elif fate == "final":
            plan.finish(each, Outcome.MISSED, "late")
        else:
            plan.put_off(each, NOON, timedelta(seconds=1))
    void = data.draw(st.sets(st.integers(0, len(plan.runs) - 1))) if plan.runs else set()
    plan.void(void)
    assert sum(plan.tallies()[2]) == len(fates) - len(void)
    assert all(final.position not in void for final in plan.finals)
