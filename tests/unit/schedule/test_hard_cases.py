"""The cases that break schedulers, each with the reason for its answer.

Offsets used below, from the IANA database: New York -5, in summer -4 (2026: 8 March 07:00Z to 1 November
06:00Z); London 0, +1 (29 March 01:00Z to 25 October 01:00Z); Lord Howe +10:30, +11 (until 4 April 15:00Z,
from 3 October 15:30Z); Cairo +2, +3 (23 April 22:00Z to 29 October 21:00Z); Tehran 2022 +3:30, +4:30 (21
March 20:30Z to 21 September 19:30Z); Santiago -4, -3 (until 5 April 03:00Z, from 6 September 04:00Z); Apia
-10, from 2011-12-30T10:00Z +14.
"""

from __future__ import annotations

import pytest

from mainspring.schedule import Cadence, DstPolicy, Gap, Repeat, format_instant, parse_instant

NEW_YORK, LONDON, LORD_HOWE = "America/New_York", "Europe/London", "Australia/Lord_Howe"
CAIRO, TEHRAN, SANTIAGO, APIA = "Africa/Cairo", "Asia/Tehran", "America/Santiago", "Pacific/Apia"


def listed(expression: str, zone: str, start: str, count: int, dst: DstPolicy | None = None) -> list[str]:
    cadence = Cadence.parse(expression, zone, dst or DstPolicy())
    moment, found = parse_instant(start), []
    for _ in range(count):
        following = cadence.next_after(moment)
        assert following is not None
        moment = following
        found.append(format_instant(moment).removesuffix(":00Z"))
    return found


