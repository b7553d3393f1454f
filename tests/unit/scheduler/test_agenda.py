"""The agenda is a wheel for those who come from far behind."""

from __future__ import annotations

import pytest

from mainspring.scheduler.agenda import Agenda
from mainspring.wheel import TimeWentBack
from tests.unit.scheduler.rows import DAY, HOUR, MIDNIGHT

Due = list[tuple[int, list[str]]]


def agenda_with(**dues: int) -> Agenda[str, int]:
    agenda: Agenda[str, int] = Agenda(MIDNIGHT)
    for key, due in dues.items():
        agenda.insert(key, MIDNIGHT + due, due)
    return agenda


def advance(agenda: Agenda[str, int], to: int) -> Due:
    return [(bucket.due - MIDNIGHT, list(bucket.entries)) for bucket in agenda.advance(MIDNIGHT + to)]


WEEKEND: Due = [(10, ["near"]), (DAY + 2 * HOUR, ["morrow"]), (3 * DAY, ["monday"]), (9 * DAY, ["next"])]


@pytest.fixture
def weekend() -> Agenda[str, int]:
    return agenda_with(next=9 * DAY, monday=3 * DAY, morrow=DAY + 2 * HOUR, near=10)


def test_what_lies_days_ahead_comes_out_at_its_second(weekend: Agenda[str, int]) -> None:
    found = [each for to in range(0, 10 * DAY, 600) for each in advance(weekend, to)]
    assert found == WEEKEND
    assert len(weekend) == 0


def test_one_jump_over_everything_gives_the_same(weekend: Agenda[str, int]) -> None:
    assert advance(weekend, 10 * DAY) == WEEKEND
    assert weekend.now == MIDNIGHT + 10 * DAY


def test_it_is_not_handed_out_a_second_early(weekend: Agenda[str, int]) -> None:
    assert advance(weekend, 3 * DAY - 1) == WEEKEND[:2]
    assert advance(weekend, 3 * DAY) == [WEEKEND[2]]


def test_far_or_near_a_key_is_armed_once() -> None:
    agenda = agenda_with(a=5 * DAY)
    agenda.insert("a", MIDNIGHT + 10, 0)
    assert len(agenda) == 1
    agenda.insert("a", MIDNIGHT + 4 * DAY, 0)
    assert len(agenda) == 1
    assert "a" in agenda
    assert advance(agenda, 6 * DAY) == [(4 * DAY, ["a"])]


def test_what_was_removed_far_away_does_not_come() -> None:
    agenda = agenda_with(a=5 * DAY, b=5)
    agenda.remove("a")
    agenda.remove("b")
    agenda.remove("never there")
    assert "a" not in agenda
    assert advance(agenda, 6 * DAY) == []


def test_what_is_armed_for_the_past_is_overdue_until_the_next_advance() -> None:
    agenda = agenda_with(soon=1, later=5 * DAY)
    before = agenda.has_overdue
    agenda.insert("late", MIDNIGHT - 5, 0)
    between = agenda.has_overdue
    assert advance(agenda, 0) == [(-5, ["late"])]
    assert (before, between, agenda.has_overdue) == (False, True, False)


def test_time_does_not_go_back(weekend: Agenda[str, int]) -> None:
    with pytest.raises(TimeWentBack):
        advance(weekend, -1)
