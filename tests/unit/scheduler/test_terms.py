"""What a term hands out, one fact each; tests/property/test_terms.py plays everything at once."""

from __future__ import annotations

from typing import Any

import pytest
from structlog.testing import capture_logs

from mainspring.schedule import Cadence, Kind, MissedPolicy, jitter_hash
from mainspring.scheduler.terms import REACH
from tests.unit.scheduler.leaders import WINDOW, Leader, of
from tests.unit.scheduler.rows import DAY, HOUR, HOURLY, MIDNIGHT, job, timer

PATIENT: dict[str, Any] = {
    "grace_seconds": 10 * DAY,
    "missed_window": MissedPolicy.RUN_ALL,
    "max_missed": 10_000,
}
QUARTERLY = Cadence.parse("*/15 * * * *")


def job_with_jitter(offset: int, jitter: int) -> int:
    """A job whose hash moves it by this many seconds of that jitter."""
    return next(number for number in range(1, 100_000) if jitter_hash(number) % jitter == offset)


# ── exactly (expanded, through] ───────────────────────────────────────────────────────────────────────


def test_an_expansion_hands_out_what_is_due_since_the_last_one_and_no_more() -> None:
    leader = Leader().load(job()).begin()
    assert leader.fire(59) == []
    assert leader.fire(60) == of(1, 60)
    assert leader.fire(60) == []
    assert leader.fire(239, now=180) == of(1, 120, 180)
    assert leader.term.expanded == MIDNIGHT + 239


def test_the_second_of_the_mark_itself_has_been_fired() -> None:
    assert Leader(mark=60).load(job()).begin().fire(119) == []


def test_after_a_weekend_what_lies_days_behind_the_mark_is_fired_in_order() -> None:
    """The wheel takes a day; from the mark to the window there are three."""
    monday = Cadence.parse("0 9 * * 1")
    row = job(missed_window=MissedPolicy.RUN_ALL)
    leader = Leader(now=5 * DAY, gap_to=5 * DAY).load(row, cadence=monday)
    leader.term.put_timer(timer(7, due=MIDNIGHT + 3 * DAY, job_id=2))
    leader.begin()
    due = 4 * DAY + 9 * HOUR  # 2026-01-01 is a Thursday
    found = [run for minute in range(0, 5 * DAY + 1, 60) for run in leader.fire(minute, now=5 * DAY)]
    assert found == [(2, 3 * DAY), (1, due)]


def test_armed_jobs_counts_members_and_timers() -> None:
    leader = Leader().load(job(1), job(2))
    leader.term.put_timer(timer(1, due=MIDNIGHT + 5))
    assert leader.term.armed_jobs == 3
    leader.fire(5)
    assert leader.term.armed_jobs == 2


# ── edits ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_new_job_of_a_resident_cadence_fires_from_its_valid_from_on() -> None:
    leader = Leader().load(job()).begin()
    assert leader.term.put_job(job(2, valid_from=MIDNIGHT + 60.5))
    assert leader.fire(180, now=120) == of(1, 60, 120, 180) + of(2, 120, 180)


def test_a_job_that_is_paused_or_deleted_or_has_another_kind_leaves_no_more() -> None:
    leader = Leader().load(job(1), job(2), job(3)).begin()
    assert leader.term.put_job(job(1, active=False, version=2))
    assert leader.term.put_job(job(2, cadence_id=None, version=2))
    assert leader.fire(60) == of(3, 60)


def test_run_all_fires_instants_from_before_the_job_existed_or_while_it_was_paused() -> None:
    leader = Leader(gap_to=600).load(job(1, valid_from=MIDNIGHT + 301, **PATIENT)).begin()
    leader.term.put_job(job(2, valid_from=MIDNIGHT + 481, version=3, **PATIENT))
    assert leader.fire(600) == of(1, 360, 420, 480, 540, 600) + of(2, 540, 600)