# expression, zone, from, expected UTC instants, reason
DEFAULT_POLICY = [
    (
        "30 2 * * *",
        NEW_YORK,
        "2026-03-07T12:00:00Z",
        ["2026-03-08T07:00", "2026-03-09T06:30"],
        "gap: first instant after",
    ),
    (
        "15,45 2 * * *",
        NEW_YORK,
        "2026-03-07T12:00:00Z",
        ["2026-03-08T07:00", "2026-03-09T06:15"],
        "two in a gap: one run",
    ),
    (
        "0 2,3 * * *",
        NEW_YORK,
        "2026-03-07T12:00:00Z",
        ["2026-03-08T07:00", "2026-03-09T06:00"],
        "02:00 moves onto 03:00",
    ),
    (
        "0 30 2 * * *",
        NEW_YORK,
        "2026-03-07T12:00:00Z",
        ["2026-03-08T07:00", "2026-03-09T06:30"],
        "seconds change nothing",
    ),
    (
        "30 1 * * *",
        NEW_YORK,
        "2026-10-31T12:00:00Z",
        ["2026-11-01T05:30", "2026-11-02T06:30"],
        "repeat: the first",
    ),
    (
        "30 1 * * *",
        NEW_YORK,
        "2026-11-01T06:10:00Z",
        ["2026-11-02T06:30"],
        "from the second pass: not again, not back",
    ),
    (
        "0 1-3 * * *",
        NEW_YORK,
        "2026-11-01T04:00:00Z",
        ["2026-11-01T05:00", "2026-11-01T07:00"],
        "hour range is fixed",
    ),
    (
        "30 * * * *",
        NEW_YORK,
        "2026-11-01T05:00:00Z",
        ["2026-11-01T05:30", "2026-11-01T06:30"],
        "star hour: real time",
    ),
    (
        "30 * * * *",
        NEW_YORK,
        "2026-03-08T06:00:00Z",
        ["2026-03-08T06:30", "2026-03-08T07:30"],
        "star hour: real time",
    ),
    (
        "*/30 1 * * *",
        NEW_YORK,
        "2026-11-01T05:10:00Z",
        ["2026-11-01T05:30", "2026-11-01T06:00"],
        "star minute: both passes",
    ),
    (
        "*/30 2 * * *",
        NEW_YORK,
        "2026-03-07T12:00:00Z",
        ["2026-03-09T06:00"],
        "star minute: the hour never shows",
    ),
    (
        "0 */2 * * *",
        NEW_YORK,
        "2026-03-08T05:00:00Z",
        ["2026-03-08T08:00"],
        "02:00 never shows, 04:00 is 08:00Z",
    ),
    (
        "30 1 * * *",
        LONDON,
        "2026-03-28T12:00:00Z",
        ["2026-03-29T01:00", "2026-03-30T00:30"],
        "gap 01:00 to 02:00",
    ),
    (
        "30 1 * * *",
        LONDON,
        "2026-10-24T12:00:00Z",
        ["2026-10-25T00:30", "2026-10-26T01:30"],
        "first pass is summer time",
    ),
    (
        "15 2 * * *",
        LORD_HOWE,
        "2026-10-03T00:00:00Z",
        ["2026-10-03T15:30", "2026-10-04T15:15"],
        "30-minute gap",
    ),
    (
        "45 1 * * *",
        LORD_HOWE,
        "2026-04-04T00:00:00Z",
        ["2026-04-04T14:45", "2026-04-05T15:15"],
        "01:30 to 02:00 twice",
    ),
    ("45 1 * * *", LORD_HOWE, "2026-04-04T15:05:00Z", ["2026-04-05T15:15"], "base in the second half hour"),
    (
        "30 * * * *",
        LORD_HOWE,
        "2026-04-04T14:00:00Z",
        ["2026-04-04T14:30", "2026-04-04T15:00"],
        "01:30 shows twice",
    ),
    (
        "0 * * * *",
        LORD_HOWE,
        "2026-10-03T14:30:00Z",
        ["2026-10-03T16:00"],
        "02:00 never shows, 03:00 is next",
    ),
    (
        "0 0 * * *",
        CAIRO,
        "2026-04-23T12:00:00Z",
        ["2026-04-23T22:00", "2026-04-24T21:00"],
        "no midnight on 24 April",
    ),
    (
        "30 23 * * *",
        CAIRO,
        "2026-10-29T12:00:00Z",
        ["2026-10-29T20:30", "2026-10-30T21:30"],
        "23:30 comes twice",
    ),
    (
        "@daily",
        TEHRAN,
        "2022-03-21T12:00:00Z",
        ["2022-03-21T20:30", "2022-03-22T19:30"],
        "no midnight on 22 March",
    ),
    (
        "30 23 * * *",
        TEHRAN,
        "2022-09-21T12:00:00Z",
        ["2022-09-21T19:00", "2022-09-22T20:00"],
        "23:30 comes twice",
    ),
    (
        "0 0 * * *",
        SANTIAGO,
        "2026-09-05T12:00:00Z",
        ["2026-09-06T04:00", "2026-09-07T03:00"],
        "no midnight on a Sunday",
    ),
    (
        "0 0 * * SUN",
        SANTIAGO,
        "2026-09-01T12:00:00Z",
        ["2026-09-06T04:00", "2026-09-13T03:00"],
        "and it is still Sunday",
    ),
    (
        "0 9 * * *",
        APIA,
        "2011-12-29T12:00:00Z",
        ["2011-12-29T19:00", "2011-12-30T10:00", "2011-12-30T19:00"],
        "a lost day",
    ),
    (
        "0 9 30 12 *",
        APIA,
        "2011-06-01T00:00:00Z",
        ["2011-12-30T10:00", "2012-12-29T19:00"],
        "yearly job on the lost day",
    ),
    (
        "0 0 29 2 *",
        "UTC",
        "2096-01-01T00:00:00Z",
        ["2096-02-29T00:00", "2104-02-29T00:00"],
        "2100 is no leap year",
    ),
    (
        "0 0 29 2 */7",
        "UTC",
        "2088-03-01T00:00:00Z",
        ["2128-02-29T00:00"],
        "a leap Sunday: 2088, then 40 years",
    ),
    (
        "0 0 L * *",
        "UTC",
        "2028-01-31T12:00:00Z",
        ["2028-02-29T00:00", "2028-03-31T00:00"],
        "last day, leap year",
    ),
    ("0 0 LW * *", "UTC", "2026-05-01T00:00:00Z", ["2026-05-29T00:00"], "31 May 2026 is a Sunday"),
    ("0 0 * * 5L", "UTC", "2026-11-01T00:00:00Z", ["2026-11-27T00:00"], "last Friday of November"),
    ("0 0 * * FRIL", "UTC", "2026-11-01T00:00:00Z", ["2026-11-27T00:00"], "the same by name"),
    ("0 0 * * MON#2", "UTC", "2026-11-01T00:00:00Z", ["2026-11-09T00:00"], "2 November is the first Monday"),
    (
        "0 0 * * MON#5",
        "UTC",
        "2026-11-01T00:00:00Z",
        ["2026-11-30T00:00", "2027-03-29T00:00"],
        "not every month has one",
    ),
    ("0 0 * * 7", "UTC", "2026-11-18T00:00:00Z", ["2026-11-22T00:00"], "7 is Sunday"),
    (
        "0 0 * * FRI-SUN",
        "UTC",
        "2026-11-19T00:00:00Z",
        ["2026-11-20T00:00", "2026-11-21T00:00", "2026-11-22T00:00"],
        "forward",
    ),
    (
        "0 0 13 * FRI",
        "UTC",
        "2026-11-01T00:00:00Z",
        ["2026-11-06T00:00", "2026-11-13T00:00"],
        "either day is enough",
    ),
    (
        "0 0 */2 * FRI",
        "UTC",
        "2026-11-07T00:00:00Z",
        ["2026-11-13T00:00", "2026-11-27T00:00"],
        "star in front: both",
    ),
    ("0 0 31 2 MON", "UTC", "2026-01-01T00:00:00Z", ["2026-02-02T00:00"], "no 31 February, but Mondays"),
    (
        "5-5/10 * * * *",
        "UTC",
        "2026-01-01T00:00:00Z",
        ["2026-01-01T00:05", "2026-01-01T01:05"],
        "a range of one value",
    ),
]


