"""The manual clock behaves as the real ones can."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from mainspring.clock import ManualClock, SystemClock

NOON = datetime(2026, 11, 18, 12, tzinfo=UTC)


def test_time_passes_on_both_clocks() -> None:
    clock = ManualClock(NOON)
    clock.advance(timedelta(seconds=90))
    assert (clock.now(), clock.monotonic()) == (NOON + timedelta(seconds=90), 90.0)


def test_a_step_of_the_wall_leaves_the_monotonic_clock_alone() -> None:
    clock = ManualClock(NOON)
    clock.step_wall(timedelta(hours=-1))
    assert (clock.now(), clock.monotonic()) == (NOON - timedelta(hours=1), 0.0)


def test_time_never_passes_backwards() -> None:
    with pytest.raises(ValueError, match="backwards"):
        ManualClock(NOON).advance(timedelta(seconds=-1))


def test_a_naive_start_is_refused() -> None:
    with pytest.raises(ValueError, match="aware"):
        ManualClock(NOON.replace(tzinfo=None))


def test_the_system_clock_is_aware_utc() -> None:
    assert SystemClock().now().utcoffset() == timedelta(0)