def test_an_edit_leaves_with_the_next_occurrence_and_repeats_none() -> None:
    leader = Leader().load(job()).begin()
    leader.fire(90)
    leader.term.put_job(job(version=2, updated_at=MIDNIGHT + 90))
    assert [message.version for message in leader.expand(120)] == [2]


def test_a_job_that_moves_to_another_cadence_leaves_the_old_one() -> None:
    leader = Leader().load(job(1))
    leader.load(job(2, cadence_id=9), cadence=Cadence.parse("every 100s"), cadence_id=9).begin()
    assert leader.term.put_job(job(1, cadence_id=9, valid_from=MIDNIGHT + 30, version=2))
    assert leader.fire(100) == of(1, 100) + of(2, 100)


def test_a_job_whose_cadence_is_not_there_asks_for_it() -> None:
    leader = Leader().load(job(1)).begin()
    assert not leader.term.put_job(job(1, cadence_id=8, valid_from=MIDNIGHT + 30, version=2))
    assert leader.fire(60) == []


def test_a_job_whose_cadence_is_being_loaded_waits_for_the_load() -> None:
    leader = Leader().load(job(1)).begin()
    moved = job(1, cadence_id=8, valid_from=MIDNIGHT + 30, version=2)
    leader.term.begin_loading(8, Cadence.parse("every 100s"))
    assert leader.term.put_job(moved)
    leader.term.load_member(moved)
    assert leader.fire(60) == []
    leader.term.adopt(8, max_jitter=0, owed=(), since=leader.term.fired)
    assert leader.fire(100) == of(1, 100)


def test_a_streamed_load_of_members_adds_a_job_deleted_meanwhile() -> None:
    leader = Leader().begin()
    leader.term.begin_loading(7, Cadence.parse("* * * * *"))
    leader.term.load_member(job(1))
    leader.term.put_job(job(1, active=False, version=2))
    leader.term.load_member(job(2))
    leader.term.adopt(7, max_jitter=0, owed=(), since=leader.term.fired)
    leader.term.put_job(job(1, active=False, version=2))  # the replay
    assert leader.fire(60) == of(2, 60)


def test_a_load_that_failed_leaves_nothing_behind() -> None:
    leader = Leader().load(job(1)).begin()
    leader.term.begin_loading(8, QUARTERLY)
    leader.term.load_member(job(2, cadence_id=8))
    leader.term.abandon(8)
    leader.term.abandon(8)
    assert (leader.term.armed_jobs, leader.term.loading) == (1, {})
    assert not leader.term.put_job(job(2, cadence_id=8))


# ── owed ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_job_that_turns_up_late_leaves_at_once_and_never_before_its_valid_from() -> None:
    leader = Leader().load(job(1)).begin()
    leader.fire(240)
    assert not leader.owes()
    leader.term.put_job(job(2, valid_from=MIDNIGHT + 120, **PATIENT))
    assert leader.owes()
    assert leader.fire(240) == of(2, 180, 240)
    assert not leader.owes()


def test_what_is_owed_leaves_once_however_often_the_feed_brings_it() -> None:
    leader = Leader().load(job(1)).begin()
    leader.fire(240)
    late = job(2, valid_from=MIDNIGHT + 100, **PATIENT)
    for _ in range(3):
        leader.term.put_job(late)
    leader.term.owe_member(late, since=leader.term.fired)
    assert leader.fire(240) == of(2, 120, 180, 240)


def test_a_job_created_while_its_bucket_is_on_its_way_is_owed_that_second() -> None:
    """Kafka takes its time over midnight; the job was there before, and its bucket has left without it."""
    leader = Leader(mark=-1).load(job(1)).begin()
    assert len(leader.expand(0)) == 1
    leader.term.put_job(job(2, valid_from=MIDNIGHT - 0.8))
    assert leader.owes()
    leader.term.fired = MIDNIGHT
    assert leader.fire(1) == of(2, 0)


