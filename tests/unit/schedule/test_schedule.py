"""What a job owns, what it misses, when it is due: every expectation is counted by hand."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from mainspring.schedule import (
    Backlog,
    Cadence,
    Kind,
    MissedPolicy,
    Schedule,
    Verdict,
    decide,
    format_instant,
    jitter_hash,
    jitter_offset,
    parse_instant,
)
from mainspring.schedule.schedule import COUNTED

HOURLY = Cadence.parse("0 * * * *")
MINUTE = timedelta(minutes=1)
VECTORS = [
    13676982836287394664,
    1949825794416032599,
    18143301678808507232,
    18255835200284337420,
    16604138734288657701,
]


def at(time: str) -> datetime:
    return parse_instant(f"2026-11-18T{time}Z")


def shown(moments: list[datetime] | tuple[datetime, ...]) -> list[str]:
    return [format_instant(moment)[11:16] for moment in moments]


def test_ranges_exclude_their_start_and_include_their_end() -> None:
    assert shown(HOURLY.between(at("01:00:00"), at("03:00:00"), 9)) == ["02:00", "03:00"]
    assert shown(HOURLY.between(at("01:00:00"), at("09:00:00"), 2)) == ["02:00", "03:00"]
    assert HOURLY.between(at("03:00:00"), at("03:00:00"), 9) == []
    assert shown(HOURLY.newest(at("01:00:00"), at("09:00:00"), 2)) == ["08:00", "09:00"]
    assert shown(HOURLY.newest(at("01:00:00"), at("02:30:00"), 5)) == ["02:00"]
    assert HOURLY.count(at("01:00:00"), at("09:00:00"), 100) == 8
    assert HOURLY.count(at("01:00:00"), at("09:00:00"), 3) == 3


def test_every_keeps_its_grid_from_the_epoch() -> None:
    cadence = Cadence(Kind.EVERY, "15m", phase=60)
    assert shown(cadence.between(at("00:00:00"), at("01:00:00"), 9)) == ["00:01", "00:16", "00:31", "00:46"]
    assert cadence.count(at("00:01:00"), at("00:46:00"), 9) == 3
    before_the_epoch = parse_instant("1969-12-31T23:50:00Z")
    assert cadence.next_after(before_the_epoch) == parse_instant("1970-01-01T00:01:00Z")


def test_an_instant_comes_once() -> None:
    cadence = Cadence.parse("2026-11-18T09:00:00Z")
    assert cadence.next_after(at("08:59:59")) == at("09:00:00")
    assert cadence.next_after(at("09:00:00")) is None


def test_a_job_owns_what_comes_after_valid_from() -> None:
    schedule = Schedule(HOURLY, valid_from=at("05:00:00"))
    assert schedule.next_after(at("01:00:00")) == at("06:00:00")
    missed = Schedule(HOURLY, valid_from=at("05:00:00"), missed_policy=MissedPolicy.RUN_ALL)
    assert shown(missed.missed(1, at("00:00:00"), at("08:00:00"), at("08:30:00")).run) == [
        "06:00",
        "07:00",
        "08:00",
    ]


def test_valid_from_does_not_bind_an_instant_in_the_past() -> None:
    schedule = Schedule(Cadence.parse("2026-11-18T09:00:00Z"), valid_from=at("12:00:00"))
    assert schedule.missed(1, at("00:00:00"), at("12:00:00"), at("12:00:00")).run == (at("09:00:00"),)


def test_the_start_is_inside_and_the_end_is_outside() -> None:
    schedule = Schedule(HOURLY, starts_at=at("03:00:00"), ends_at=at("05:00:00"))
    assert shown(schedule.between(at("00:00:00"), at("09:00:00"), 9)) == ["03:00", "04:00"]
    assert schedule.next_after(at("00:00:00")) == at("03:00:00")
    assert schedule.next_after(at("04:00:00")) is None


@pytest.mark.parametrize(
    ("policy", "late", "following", "verdict"),
    [
        (MissedPolicy.SKIP, 60, None, Verdict.RUN),
        (MissedPolicy.SKIP, 61, None, Verdict.MISSED),
        (MissedPolicy.RUN_ONCE, 60, 30, Verdict.RUN),
        (MissedPolicy.RUN_ONCE, 61, 62, Verdict.RUN),
        (MissedPolicy.RUN_ONCE, 61, 61, Verdict.MISSED),
        (MissedPolicy.RUN_ONCE, 9999, None, Verdict.RUN),
        (MissedPolicy.RUN_ALL, 9999, 60, Verdict.RUN),
    ],
)
def test_the_rule_of_lateness(
    policy: MissedPolicy, late: int, following: int | None, verdict: Verdict
) -> None:
    due = at("09:00:00")
    newer = None if following is None else due + timedelta(seconds=following)
    now = due + timedelta(seconds=late)
    assert decide(due=due, now=now, grace=MINUTE, policy=policy, following=newer) is verdict


def test_skip_drops_every_late_occurrence_and_keeps_the_punctual_one() -> None:
    schedule = Schedule(HOURLY, missed_policy=MissedPolicy.SKIP)
    assert schedule.missed(1, at("01:00:00"), at("05:00:00"), at("05:00:30")) == Backlog((at("05:00:00"),), 3)
    assert schedule.missed(1, at("01:00:00"), at("05:00:00"), at("05:01:01")) == Backlog((), 4)


def test_run_once_runs_the_last_missed_instant() -> None:
    schedule = Schedule(HOURLY)
    assert schedule.missed(1, at("01:00:00"), at("05:00:00"), at("05:30:00")) == Backlog((at("05:00:00"),), 3)


def test_run_once_yields_to_a_newer_occurrence() -> None:
    schedule = Schedule(HOURLY)
    assert schedule.missed(1, at("01:00:00"), at("05:00:00"), at("05:00:30")) == Backlog((at("05:00:00"),), 3)
    assert schedule.missed(1, at("01:00:00"), at("04:59:59"), at("05:00:30")) == Backlog((), 3)


def test_the_last_run_of_a_job_that_ended_is_not_lost_to_a_successor() -> None:
    schedule = Schedule(HOURLY, ends_at=at("03:00:00"))
    assert schedule.missed(1, at("00:00:00"), at("09:00:00"), at("09:00:00")) == Backlog((at("02:00:00"),), 1)


def test_run_all_keeps_the_newest_and_counts_the_rest() -> None:
    schedule = Schedule(HOURLY, missed_policy=MissedPolicy.RUN_ALL, max_missed=2)
    backlog = schedule.missed(1, at("00:00:00"), at("09:00:00"), at("09:00:30"))
    assert shown(backlog.run) == ["07:00", "08:00", "09:00"]  # two late ones and the punctual one
    assert (backlog.dropped, backlog.more) == (6, False)


def test_a_long_outage_is_counted_to_a_bound() -> None:
    year_ago = at("00:00:00") - timedelta(days=365)
    for text in ("* * * * * *", "every 1s"):
        schedule = Schedule(Cadence.parse(text), missed_policy=MissedPolicy.RUN_ALL, max_missed=3)
        backlog = schedule.missed(1, year_ago, at("00:00:00"), at("01:00:00"))
        newest = [at("00:00:00") - timedelta(seconds=back) for back in (2, 1, 0)]
        assert backlog == Backlog(tuple(newest), COUNTED, more=True)


def test_jitter_still_to_come_is_not_late() -> None:
    schedule = Schedule(HOURLY, jitter=timedelta(minutes=30), missed_policy=MissedPolicy.SKIP)
    offset = jitter_hash(7) % 1800
    due = at("05:00:00") + timedelta(seconds=offset)
    assert schedule.due(7, at("05:00:00")) == due
    assert schedule.missed(7, at("04:00:00"), at("05:00:00"), due + MINUTE).run == (at("05:00:00"),)
    assert schedule.missed(7, at("04:00:00"), at("05:00:00"), due + MINUTE * 2).run == ()


def test_jitter_vectors() -> None:
    """These numbers are in the documentation and must never change: they place every job in its second."""
    assert [jitter_hash(job_id) for job_id in (0, 1, 2, 42, 2**63 - 1)] == VECTORS


def test_jitter_spreads_within_the_next_occurrence() -> None:
    start, hour = at("05:00:00"), timedelta(hours=1)
    offsets = {jitter_offset(job_id, hour, start, start + MINUTE) for job_id in range(2000)}
    assert offsets == {timedelta(seconds=second) for second in range(60)}
    assert jitter_offset(1, timedelta(0), start, None) == timedelta(0)
    assert jitter_offset(1, hour, start, None) == timedelta(seconds=jitter_hash(1) % 3600)