@pytest.mark.parametrize(("expression", "zone", "start", "expected", "reason"), DEFAULT_POLICY)
def test_default_policy(expression: str, zone: str, start: str, expected: list[str], reason: str) -> None:
    assert listed(expression, zone, start, len(expected)) == expected, reason


# expression, zone, gap, repeat, from, expected
CHOSEN_POLICY = [
    ("30 2 * * *", NEW_YORK, "skip", "first", "2026-03-07T12:00:00Z", ["2026-03-09T06:30"]),
    ("0 9 * * *", APIA, "skip", "first", "2011-12-29T12:00:00Z", ["2011-12-29T19:00", "2011-12-30T19:00"]),
    (
        "30 1 * * *",
        NEW_YORK,
        "run_after",
        "second",
        "2026-10-31T12:00:00Z",
        ["2026-11-01T06:30", "2026-11-02T06:30"],
    ),
    ("30 1 * * *", NEW_YORK, "run_after", "second", "2026-11-01T05:45:00Z", ["2026-11-01T06:30"]),
    (
        "30 1 * * *",
        NEW_YORK,
        "run_after",
        "both",
        "2026-10-31T12:00:00Z",
        ["2026-11-01T05:30", "2026-11-01T06:30"],
    ),
    (
        "30 1 * * *",
        NEW_YORK,
        "run_after",
        "both",
        "2026-11-01T05:45:00Z",
        ["2026-11-01T06:30", "2026-11-02T06:30"],
    ),
    (
        "5,50 1 * * *",
        NEW_YORK,
        "skip",
        "both",
        "2026-11-01T05:30:00Z",
        ["2026-11-01T05:50", "2026-11-01T06:05"],
    ),
    (
        "45 1 * * *",
        LORD_HOWE,
        "skip",
        "both",
        "2026-04-04T12:00:00Z",
        ["2026-04-04T14:45", "2026-04-04T15:15"],
    ),
    (
        "45 1 * * *",
        LORD_HOWE,
        "skip",
        "second",
        "2026-04-04T12:00:00Z",
        ["2026-04-04T15:15", "2026-04-05T15:15"],
    ),
    (
        "30 * * * *",
        NEW_YORK,
        "run_after",
        "first",
        "2026-11-01T05:00:00Z",
        ["2026-11-01T05:30", "2026-11-01T06:30"],
    ),
    ("0 0 * * *", CAIRO, "skip", "first", "2026-04-23T12:00:00Z", ["2026-04-24T21:00"]),
]


@pytest.mark.parametrize(("expression", "zone", "gap", "repeat", "start", "expected"), CHOSEN_POLICY)
def test_chosen_policy(
    expression: str, zone: str, gap: str, repeat: str, start: str, expected: list[str]
) -> None:
    dst = DstPolicy(Gap(gap), Repeat(repeat))
    assert listed(expression, zone, start, len(expected), dst) == expected


def test_every_second_of_a_missing_minute_is_one_run() -> None:
    cadence = Cadence.parse("* 30 2 * * *", NEW_YORK)
    found = cadence.between(parse_instant("2026-03-08T05:00:00Z"), parse_instant("2026-03-09T06:00:00Z"), 100)
    assert [format_instant(moment) for moment in found] == ["2026-03-08T07:00:00Z"]


def test_a_missing_day_is_jumped_over_not_walked_through() -> None:
    dense = Cadence.parse("* 0-59 0-23 30 12 *", APIA, DstPolicy(Gap.SKIP))
    following = dense.next_after(parse_instant("2011-12-30T09:59:59Z"))
    assert following == parse_instant("2012-12-29T10:00:00Z")


def test_the_calendar_ends_without_an_error() -> None:
    end = parse_instant("9999-12-31T23:59:59Z")
    for text in ("* * * * * *", "0 0 29 2 *", "every 1s", "9999-12-31T23:59:59Z"):
        assert Cadence.parse(text, "Asia/Tokyo").next_after(end) is None