def test_a_job_that_was_paused_before_what_it_is_owed_could_leave_gets_nothing() -> None:
    leader = Leader().load(job(1)).begin()
    leader.fire(240)
    leader.term.put_job(job(2, valid_from=MIDNIGHT + 100, **PATIENT))
    leader.term.put_job(job(2, valid_from=MIDNIGHT + 100, active=False, version=2, **PATIENT))
    assert leader.fire(241) == []


def test_a_job_resumed_before_what_it_is_owed_could_leave_is_owed_only_what_came_since() -> None:
    leader = Leader().load(job(1)).begin()
    leader.fire(240)
    leader.term.put_job(job(2, valid_from=MIDNIGHT + 100, **PATIENT))
    leader.term.put_job(job(2, valid_from=MIDNIGHT + 100, active=False, version=2, **PATIENT))
    leader.term.put_job(job(2, valid_from=MIDNIGHT + 200, version=3, **PATIENT))
    assert leader.fire(241) == of(2, 240)


def test_a_job_that_moved_before_what_it_is_owed_could_leave_is_owed_nothing_of_its_old_cadence() -> None:
    leader = (
        Leader().load(job(1)).load(job(3, cadence_id=8), cadence=Cadence.parse("every 70s"), cadence_id=8)
    )
    leader.begin().fire(240)
    leader.term.put_job(job(2, valid_from=MIDNIGHT + 100, **PATIENT))
    leader.term.put_job(job(2, cadence_id=8, valid_from=MIDNIGHT + 239.5, version=2, **PATIENT))
    assert leader.fire(250) == []
    leader.term.put_job(job(2, cadence_id=8, valid_from=MIDNIGHT + 201, version=3, **PATIENT))
    assert leader.fire(250) == of(2, 210)


def test_the_edit_of_an_old_job_owes_it_nothing_although_its_cadence_was_away() -> None:
    """It ran at noon, its cadence went, and at ten past its payload is edited: it has missed nothing."""
    leader = Leader(mark=-1).load(job(), cadence=HOURLY).begin()
    assert leader.fire(0) == of(1, 0)
    assert leader.term.rosters == {}
    edited = job(version=2, updated_at=MIDNIGHT + 600)
    leader.fire(600)
    assert not leader.term.put_job(edited)
    leader.load(edited, cadence=HOURLY, owed=[edited])
    assert leader.fire(601) == []
    assert not leader.last.missed


@pytest.mark.parametrize(("back", "owed"), [(REACH, True), (REACH + 1, False)])
def test_a_commit_may_take_as_long_as_the_reach(back: int, owed: bool) -> None:
    leader = Leader(mark=2 * HOUR).begin()
    row = job(valid_from=MIDNIGHT + 2 * HOUR - back, **PATIENT)
    leader.load(row, owed=[row])
    assert bool(leader.fire(2 * HOUR)) is owed


def test_a_job_that_a_load_brings_before_the_feed_is_owed_what_it_missed() -> None:
    """Created, edited, loaded with its cadence, and only then seen by the feed, in its second version."""
    leader = Leader().begin()
    leader.fire(125)
    row = job(1, valid_from=MIDNIGHT + 110, updated_at=MIDNIGHT + 111, version=2)
    leader.load(row)
    leader.term.put_job(row)
    assert leader.fire(126) == of(1, 120)


def test_a_cadence_loaded_for_what_is_owed_goes_when_that_has_left() -> None:
    leader = Leader(mark=30).begin()
    row = job(valid_from=MIDNIGHT - 1)
    leader.load(row, cadence=HOURLY, owed=[row])
    assert leader.term.armed_jobs == 1
    assert leader.fire(31) == of(1, 0)
    assert leader.term.armed_jobs == 0
    assert leader.term.rosters == {}


# ── jitter ────────────────────────────────────────────────────────────────────────────────────────────


def test_jitter_of_240_s_the_leader_dies_at_60_s() -> None:
    """The successor begins behind the nominal instant, and must look back by the longest jitter."""
    job_id = job_with_jitter(200, 240)
    row = job(job_id, jitter_seconds=240)
    first = Leader(mark=-1).load(row, cadence=HOURLY).begin()
    assert first.fire(60) == []
    successor = Leader(mark=60).load(row, cadence=HOURLY).begin()
    assert successor.fire(199) == []
    assert successor.fire(200) == of(job_id, 0)
    assert successor.fire(300) == []


