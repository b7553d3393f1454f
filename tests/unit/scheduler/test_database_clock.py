"""What can be known of the database's clock; the property tests search for an early answer."""

from __future__ import annotations

from datetime import timedelta

import pytest

from mainspring.scheduler.database_clock import ALARM, REFUSAL, Offset
from tests.unit.scheduler.worlds import START, World


def test_before_the_first_answer_nothing_is_known() -> None:
    world = World()
    assert not world.clock.known
    world.ask()
    assert world.clock.known


def test_an_answer_without_delay_is_the_time_itself() -> None:
    world = World(ahead=3600.5)
    world.ask()
    assert world.error == pytest.approx(0, abs=1e-6)
    assert world.clock.utc() == START + timedelta(seconds=3600.5)
    assert world.clock.uncertainty() == pytest.approx(0, abs=1e-6)


def test_cpu_saturated_at_midnight_the_clock_offset_is_off_by_130_ms_and_fires_early() -> None:
    """The question waited for a processor: a midpoint of its 287 ms would lie 130 ms ahead of the truth."""
    world = World()
    world.ask(there=0.274, back=0.013)
    midpoint = world.truth - 0.013 + 0.287 / 2
    assert midpoint - world.truth > 0.130
    assert world.error <= 0
    world.wait(0.7)
    assert world.error <= 0


@pytest.mark.parametrize(("there", "back"), [(0.3, 0), (0, 0.3), (0.15, 0.15)])
def test_a_slow_round_trip_makes_late_by_its_way_back_and_never_early(there: float, back: float) -> None:
    world = World()
    world.ask(there, back)
    assert -back - 1e-6 <= world.error <= 0
    assert world.clock.uncertainty() == pytest.approx(there + back, abs=1e-3)


def test_the_best_of_several_answers_counts() -> None:
    world = World()
    world.ask(0.2, 0.2)
    world.ask(0.001, 0.001)
    world.ask(0.3, 0.3)
    assert -0.002 < world.error <= 0
    assert world.clock.uncertainty() < 0.004


def test_with_postgres_away_the_monotonic_clock_carries_on_with_an_allowance() -> None:
    world = World(ahead=100)
    world.ask()
    world.wait(600)
    assert -0.121 < world.error <= 0
    assert world.clock.uncertainty() == pytest.approx(0.24, abs=0.01)


def test_an_old_answer_is_forgotten_only_for_a_new_one() -> None:
    world = World()
    world.ask()
    world.wait(31)
    assert world.clock.known
    assert world.clock.uncertainty() < 0.02
    world.ask(0.1, 0.1)
    assert world.clock.uncertainty() == pytest.approx(0.2, abs=0.01)


def test_within_its_memory_a_good_old_answer_narrows_a_bad_new_one() -> None:
    world = World()
    world.ask()
    world.wait(29)
    world.ask(0.1, 0.1)
    assert world.clock.uncertainty() < 0.02


def test_after_a_step_of_the_database_forward_it_is_not_late_by_the_step() -> None:
    world = World()
    world.ask(0.002, 0.002)
    world.step(10)
    world.ask(0.002, 0.002)
    assert world.clock.uncertainty() == pytest.approx(0.004, abs=1e-4)


@pytest.mark.parametrize("step", [-3600, -1, -0.05, 0.05, 1, 3600])
def test_after_a_step_of_the_database_only_the_newest_answer_counts(step: float) -> None:
    world = World()
    for _ in range(5):
        world.ask(0.002, 0.002)
        world.wait(0.5)
    world.step(step)
    world.ask(0.002, 0.002)
    assert -0.003 < world.error <= 0
    world.step(-step)
    world.ask(0.002, 0.002)
    assert -0.003 < world.error <= 0


def test_a_step_back_that_hides_inside_a_slow_answer_is_seen_by_the_next_quick_one() -> None:
    world = World()
    world.ask()
    world.step(-0.05)
    world.ask(0.1, 0.1)
    world.ask(0.01, 0.01)
    assert world.error <= 0


def test_a_step_of_the_wall_clock_changes_nothing_but_the_offset() -> None:
    world = World()
    world.ask(0.01, 0.01)
    before = world.clock.now()
    world.machine.step_wall(timedelta(hours=-2))
    assert world.clock.now() == before
    assert world.clock.offset().low == pytest.approx(7200, abs=0.05)
    assert world.clock.offset().beyond(REFUSAL)
    world.machine.step_wall(timedelta(hours=2))
    assert not world.clock.offset().beyond(ALARM)


@pytest.mark.parametrize("ahead", [-5.0, -0.4, 0.0, 0.4, 5.0])
@pytest.mark.parametrize(("there", "back"), [(0, 0), (0.3, 0), (0, 0.3)])
def test_the_offset_holds_the_truth_between_its_ends(ahead: float, there: float, back: float) -> None:
    world = World(ahead=ahead)
    world.ask(there, back)
    world.wait(20)
    offset = world.clock.offset()
    assert offset.low <= ahead <= offset.high
    assert offset.high - offset.low < there + back + 0.02


def test_an_event_loop_that_was_held_up_does_not_make_a_clock_look_wrong() -> None:
    """The answer is taken note of long after it came: our wall clock has moved on, and the offset has not."""
    world = World()
    world.ask(0.001, 0.001, held_up=3)
    assert not world.clock.offset().beyond(ALARM)
    assert world.error <= 0


@pytest.mark.parametrize(
    ("low", "high", "alarm", "refusal"),
    [
        (-0.1, 0.1, False, False),
        (0.25, 0.3, False, False),
        (0.251, 0.3, True, False),
        (-0.3, -0.251, True, False),
        (-2.0, 2.0, False, False),
        (0.9, 1.2, True, False),
        (1.001, 5.0, True, True),
        (-5.0, -1.001, True, True),
        (-5.0, -1.0, True, False),
    ],
)
def test_only_an_interval_that_lies_wholly_beyond_a_bound_is_beyond_it(
    low: float, high: float, alarm: bool, refusal: bool
) -> None:
    offset = Offset(low, high)
    assert offset.beyond(ALARM) is alarm
    assert offset.beyond(REFUSAL) is refusal
