"""The wheel's edges, one fact each; tests/property/test_wheel.py searches for the ones not thought of."""

from __future__ import annotations

import doctest

import pytest

import mainspring.wheel
from mainspring.wheel import BeyondHorizon, Bucket, TimeWentBack, Wheel

MIDNIGHT = 20_000 * 86_400  # a unix midnight: aligned to a minute, an hour and a day
HOUR = 3600
DAY = 86_400

Keys = list[tuple[int, list[str]]]


def keys(buckets: list[Bucket[str, int]]) -> Keys:
    """The answer of `advance`, without the values."""
    return [(bucket.due, list(bucket.entries)) for bucket in buckets]


def wheel_with(now: int, /, **dues: int) -> Wheel[str, int]:
    """A wheel at `now` in which each name is armed, in order; the entry is its due second."""
    wheel: Wheel[str, int] = Wheel(now)
    for key, due in dues.items():
        wheel.insert(key, due, due)
    return wheel


def test_the_worked_example_of_the_prose_is_true() -> None:
    failed, attempted = doctest.testmod(mainspring.wheel)
    assert attempted >= 11
    assert failed == 0


@pytest.mark.parametrize(
    "now", [MIDNIGHT, MIDNIGHT + 59, MIDNIGHT + 3599, MIDNIGHT + DAY - 1, MIDNIGHT + 37_931, 0, -7201]
)
@pytest.mark.parametrize(
    "ahead",
    [1, 2, 58, 59, 60, 61, 119, 120, 121, 3598, 3599, 3600, 3601, 3660, 7199, 7200, 7201, DAY - 1, DAY],
)
def test_an_entry_comes_out_at_its_second_and_not_one_before(now: int, ahead: int) -> None:
    due = now + ahead
    wheel = wheel_with(now, a=due)
    assert wheel.advance(due - 1) == []
    assert wheel.next_due() == due
    assert wheel.advance(due) == [Bucket(due, {"a": due})]
    assert wheel.next_due() is None
    assert len(wheel) == 0


@pytest.mark.parametrize("now", [MIDNIGHT, MIDNIGHT + 3599, MIDNIGHT + 37_931])
def test_second_by_second_gives_the_same_as_one_jump(now: int) -> None:
    dues = {f"k{i}": now + 1 + (i * 7919) % (2 * HOUR) for i in range(500)}
    stepped = wheel_with(now, **dues)
    jumped = wheel_with(now, **dues)
    seen = [bucket for to in range(now, now + 2 * HOUR + 1) for bucket in stepped.advance(to)]
    assert keys(seen) == keys(jumped.advance(now + 2 * HOUR))
    assert sum(len(bucket.entries) for bucket in seen) == 500


def test_one_second_keeps_the_order_of_insertion_through_both_cascades() -> None:
    due = MIDNIGHT + 2 * HOUR + 185
    wheel = wheel_with(MIDNIGHT, hours=due)
    wheel.advance(MIDNIGHT + 2 * HOUR)
    wheel.insert("minutes", due, 0)
    wheel.advance(MIDNIGHT + 2 * HOUR + 180)
    wheel.insert("seconds", due, 0)
    assert keys(wheel.advance(due)) == [(due, ["hours", "minutes", "seconds"])]


def test_a_jump_into_the_middle_of_an_hour_keeps_what_lies_after_it() -> None:
    base = MIDNIGHT + 5 * HOUR
    wheel = wheel_with(MIDNIGHT, late=base + 1900, past=base + 1799, now=base + 1800, next=base + 1801)
    assert keys(wheel.advance(base + 1800)) == [(base + 1799, ["past"]), (base + 1800, ["now"])]
    assert keys(wheel.advance(base + 1801)) == [(base + 1801, ["next"])]
    assert keys(wheel.advance(base + 1900)) == [(base + 1900, ["late"])]


def test_a_gap_of_days_returns_everything_in_order() -> None:
    wheel = wheel_with(MIDNIGHT, c=MIDNIGHT + DAY, b=MIDNIGHT + HOUR, d=MIDNIGHT + DAY + 3599, a=MIDNIGHT + 1)
    wheel.insert("overdue", MIDNIGHT - 9, 0)
    assert [due - MIDNIGHT for due, _ in keys(wheel.advance(MIDNIGHT + 9 * DAY))] == [
        -9,
        1,
        HOUR,
        DAY,
        DAY + 3599,
    ]
    assert wheel.now == MIDNIGHT + 9 * DAY
    wheel.insert("after the gap", wheel.now + 60, 0)
    assert keys(wheel.advance(wheel.now + 60)) == [(wheel.now, ["after the gap"])]