def test_a_successor_does_not_repeat_what_was_due_before_the_mark() -> None:
    job_id = job_with_jitter(50, 240)
    successor = Leader(mark=60).load(job(job_id, jitter_seconds=240), cadence=HOURLY).begin()
    assert successor.fire(300) == []


def test_a_roster_is_kept_while_jittered_members_pend_and_goes_after_them() -> None:
    job_id = job_with_jitter(200, 240)
    leader = Leader(mark=-1).load(job(job_id, jitter_seconds=240), cadence=HOURLY).begin()
    leader.fire(199)
    assert len(leader.term.rosters) == 1
    assert leader.fire(200) == of(job_id, 0)
    assert (leader.term.rosters, leader.term.armed_jobs, len(leader.term.wheel)) == ({}, 0, 0)


def test_a_roster_kept_for_its_jitter_is_armed_again_when_the_window_reaches_its_next_occurrence() -> None:
    """Each quarter of an hour, with a jitter nearly as long: no load brings again what is there already."""
    job_id = job_with_jitter(890, 900)
    leader = Leader(mark=-1).load(job(5), job(job_id, jitter_seconds=900), cadence=QUARTERLY).begin()
    found = []
    for second in range(0, 1801, 10):
        if second % 60 == 0:
            leader.extend(second + WINDOW)
        found += leader.fire(second)
    assert sorted(found) == of(5, 0, 900, 1800) + of(job_id, 0, 900)


def test_a_member_changed_while_it_waits_for_its_jitter_goes_as_it_is_now() -> None:
    job_id = job_with_jitter(200, 240)
    leader = Leader(mark=-1).load(job(job_id, jitter_seconds=240), cadence=HOURLY).begin()
    leader.fire(60)
    leader.term.put_job(job(job_id, jitter_seconds=240, version=2, updated_at=MIDNIGHT + 60))
    leader.fire(61)
    assert [(message.version, message.due - MIDNIGHT) for message in leader.expand(300)] == [(2, 200)]


@pytest.mark.parametrize("fields", [{"active": False}, {"valid_from": MIDNIGHT + 60.5}])
def test_a_member_paused_or_resumed_while_it_waits_for_its_jitter_does_not_go(fields: dict[str, Any]) -> None:
    job_id = job_with_jitter(200, 240)
    leader = Leader(mark=-1).load(job(job_id, jitter_seconds=240), cadence=HOURLY).begin()
    leader.fire(60)
    leader.term.put_job(job(job_id, jitter_seconds=0, version=2, **fields))
    assert leader.fire(300) == []


def test_a_member_that_a_load_has_moved_away_does_not_go_with_its_old_cadence() -> None:
    """The load knows of the edit before the feed does, and the new place has forgotten its valid_from."""
    job_id = job_with_jitter(200, 240)
    leader = Leader(mark=-1).load(job(job_id, jitter_seconds=240), cadence=HOURLY).begin()
    leader.fire(60)
    leader.load(job(job_id, cadence_id=8, valid_from=MIDNIGHT + 59, version=2), cadence_id=8)
    assert leader.fire(130) == of(job_id, 120)
    assert leader.fire(200) == of(job_id, 180)


@pytest.mark.parametrize(("jitter", "due"), [(0, 61), (20, 61), (150, 110)])
def test_a_shorter_jitter_binds_what_waits_for_the_longer_one(jitter: int, due: int) -> None:
    """A successor would go by the new one too: between the two the occurrence must not be lost."""
    job_id = next(n for n in range(1, 99_999) if jitter_hash(n) % 240 == 200 and jitter_hash(n) % 150 == 110)
    leader = Leader(mark=-1).load(job(job_id, jitter_seconds=240), cadence=HOURLY).begin()
    leader.fire(60)
    shorter = job(job_id, jitter_seconds=jitter, version=2, updated_at=MIDNIGHT + 60)
    leader.term.put_job(shorter)
    found = [(second, *leader.fire(second)) for second in range(61, 260)]
    assert [second for second, *run in found if run] == [due]


