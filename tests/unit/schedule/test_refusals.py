"""What is wrong is refused when made, and the error names the field."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from mainspring.schedule import Cadence, Kind, MissedPolicy, Schedule, parse_instant
from mainspring.schema.errors import InvalidInput

REFUSED = [
    ("61 * * * *", "minute", "61 is not in 0–59"),
    ("* 24 * * *", "hour", "24 is not in 0–23"),
    ("60 * * * * *", "second", "60 is not in 0–59"),
    ("* * 0 * *", "day-of-month", "0 is not in 1–31"),
    ("* * * 13 *", "month", "13 is not in 1–12"),
    ("* * * * 8", "day-of-week", "8 is not in 0–7"),
    ("* * * FOO *", "month", "'FOO' is not in 1–12 or JAN–DEC"),
    ("MON * * * *", "minute", "'MON' is not in 0–59"),
    ("-5 * * * *", "minute", "a value is missing"),
    ("1,,2 * * * *", "minute", "a value is missing"),
    ("30-10 * * * *", "minute", "the range 30-10 runs backwards"),
    ("* * * * 5-0", "day-of-week", "the range 5-0 runs backwards"),
    ("*/0 * * * *", "minute", "a step of 0 never moves"),
    ("*/x * * * *", "minute", "'X' is not a step"),
    ("*/90 * * * *", "minute", "a step of 90 leaves 0–59"),
    ("* * ? * *", "day-of-month", "? is not part of cron"),
    ("* * 15W * *", "day-of-month", "'15W' is not supported"),
    ("* * * * L", "day-of-week", "L needs a weekday"),
    ("* * * * MON#6", "day-of-week", "'6' after # is not in 1–5"),
    ("* * L/2 * *", "day-of-month", "'L' is not in 1–31"),
    ("* * * *", "cron", "expected 5 fields (6 with leading seconds), found 4"),
    ("* * * * * * *", "cron", "found 7"),
    ("0 " * 600, "cron", "longer than 1024 characters"),
    ("@reboot", "cron", "@reboot has no time of its own"),
    ("@fortnightly", "cron", "'@fortnightly' is not a nickname"),
    ("0 0 30 2 *", "day-of-month", "can never fire"),
    ("0 0 31 2,4 *", "day-of-month", "can never fire"),
    ("0 0 */9 * MON#5", "day-of-month", "can never fire"),
    ("", "schedule", "empty"),
    ("every", "every", "the interval is missing"),
    ("every 0s", "every", "zero"),
    ("every -5m", "every", "negative"),
    ("every 500ms", "every", "not whole seconds"),
    ("every PT0.5S", "every", "not whole seconds"),
    ("every P1M", "every", "years or months"),
    ("every P1Y", "every", "years or months"),
    ("every soon", "every", "'soon' is not a duration"),
    ("every PT", "every", "'PT' is not a duration"),
    ("every P1DT", "every", "'P1DT' is not a duration"),
    ("every 9999999999h", "every", "longer than ten years"),
    ("2026-02-30T00:00:00Z", "at", "not a real date"),
    ("2026-03-08", "at", "has no time of day"),
    ("2026-03-08T07:00:00.5Z", "at", "fraction of a second"),
    ("2026-03-08X07:00:00Z", "at", "is not an ISO-8601 instant"),
    ("0001-01-01T00:00:00+10:00", "at", "beyond the calendar"),
]


@pytest.mark.parametrize(("text", "field", "rule"), REFUSED)
def test_refused_with_the_field_and_the_rule(text: str, field: str, rule: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        Cadence.parse(text)
    assert refusal.value.field == field
    assert rule in refusal.value.rule


def test_an_unknown_zone_is_refused_and_a_near_miss_gets_a_hint() -> None:
    with pytest.raises(InvalidInput) as refusal:
        Cadence.parse("@daily", "Mars/Olympus")
    assert str(refusal.value) == "timezone: 'Mars/Olympus' is not an IANA time zone"
    with pytest.raises(InvalidInput, match="did you mean America/New_York"):
        Cadence.parse("@daily", "america/new york")
    for path in ("../zones", "/etc/passwd", ""):
        with pytest.raises(InvalidInput, match="not an IANA time zone"):
            Cadence.parse("@daily", path)


def test_a_local_instant_that_never_comes_or_comes_twice_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"does not exist in America/New_York.*2026-03-08T03:00:00"):
        parse_instant("2026-03-08T02:30", "America/New_York")
    both = "write 2026-11-01T01:30:00-04:00 or 2026-11-01T01:30:00-05:00"
    with pytest.raises(InvalidInput, match=both):
        parse_instant("2026-11-01T01:30", "America/New_York")
    assert parse_instant("2026-11-01T09:00", "America/New_York") == parse_instant("2026-11-01T14:00:00Z")


@pytest.mark.parametrize("text", ["every 90s", "every 1m30s", "every PT1M30S", "EVERY 90", "every PT90S"])
def test_spellings_of_one_interval_are_one_cadence(text: str) -> None:
    assert Cadence.parse(text) == Cadence(Kind.EVERY, "PT90S")


@pytest.mark.parametrize(
    ("text", "expression"),
    [
        ("@daily", "0 0 * * *"),
        ("0  9 * jan mon-fri", "0 9 * 1 1-5"),
        ("0 0 9 * * *", "0 9 * * *"),
        ("15 0 9 * * *", "15 0 9 * * *"),
        ("0 0 * * friL", "0 0 * * 5L"),
        ("2026-03-08T02:00:00-05:00", "2026-03-08T07:00:00Z"),
    ],
)
def test_spellings_become_canonical(text: str, expression: str) -> None:
    assert Cadence.parse(text).expression == expression


def test_a_phase_belongs_to_every_and_lies_within_the_interval() -> None:
    with pytest.raises(InvalidInput, match="phase: 90 is not in 0–89"):
        Cadence(Kind.EVERY, "90s", phase=90)
    with pytest.raises(InvalidInput, match="phase: only `every` has a phase"):
        Cadence(Kind.CRON, "@daily", phase=1)


def test_a_naive_base_is_a_programming_error() -> None:
    with pytest.raises(ValueError, match="naive"):
        Cadence.parse("@daily").next_after(datetime(2026, 1, 1))  # noqa: DTZ001


def test_a_schedule_checks_its_own_parts() -> None:
    cadence, day = Cadence.parse("@daily"), parse_instant("2026-01-01T00:00:00Z")
    with pytest.raises(InvalidInput, match="ends_at: is not after starts_at"):
        Schedule(cadence, starts_at=day, ends_at=day)
    with pytest.raises(InvalidInput, match="valid_from: needs an offset"):
        Schedule(cadence, valid_from=day.replace(tzinfo=None))
    with pytest.raises(InvalidInput, match="grace: is negative"):
        Schedule(cadence, grace=timedelta(seconds=-1))
    with pytest.raises(InvalidInput, match="max_missed: 0 is not in 1–10000"):
        Schedule(cadence, missed_policy=MissedPolicy.RUN_ALL, max_missed=0)
    for seconds in (-1, 0.5, 86_401):
        with pytest.raises(InvalidInput, match="jitter"):
            Schedule(cadence, jitter=timedelta(seconds=seconds))
