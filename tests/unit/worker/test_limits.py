"""How much of what may run at once, and what rests because it only fails."""

from __future__ import annotations

from datetime import timedelta

import pytest

from mainspring.clock import ManualClock
from mainspring.worker.limits import FEW_SUSPECTS, FEWEST, PROBE_SECONDS, WINDOW_SECONDS, Limits
from tests.unit.worker.runs import NOON, message

RUN = message(handler="h", tenant=1)
OTHER_HANDLER = message(handler="g", tenant=1)
OTHER_TENANT = message(handler="h", tenant=2)
PROBE = timedelta(seconds=PROBE_SECONDS)


class World:
    """Limits, and the clock they go by."""

    def __init__(self, *, tenants: dict[int, int] | None = None, **handlers: int) -> None:
        self.clock = ManualClock(NOON)
        self.limits = Limits(handlers, self.clock)
        self.limits.tenants = tenants or {}

    def wait(self, seconds: float) -> None:
        self.clock.advance(timedelta(seconds=seconds))

    def end(self, times: int = 1, *, failed: bool, seconds: float = 1.0) -> None:
        """So many runs are admitted one after the other, whatever the breaker says, and end."""
        for _ in range(times):
            self.limits.release(RUN, seconds, failed=failed)

    def fail_for(self, seconds: float, *, every: float = 10.0) -> None:
        """A failure now, and one after each step until the time is over."""
        self.end(failed=True)
        for _ in range(int(seconds / every)):
            self.wait(every)
            self.end(failed=True)


def test_without_limits_everything_is_admitted() -> None:
    limits = World().limits
    assert [limits.admit(RUN) for _ in range(1000)] == [None] * 1000


def test_a_handlers_limit_is_for_all_tenants_together_and_for_no_other_handler() -> None:
    limits = World(h=2).limits
    assert limits.admit(RUN) is None
    assert limits.admit(OTHER_TENANT) is None
    assert limits.admit(RUN) is not None
    assert limits.admit(OTHER_TENANT) is not None
    assert limits.admit(OTHER_HANDLER) is None


def test_a_tenants_limit_is_for_all_its_handlers_together_and_for_no_other_tenant() -> None:
    limits = World(tenants={1: 2}).limits
    assert limits.admit(RUN) is None
    assert limits.admit(OTHER_HANDLER) is None
    assert limits.admit(RUN) is not None
    assert limits.admit(OTHER_HANDLER) is not None
    assert limits.admit(OTHER_TENANT) is None


def test_what_one_limit_refuses_takes_no_place_of_the_other() -> None:
    limits = World(tenants={1: 1}, h=2).limits
    assert limits.admit(RUN) is None
    assert limits.admit(RUN) is not None
    assert limits.admit(OTHER_TENANT) is None
    assert limits.admit(OTHER_TENANT) is not None
    limits.release(RUN, 1.0, failed=False)
    assert limits.admit(RUN) is None


def test_a_place_is_free_again_when_its_run_has_ended_or_was_withdrawn() -> None:
    limits = World(h=1).limits
    assert limits.admit(RUN) is None
    limits.release(RUN, 1.0, failed=False)
    assert limits.admit(RUN) is None
    limits.withdraw(RUN)
    assert limits.admit(RUN) is None
    assert limits.admit(RUN) is not None


def test_more_ends_than_beginnings_make_no_more_room() -> None:
    world = World(tenants={1: 1}, h=1)
    world.end(5, failed=False)
    world.limits.withdraw(RUN)
    assert world.limits.admit(RUN) is None
    assert world.limits.admit(RUN) is not None
    assert world.limits.admit(OTHER_HANDLER) is not None


def test_what_is_put_off_is_spread_by_the_pace_of_those_before_it() -> None:
    world = World(h=2)
    world.end(failed=False, seconds=6.0)
    delays = [world.limits.admit(RUN) for _ in range(6)]
    assert delays == [None, None, *(timedelta(seconds=seconds) for seconds in (3, 6, 9, 12))]


def test_each_tenant_waits_for_its_own_predecessors() -> None:
    world = World(tenants={1: 1, 2: 1})
    world.end(failed=False, seconds=5.0)
    delays = [world.limits.admit(each) for each in (RUN, OTHER_TENANT, RUN, RUN, OTHER_TENANT)]
    assert delays == [None, None, *(timedelta(seconds=seconds) for seconds in (5, 10, 5))]


def test_a_new_claim_begins_to_count_anew() -> None:
    world = World(h=1)
    world.end(failed=False, seconds=5.0)
    first = [world.limits.admit(RUN) for _ in range(3)]
    world.limits.begin()
    assert world.limits.admit(RUN) == first[1] == timedelta(seconds=5)


def test_a_delay_is_at_least_a_second_and_at_most_a_minute() -> None:
    world = World(h=1)
    world.end(failed=False, seconds=0.001)
    assert world.limits.admit(RUN) is None
    assert world.limits.admit(RUN) == timedelta(seconds=1)
    slow = World(h=1)
    slow.end(failed=False, seconds=7200)
    assert slow.limits.admit(RUN) is None
    assert slow.limits.admit(RUN) == timedelta(minutes=1)