def test_a_longer_jitter_repeats_nothing_that_has_left() -> None:
    job_id = job_with_jitter(200, 240)
    leader = Leader(mark=-1).load(job(job_id), cadence=HOURLY).begin()
    assert leader.fire(60) == of(job_id, 0)
    longer = job(job_id, jitter_seconds=240, version=2, updated_at=MIDNIGHT + 60)
    leader.load(longer, cadence=HOURLY)
    assert leader.fire(300) == []


def test_a_jitter_shortened_unknown_to_the_leader_that_died_loses_nothing() -> None:
    job_id = job_with_jitter(200, 240)
    edited = job(job_id, jitter_seconds=0, version=2, updated_at=MIDNIGHT + 59)
    successor = Leader(mark=60).load(edited, cadence=HOURLY, max_jitter=240, owed=[edited], since=58).begin()
    assert successor.fire(61, now=60) == of(job_id, 0)


# ── eviction ──────────────────────────────────────────────────────────────────────────────────────────


def test_a_cadence_whose_next_occurrence_lies_beyond_the_window_goes_and_comes_again() -> None:
    leader = Leader(mark=-1).load(job(), cadence=HOURLY).begin()
    assert leader.fire(0) == of(1, 0)
    assert (leader.term.rosters, leader.term.armed_jobs) == ({}, 0)
    leader.extend(HOUR + 1)
    leader.load(job(), cadence=HOURLY)
    assert leader.fire(HOUR) == of(1, HOUR)


def test_a_cadence_within_the_window_stays() -> None:
    leader = Leader().load(job()).begin()
    leader.fire(540)
    assert len(leader.term.rosters) == 1
    leader.fire(600)
    assert leader.term.rosters == {}


# ── cadences that cannot be evaluated ─────────────────────────────────────────────────────────────────


class Broken(Cadence):
    """A cadence that this version cannot evaluate from some second on."""

    def next_second(self, base: int) -> int | None:
        if base >= MIDNIGHT + 60:
            raise ValueError("no such zone any more")
        return super().next_second(base)


def broken() -> Cadence:
    return Broken(Kind.CRON, "* * * * *")


def test_a_cadence_that_cannot_be_evaluated_is_set_aside_and_the_others_go_on() -> None:
    leader = Leader().load(job(1), cadence=broken()).load(job(2, cadence_id=8), cadence_id=8).begin()
    leader.term.put_timer(timer(1, due=MIDNIGHT + 60, job_id=3))
    with capture_logs() as events:
        assert leader.fire(120, now=60) == of(2, 60, 120) + of(3, 60)
    assert [(each["event"], each["cadence_id"]) for each in events] == [("cadence_set_aside", 7)]
    assert set(leader.term.rosters) == {8}
    assert leader.fire(180) == of(2, 180)


def test_a_cadence_that_cannot_be_evaluated_when_it_is_loaded_stops_no_load() -> None:
    leader = Leader(mark=60)
    with capture_logs() as events:
        leader.load(job(1), cadence=broken()).load(job(2, cadence_id=8), cadence_id=8).begin()
    assert [each["event"] for each in events] == ["cadence_set_aside"]
    assert leader.fire(120) == of(2, 120)
    assert leader.term.armed_jobs == 1


def test_what_is_owed_of_a_cadence_that_cannot_be_evaluated_stops_nothing() -> None:
    leader = Leader(mark=60).load(job(2, cadence_id=8), cadence_id=8)
    late = job(1, valid_from=MIDNIGHT + 1)
    with capture_logs() as events:
        leader.load(late, cadence=broken(), owed=[late]).begin()
        assert leader.fire(120) == of(2, 120)
    assert {each["event"] for each in events} == {"cadence_set_aside"}
    assert not leader.owes()
