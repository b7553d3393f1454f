"""Cadences in words: right, or the fields as they are written."""

from __future__ import annotations

import pytest

from mainspring.schedule import Cadence, Kind, describe

WORDS = [
    ("* * * * *", "every minute"),
    ("* * * * * *", "every second"),
    ("*/10 * * * * *", "every 10 seconds"),
    ("*/15 * * * *", "every 15 minutes"),
    ("0,15,30,45 * * * *", "every 15 minutes"),
    ("*/25 * * * *", "at minute 0, 25 and 50 of every hour"),
    ("5/15 * * * *", "at minute 5, 20, 35 and 50 of every hour"),
    ("@hourly", "every hour, on the hour"),
    ("7 * * * *", "at minute 7 of every hour"),
    ("30 * * * * *", "at second 30 of every minute"),
    ("@daily", "at 00:00, every day"),
    ("0 9 * * MON", "at 09:00, on Monday"),
    ("0 9 * * MON-FRI", "at 09:00, Monday to Friday"),
    ("0 9 * * 0-6", "at 09:00, every day"),
    ("0 9 * * 1,3,7", "at 09:00, on Monday, Wednesday and Sunday"),
    ("30 9,17 * * *", "at 09:30 and 17:30, every day"),
    ("15 30 9 * * *", "at 09:30:15, every day"),
    ("*/15 9-17 * * *", "every 15 minutes from 09:00 to 17:45"),
    ("5 9-17 * * *", "every hour from 09:05 to 17:05"),
    ("0 */2 * * *", "minute 0, hour */2"),
    ("0 0 1 * *", "at 00:00, on day 1 of the month"),
    ("0 0 1,L * *", "at 00:00, on day 1 and the last day of the month"),
    ("0 0 LW * *", "at 00:00, on the last weekday (Monday to Friday) of the month"),
    ("0 0 * * 5L", "at 00:00, on the last Friday of the month"),
    ("0 0 * * MON#2", "at 00:00, on the 2nd Monday of the month"),
    ("0 0 13 * FRI", "at 00:00, on day 13 of the month or on Friday"),
    ("0 0 */15 * FRI", "at 00:00, on day 1, 16 and 31 of the month and only on Friday"),
    ("0 0 13 * 0-6", "at 00:00, on day 13 of the month or on any day of the week"),
    ("0 0 1 1,7 *", "at 00:00, on day 1 of the month, in January and July"),
    ("0 0 * 3-5 *", "at 00:00, every day, from March to May"),
    ("* 5 3 * * *", "second *, minute 5, hour 3"),
    ("every 90s", "every 1 minute and 30 seconds"),
    ("every 1h", "every hour"),
    ("every P2D", "every 2 days"),
    ("2027-01-01T00:00:00Z", "once, at 2027-01-01T00:00:00Z"),
]


@pytest.mark.parametrize(("text", "words"), WORDS)
def test_words(text: str, words: str) -> None:
    assert describe(Cadence.parse(text)) == words


def test_a_phase_is_mentioned() -> None:
    assert (
        describe(Cadence(Kind.EVERY, "1h", phase=90)) == "every hour, 1 minute and 30 seconds past the grid"
    )
