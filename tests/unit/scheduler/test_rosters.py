"""Members of a cadence, one fact each; tests/property/test_scheduler.py compares them with a dictionary."""

from __future__ import annotations

import pytest

from mainspring.schedule import Cadence, jitter_hash
from mainspring.scheduler.rosters import Home, Individual, Roster
from tests.unit.scheduler.rows import CADENCE_ID, EVERY_MINUTE, HOURLY, MIDNIGHT, OLD, SHARD, job


def roster(cadence: Cadence = EVERY_MINUTE) -> Roster:
    return Roster(CADENCE_ID, SHARD, cadence)


@pytest.mark.parametrize(
    ("valid_from", "grouped"),
    [(OLD, True), (MIDNIGHT + 59.999999, True), (MIDNIGHT + 60, False), (MIDNIGHT + 61, False)],
)
def test_a_plain_job_is_in_a_group_if_the_next_occurrence_is_its_own(
    valid_from: float, grouped: bool
) -> None:
    home, place = Home(), roster()
    home.put(place, job(valid_from=valid_from), expanded=MIDNIGHT)
    assert (len(place.groups), len(place.individuals)) == ((1, 0) if grouped else (0, 1))


def test_the_next_occurrence_is_told_anew_when_the_last_one_has_passed() -> None:
    place = roster()
    seconds = [0, 30, 59, 60, 61, 30, 0]
    assert [place.following(MIDNIGHT + second) for second in seconds] == [
        MIDNIGHT + second // 60 * 60 + 60 for second in seconds
    ]


def test_a_jitter_a_start_or_an_end_makes_an_individual() -> None:
    home, place = Home(), roster()
    for job_id, fields in enumerate([{"jitter_seconds": 1}, {"starts_at": OLD}, {"ends_at": MIDNIGHT}], 1):
        home.put(place, job(job_id, **fields), expanded=MIDNIGHT)
    assert list(place.individuals) == [1, 2, 3]
    assert not place.groups


def test_members_with_different_treatment_are_in_different_groups() -> None:
    home, place = Home(), roster()
    rows = [
        job(1),
        job(2),
        job(3, priority=9),
        job(4, tenant_id=2),
        job(5, grace_seconds=1),
        job(6, pool="b"),
    ]
    for row in rows:
        home.put(place, row, expanded=MIDNIGHT)
    assert sorted(len(group.bodies) for group in place.groups.values()) == [1, 1, 1, 1, 2]


def test_the_last_member_takes_its_group_along() -> None:
    home, place = Home(), roster()
    home.put(place, job(1), expanded=MIDNIGHT)
    home.put(place, job(1, priority=9, version=2), expanded=MIDNIGHT)
    assert [key.priority for key in place.groups] == [9]
    home.remove(1)
    assert (len(place), place.groups, len(home)) == (0, {}, 0)


def test_a_member_has_one_place() -> None:
    home, first, second = Home(), roster(), Roster(8, SHARD, HOURLY)
    home.put(first, job(1), expanded=MIDNIGHT)
    home.put(second, job(1, cadence_id=8, version=2), expanded=MIDNIGHT)
    assert (len(first), len(second), len(home)) == (0, 1, 1)
    assert home.roster_of(1) is second


def test_a_promoted_member_keeps_its_bytes() -> None:
    home, place = Home(), roster()
    home.put(place, job(1, valid_from=MIDNIGHT + 60), expanded=MIDNIGHT)
    home.promote(place, 1)
    found = home.find(1)
    assert found is not None
    assert (found.body, list(place.individuals)) == (job(1).body, [])


def test_nobody_is_nowhere() -> None:
    home = Home()
    home.remove(1)
    assert (home.find(1), home.roster_of(1)) == (None, None)


@pytest.mark.parametrize("jitter", [0, 1, 30, 3600])
def test_a_member_is_due_at_its_own_offset_within_the_room_there_is(jitter: int) -> None:
    member = Individual.of(job(5, jitter_seconds=jitter))
    offset = jitter_hash(5) % min(jitter, 60) if jitter else 0
    assert member.due(5, MIDNIGHT, MIDNIGHT + 60) == MIDNIGHT + offset
    assert member.due(5, MIDNIGHT, None) == MIDNIGHT + (jitter_hash(5) % jitter if jitter else 0)


@pytest.mark.parametrize(
    ("now", "reach", "latest"),
    [(0, 1, 0), (59, 59, None), (59, 60, 0), (60, 300, 60), (61, 1, None), (0, 0, None)],
)
def test_only_the_newest_occurrence_within_reach_can_be_waiting(
    now: int, reach: int, latest: int | None
) -> None:
    found = roster().latest(MIDNIGHT + now, reach)
    assert found == (None if latest is None else MIDNIGHT + latest)