def test_five_minutes_of_failures_open_the_breaker() -> None:
    world = World()
    world.fail_for(WINDOW_SECONDS - 10)
    assert world.limits.open_breakers() == []
    world.wait(10)
    assert world.limits.open_breakers() == [(1, "h")]


def test_an_open_breaker_lets_one_run_a_minute_through() -> None:
    world = World()
    world.fail_for(WINDOW_SECONDS)
    for _ in range(3):
        assert [world.limits.admit(RUN) for _ in range(4)] == [None, PROBE, PROBE, PROBE]
        world.wait(PROBE_SECONDS)


def test_an_open_breaker_concerns_nobody_else() -> None:
    world = World()
    world.fail_for(WINDOW_SECONDS)
    assert [world.limits.admit(OTHER_TENANT) for _ in range(3)] == [None] * 3
    assert [world.limits.admit(OTHER_HANDLER) for _ in range(3)] == [None] * 3


def test_the_first_success_closes_it() -> None:
    world = World()
    world.fail_for(WINDOW_SECONDS)
    assert world.limits.admit(RUN) is None
    world.end(failed=False)
    assert world.limits.open_breakers() == []
    assert [world.limits.admit(RUN) for _ in range(100)] == [None] * 100


def test_after_a_success_it_takes_five_minutes_again() -> None:
    world = World()
    world.fail_for(WINDOW_SECONDS)
    world.end(failed=False)
    world.fail_for(WINDOW_SECONDS - 10)
    assert world.limits.open_breakers() == []


def test_probes_that_fail_keep_it_open_for_hours() -> None:
    """A probe a minute is fewer than anything can be said of: that alone must not close it."""
    world = World()
    world.fail_for(WINDOW_SECONDS)
    for _ in range(120):
        assert [world.limits.admit(RUN) for _ in range(3)] == [None, PROBE, PROBE]
        world.end(failed=True)
        world.wait(PROBE_SECONDS)
    assert world.limits.open_breakers() == [(1, "h")]


@pytest.mark.parametrize(("failures", "opens"), [(9, False), (19, True)])
def test_more_than_nine_in_ten_have_to_fail(failures: int, opens: bool) -> None:
    world = World()
    for _ in range(int(WINDOW_SECONDS / 10)):
        world.end(failures, failed=True)
        world.end(failed=False)
        world.wait(10)
    assert bool(world.limits.open_breakers()) is opens


def test_nothing_is_said_of_fewer_than_ten_runs() -> None:
    world = World()
    world.fail_for(20 * WINDOW_SECONDS, every=WINDOW_SECONDS / (FEWEST - 2))
    assert world.limits.open_breakers() == []
    assert [world.limits.admit(RUN) for _ in range(100)] == [None] * 100


def test_what_is_older_than_the_window_does_not_count() -> None:
    """Successes of an hour ago do not keep it shut, failures of an hour ago do not open it."""
    world = World()
    world.end(failed=True)
    world.end(10_000, failed=False)
    world.wait(WINDOW_SECONDS + 1)
    world.fail_for(WINDOW_SECONDS)
    assert world.limits.open_breakers() == [(1, "h")]
    other = World()
    other.end(1000, failed=True)
    other.wait(3600)
    assert other.limits.open_breakers() == []
    assert [other.limits.admit(RUN) for _ in range(10)] == [None] * 10


def test_a_burst_of_failures_an_hour_after_the_last_one_is_not_five_minutes_of_them() -> None:
    world = World()
    world.end(failed=True)
    world.wait(3600)
    world.end(100, failed=True)
    assert world.limits.open_breakers() == []


def test_one_that_only_succeeds_is_not_watched() -> None:
    world = World()
    world.end(failed=True)
    for _ in range(40):
        world.end(failed=False)
        world.wait(10)
    world.end(failed=True)
    world.end(100, failed=True)
    assert world.limits.open_breakers() == []


def test_a_failure_frees_its_place_as_a_success_does() -> None:
    world = World(h=1)
    assert world.limits.admit(RUN) is None
    world.limits.release(RUN, 1.0, failed=True)
    assert world.limits.admit(RUN) is None


def test_what_was_lost_three_times_runs_beside_no_other_such_run() -> None:
    limits = World().limits
    killer, innocent = message(1, losses=3), message(2, losses=4)
    assert limits.admit(killer) is None
    assert limits.admit(innocent) is not None
    limits.release(killer, 1.0, failed=False)
    assert limits.admit(innocent) is None
    assert limits.admit(killer) is not None
    limits.withdraw(innocent)
    assert limits.admit(killer) is None


def test_what_was_lost_twice_runs_beside_few_others() -> None:
    limits = World().limits
    suspects = [message(number, losses=2) for number in range(1, FEW_SUSPECTS + 2)]
    assert [limits.admit(each) is None for each in suspects] == [True] * FEW_SUSPECTS + [False]
    limits.release(suspects[0], 1.0, failed=True)
    assert limits.admit(suspects[-1]) is None


def test_what_was_lost_once_waits_for_nobody() -> None:
    """When a machine with hundreds of long runs dies, all of them are lost once."""
    limits = World().limits
    assert [limits.admit(message(number, losses=1)) for number in range(1, 1001)] == [None] * 1000
