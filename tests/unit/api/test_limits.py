"""The token bucket: one second's worth at once, then the rate, each tenant for itself."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from mainspring.api.limits import RateLimits
from mainspring.api.problems import RateLimited
from mainspring.clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(datetime(2026, 1, 1, tzinfo=UTC))


def test_a_burst_then_the_rate(clock: ManualClock) -> None:
    limits = RateLimits(clock)
    for _ in range(4):
        limits.take(1, 4)
    with pytest.raises(RateLimited) as refused:
        limits.take(1, 4)
    assert refused.value.retry_after == 1
    clock.advance(timedelta(milliseconds=250))
    limits.take(1, 4)
    with pytest.raises(RateLimited):
        limits.take(1, 4)
    clock.advance(timedelta(hours=1))
    for _ in range(4):
        limits.take(1, 4)
    with pytest.raises(RateLimited):
        limits.take(1, 4)


def test_a_refusal_takes_no_token_and_others_have_their_own(clock: ManualClock) -> None:
    limits = RateLimits(clock)
    limits.take(1, 1)
    for _ in range(3):
        with pytest.raises(RateLimited):
            limits.take(1, 1)
    limits.take(2, 1)
    clock.advance(timedelta(seconds=1))
    limits.take(1, 1)


def test_no_limit_is_no_limit(clock: ManualClock) -> None:
    limits = RateLimits(clock)
    for _ in range(1000):
        limits.take(1, None)