def test_the_hours_ring_runs_over_midnight_in_order() -> None:
    evening = MIDNIGHT + 22 * HOUR
    wheel = wheel_with(evening, tomorrow=evening + 3 * HOUR, tonight=evening + HOUR)
    assert wheel.next_due() == evening + HOUR
    assert keys(wheel.advance(evening + 4 * HOUR)) == [
        (evening + HOUR, ["tonight"]),
        (evening + 3 * HOUR, ["tomorrow"]),
    ]


class TestAlreadyDue:
    @pytest.mark.parametrize("ago", [0, 1, 60, 3600, 40 * DAY])
    def test_it_is_returned_by_an_advance_to_the_same_second(self, ago: int) -> None:
        wheel = wheel_with(MIDNIGHT, late=MIDNIGHT - ago)
        assert wheel.next_due() == MIDNIGHT - ago
        assert keys(wheel.advance(MIDNIGHT)) == [(MIDNIGHT - ago, ["late"])]
        assert wheel.advance(MIDNIGHT) == []

    def test_it_comes_before_everything_later_and_in_order(self) -> None:
        wheel = wheel_with(MIDNIGHT, next=MIDNIGHT + 1, now=MIDNIGHT, old=MIDNIGHT - 70, older=MIDNIGHT - 71)
        assert [name for _, names in keys(wheel.advance(MIDNIGHT + 1)) for name in names] == [
            "older",
            "old",
            "now",
            "next",
        ]

    def test_it_can_be_removed_and_re_timed(self) -> None:
        wheel = wheel_with(MIDNIGHT, removed=MIDNIGHT - 1, moved=MIDNIGHT - 2)
        assert wheel.remove("removed")
        wheel.insert("moved", MIDNIGHT + 5, 1)
        assert wheel.next_due() == MIDNIGHT + 5
        assert wheel.advance(MIDNIGHT + 4) == []
        assert keys(wheel.advance(MIDNIGHT + 5)) == [(MIDNIGHT + 5, ["moved"])]


class TestHorizon:
    @pytest.mark.parametrize(
        ("now", "horizon"),
        [
            (MIDNIGHT, MIDNIGHT + 25 * HOUR - 1),
            (MIDNIGHT + 3599, MIDNIGHT + 25 * HOUR - 1),
            (MIDNIGHT + 3600, MIDNIGHT + 26 * HOUR - 1),
        ],
    )
    def test_it_is_the_end_of_the_twenty_fourth_hour_after_this_one(self, now: int, horizon: int) -> None:
        wheel = wheel_with(now, last=horizon)
        assert wheel.horizon == horizon
        with pytest.raises(BeyondHorizon) as refused:
            wheel.insert("beyond", horizon + 1, 0)
        assert (refused.value.due, refused.value.horizon) == (horizon + 1, horizon)
        assert "beyond" not in wheel
        assert keys(wheel.advance(horizon)) == [(horizon, ["last"])]

    def test_a_refused_re_time_leaves_the_entry_as_it_was(self) -> None:
        wheel = wheel_with(MIDNIGHT, a=MIDNIGHT + 10)
        with pytest.raises(BeyondHorizon):
            wheel.insert("a", MIDNIGHT + 30 * DAY, 99)
        assert wheel.advance(MIDNIGHT + 30 * DAY) == [Bucket(MIDNIGHT + 10, {"a": MIDNIGHT + 10})]

    def test_the_same_hour_of_tomorrow_does_not_come_out_today(self) -> None:
        tomorrow = MIDNIGHT + DAY + 30 * 60
        wheel = wheel_with(MIDNIGHT, today=MIDNIGHT + 30 * 60, tomorrow=tomorrow)
        assert keys(wheel.advance(tomorrow - 1)) == [(MIDNIGHT + 30 * 60, ["today"])]
        assert keys(wheel.advance(tomorrow)) == [(tomorrow, ["tomorrow"])]


def test_time_never_goes_back() -> None:
    wheel = wheel_with(MIDNIGHT, a=MIDNIGHT + 1, late=MIDNIGHT - 1)
    with pytest.raises(TimeWentBack) as refused:
        wheel.advance(MIDNIGHT - 1)
    assert (refused.value.now, refused.value.to) == (MIDNIGHT, MIDNIGHT - 1)
    assert wheel.now == MIDNIGHT
    assert keys(wheel.advance(MIDNIGHT + 1)) == [(MIDNIGHT - 1, ["late"]), (MIDNIGHT + 1, ["a"])]


