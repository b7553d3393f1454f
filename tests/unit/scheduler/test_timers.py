"""Timers in a term: armed, re-timed, fired once, and forgotten when they are deleted."""

from __future__ import annotations

from mainspring.scheduler.expansion import Timer
from tests.unit.scheduler.leaders import WINDOW, Leader, of
from tests.unit.scheduler.rows import MIDNIGHT, timer


def at_second(due: int, *, timer_id: int = 1, job_id: int = 1, changed: int = 100) -> Timer:
    return timer(timer_id, due=MIDNIGHT + due, job_id=job_id, changed=changed)


def leader_with(*timers: Timer) -> Leader:
    leader = Leader().begin()
    for each in timers:
        leader.term.put_timer(each)
    return leader


def test_a_timer_fires_at_its_second_and_once() -> None:
    leader = leader_with(at_second(30))
    assert leader.fire(29) == []
    assert leader.fire(30) == of(1, 30)
    assert leader.last.timers == [at_second(30)]
    assert leader.fire(90) == []
    assert leader.term.armed_jobs == 0


def test_a_timer_that_turns_up_already_due_leaves_with_the_next_bucket() -> None:
    leader = leader_with()
    leader.fire(100)
    leader.term.put_timer(at_second(40))
    assert leader.owes()
    assert leader.fire(100) == of(1, 40)


def test_a_timer_beyond_the_window_is_left_to_the_load_that_reaches_it() -> None:
    leader = leader_with(at_second(WINDOW + 1))
    assert leader.term.armed_jobs == 0
    leader.extend(WINDOW + 1)
    leader.term.put_timer(at_second(WINDOW + 1))
    assert leader.fire(WINDOW + 1) == of(1, WINDOW + 1)


def test_a_re_timed_timer_fires_at_its_new_second_only() -> None:
    leader = leader_with(at_second(30))
    leader.term.put_timer(at_second(50, changed=101))
    assert leader.fire(49) == []
    assert leader.fire(50) == of(1, 50)


def test_a_timer_re_timed_beyond_the_window_is_armed_no_longer() -> None:
    leader = leader_with(at_second(30))
    leader.term.put_timer(at_second(WINDOW + 100, changed=101))
    assert leader.fire(60) == []


def test_a_fired_timer_is_not_fired_again_in_the_same_version() -> None:
    leader = leader_with(at_second(30))
    leader.fire(30)
    leader.term.put_timer(at_second(30))
    leader.term.put_timers_of(1, [at_second(30)])
    assert not leader.owes()
    assert leader.fire(60) == []


def test_a_timer_is_re_timed_by_its_owner_after_publication_and_deleted_by_id() -> None:
    """The deletion names the version that was fired; what its owner moved meanwhile fires again."""
    leader = leader_with(at_second(30))
    leader.fire(30)
    leader.term.put_timer(at_second(50, changed=101))
    leader.term.forget_spent([(1, 100)])
    assert leader.fire(50) == of(1, 50)
    leader.term.put_timer(at_second(50, changed=101))
    assert leader.fire(60) == []


def test_a_deleted_timer_is_forgotten_in_the_version_that_was_deleted() -> None:
    leader = leader_with(at_second(30))
    leader.fire(30)
    leader.term.forget_spent([(1, 99)])
    leader.term.put_timer(at_second(30))
    assert leader.fire(31) == []
    leader.term.forget_spent([(1, 100), (7, 100)])
    leader.term.put_timer(at_second(30))
    assert leader.fire(32) == of(1, 30)


def test_a_dropped_timer_does_not_fire_and_may_be_dropped_twice() -> None:
    leader = leader_with(at_second(30))
    leader.term.drop_timer(1)
    leader.term.drop_timer(1)
    assert leader.fire(60) == []


def test_the_timers_of_a_job_are_what_its_change_left() -> None:
    """One gone, one moved, one new; another job's stay."""
    leader = leader_with(
        at_second(10, timer_id=1),
        at_second(20, timer_id=2),
        at_second(30, timer_id=3, job_id=2),
    )
    leader.term.put_timers_of(1, [at_second(25, timer_id=2, changed=101), at_second(26, timer_id=4)])
    assert [message.due - MIDNIGHT for message in leader.expand(60)] == [25, 26, 30]


def test_a_paused_job_has_no_timers_until_it_is_resumed() -> None:
    leader = leader_with(at_second(10), at_second(20, timer_id=2))
    leader.term.put_timers_of(1, [])
    assert leader.fire(15) == []
    leader.term.put_timers_of(1, [at_second(15, changed=101), at_second(20, timer_id=2, changed=101)])
    assert leader.fire(20) == of(1, 15, 20)


def test_timers_leave_in_the_order_of_their_seconds_beside_each_other() -> None:
    leader = leader_with(*(at_second(60 - number, timer_id=number, job_id=number) for number in range(1, 50)))
    dues = [message.due for message in leader.expand(60)]
    assert dues == sorted(dues)
    assert len(dues) == 49
