"""The wheel against a sorted list: whatever the two are told, they answer the same."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mainspring.wheel import BeyondHorizon, TimeWentBack, Wheel

HOUR = 3600

# Few keys, so that re-timing and removing meet an armed one; distances that share seconds, and those
# on both sides of every boundary of a slot, a level and the horizon.
KEYS = st.integers(0, 12)
EDGES = st.sampled_from(
    [1, 2, 59, 60, 61, 119, 120, 3599, 3600, 3601, 7200, 86_399, 86_400, 86_401, 89_999, 90_000]
)
DISTANCES = EDGES | st.integers(-200, 200) | st.integers(-100_000, 100_000)
JUMPS = st.integers(0, 3) | EDGES | st.integers(0, 2 * HOUR) | st.integers(0, 20 * 24 * HOUR)
STARTS = st.sampled_from([0, 1_767_225_600, 1_767_311_999]) | st.integers(-100_000, 4_000_000_000)


class WheelAgainstSortedList(RuleBasedStateMachine):
    """The model is a list of (due, sequence, key, entry): sorting it is the whole specification."""

    @initialize(start=STARTS)
    def begin(self, start: int) -> None:
        self.now = start
        self.sequence = 0
        self.model: list[tuple[int, int, int, str]] = []
        self.wheel: Wheel[int, str] = Wheel(start)

    def arm(self, key: int, due: int) -> None:
        self.sequence += 1
        entry = f"entry {self.sequence}"
        if due >= (self.now // HOUR + 25) * HOUR:
            with pytest.raises(BeyondHorizon):
                self.wheel.insert(key, due, entry)
            return
        self.wheel.insert(key, due, entry)
        self.model = [armed for armed in self.model if armed[2] != key]
        self.model.append((due, self.sequence, key, entry))

    def expect_through(self, to: int) -> None:
        due = sorted(armed for armed in self.model if armed[0] <= to)
        self.model = [armed for armed in self.model if armed[0] > to]
        self.now = to
        buckets = self.wheel.advance(to)
        came_out = [(b.due, key, entry) for b in buckets for key, entry in b.entries.items()]
        assert came_out == [(second, key, entry) for second, _, key, entry in due]
        assert len({b.due for b in buckets}) == len(buckets)
        assert all(b.entries for b in buckets)

    @rule(key=KEYS, distance=DISTANCES)
    def insert(self, key: int, distance: int) -> None:
        self.arm(key, self.now + distance)

    @rule(key=KEYS, boundary=st.sampled_from([60, HOUR, 24 * HOUR]), offset=st.integers(-1, 1))
    def insert_at_a_boundary(self, key: int, boundary: int, offset: int) -> None:
        self.arm(key, (self.now // boundary + 1) * boundary + offset)

    @rule(key=KEYS, offset=st.integers(-1, 1))
    def insert_at_the_horizon(self, key: int, offset: int) -> None:
        self.arm(key, self.wheel.horizon + offset)

    @precondition(lambda self: self.model)
    @rule(key=KEYS, data=st.data())
    def insert_beside_another(self, key: int, data: st.DataObject) -> None:
        self.arm(key, data.draw(st.sampled_from([armed[0] for armed in self.model])))

    @rule(key=KEYS)
    def remove(self, key: int) -> None:
        held = any(armed[2] == key for armed in self.model)
        assert self.wheel.remove(key) is held
        self.model = [armed for armed in self.model if armed[2] != key]

    @rule(jump=JUMPS)
    def advance(self, jump: int) -> None:
        self.expect_through(self.now + jump)

    @precondition(lambda self: self.model)
    @rule(data=st.data(), offset=st.integers(-1, 1))
    def advance_beside_an_entry(self, data: st.DataObject, offset: int) -> None:
        self.expect_through(
            max(self.now, data.draw(st.sampled_from([armed[0] for armed in self.model])) + offset)
        )

    @rule(back=st.integers(1, 100_000))
    def go_back(self, back: int) -> None:
        with pytest.raises(TimeWentBack):
            self.wheel.advance(self.now - back)

    @invariant()
    def they_agree(self) -> None:
        assert self.wheel.now == self.now
        assert len(self.wheel) == len(self.model)
        assert self.wheel.next_due() == min((armed[0] for armed in self.model), default=None)

    def teardown(self) -> None:
        """Nothing is lost: a jump beyond the horizon brings out all that is still armed."""
        self.expect_through(self.now + 30 * 24 * HOUR)
        assert len(self.wheel) == 0


TestWheelAgainstSortedList = WheelAgainstSortedList.TestCase
TestWheelAgainstSortedList.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