@pytest.mark.parametrize("error", [BeyondHorizon(due=2, horizon=1), TimeWentBack(now=2, to=1)])
def test_a_refusal_is_a_value_error_that_names_both_seconds(error: ValueError) -> None:
    assert "1" in str(error)
    assert "2" in str(error)


class TestReTime:
    @pytest.mark.parametrize("first", [-5, 3, 90, 4000])
    @pytest.mark.parametrize("second", [-6, 4, 91, 4001])
    def test_only_the_last_time_counts(self, first: int, second: int) -> None:
        wheel = wheel_with(MIDNIGHT, a=MIDNIGHT + first)
        wheel.insert("a", MIDNIGHT + second, 7)
        assert len(wheel) == 1
        assert wheel.next_due() == MIDNIGHT + second
        assert wheel.advance(MIDNIGHT + DAY) == [Bucket(MIDNIGHT + second, {"a": 7})]

    def test_into_its_own_second_it_goes_behind_the_others(self) -> None:
        wheel = wheel_with(MIDNIGHT, a=MIDNIGHT + 90, b=MIDNIGHT + 90)
        wheel.insert("a", MIDNIGHT + 90, 7)
        [bucket] = wheel.advance(MIDNIGHT + 90)
        assert list(bucket.entries.items()) == [("b", MIDNIGHT + 90), ("a", 7)]
        assert len(wheel) == 0

    def test_into_its_own_second_alone_it_stays_armed(self) -> None:
        wheel = wheel_with(MIDNIGHT, a=MIDNIGHT + 90)
        wheel.insert("a", MIDNIGHT + 90, 7)
        assert wheel.next_due() == MIDNIGHT + 90
        assert wheel.advance(MIDNIGHT + 90) == [Bucket(MIDNIGHT + 90, {"a": 7})]


class TestRemove:
    @pytest.mark.parametrize("due", [-1, 0, 5, 59, 60, 3599, 3600, DAY])
    def test_a_removed_entry_never_comes_out(self, due: int) -> None:
        wheel = wheel_with(MIDNIGHT, a=MIDNIGHT + due)
        assert wheel.remove("a")
        assert "a" not in wheel
        assert wheel.next_due() is None
        assert wheel.advance(MIDNIGHT + 2 * DAY) == []

    @pytest.mark.parametrize("to", [0, 2 * HOUR, 2 * HOUR + 180])
    def test_after_a_cascade_the_neighbour_stays(self, to: int) -> None:
        due = MIDNIGHT + 2 * HOUR + 185
        wheel = wheel_with(MIDNIGHT, a=due, b=due, c=due + 1)
        wheel.advance(MIDNIGHT + to)
        assert wheel.remove("a")
        assert wheel.next_due() == due
        assert wheel.remove("b")
        assert wheel.next_due() == due + 1
        assert keys(wheel.advance(due + 1)) == [(due + 1, ["c"])]

    def test_what_the_wheel_does_not_hold_is_no_error(self) -> None:
        wheel = wheel_with(MIDNIGHT, gone=MIDNIGHT + 1)
        wheel.advance(MIDNIGHT + 1)
        assert not wheel.remove("gone")
        assert not wheel.remove("never")

    def test_a_handed_out_bucket_belongs_to_the_caller(self) -> None:
        wheel = wheel_with(MIDNIGHT, a=MIDNIGHT + 1)
        [bucket] = wheel.advance(MIDNIGHT + 1)
        wheel.insert("a", MIDNIGHT + 1, 2)
        assert wheel.remove("a")
        assert bucket.entries == {"a": MIDNIGHT + 1}


def test_next_due_changes_nothing() -> None:
    wheel = wheel_with(MIDNIGHT, a=MIDNIGHT + 2 * HOUR + 185, b=MIDNIGHT + 2 * HOUR + 184)
    before = repr(wheel)
    assert wheel.next_due() == wheel.next_due() == MIDNIGHT + 2 * HOUR + 184
    assert repr(wheel) == before


def test_the_wheel_counts_entries_and_not_seconds() -> None:
    wheel = wheel_with(MIDNIGHT, a=MIDNIGHT + 1, b=MIDNIGHT + 1, c=MIDNIGHT + 2)
    assert len(wheel) == 3
    assert "b" in wheel
    wheel.advance(MIDNIGHT + 1)
    assert len(wheel) == 1
    assert "b" not in wheel
