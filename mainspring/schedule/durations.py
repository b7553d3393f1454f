"""Intervals: `90s`, `15m`, `1h30m`, `90` (seconds), or an ISO-8601 duration such as `PT15M`.

An interval is a length of real time. A day is 86,400 seconds here, whatever the local clock does
meanwhile; “every day at nine” is cron's business. So are months and years, which have no fixed length and
are refused.

Occurrences lie at `phase + k × interval` from 1970-01-01T00:00:00Z. They depend on nothing else: not on
when the job was made, a leader started or the last run ended. `every 15m` fires on the quarter hours, and
the phase moves that grid: with a phase of 60 seconds it fires at :01, :16, :31 and :46.
"""

from __future__ import annotations

import re
from functools import lru_cache

from mainspring.schema.errors import InvalidInput

LONGEST_INTERVAL = 3660 * 86_400
"""Ten years: longer is a typing mistake, and sums with it stay far from the end of the calendar."""

_UNITS = {"w": 7 * 86_400, "d": 86_400, "h": 3_600, "m": 60, "s": 1}
_SHORT = re.compile(r"(?:(\d+)w)?(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", re.IGNORECASE | re.ASCII)
_ISO = re.compile(
    r"P(?:(\d+)W)?(?:(\d+)D)?(?:T(?=\d)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?)?", re.IGNORECASE | re.ASCII
)
_ISO_WITH_MONTHS = re.compile(r"P[\d.,]*[YM].*|P\d+Y.*", re.IGNORECASE | re.ASCII)
_EXAMPLES = "write 90s, 15m, 2h, 1d or an ISO-8601 duration such as PT15M"


@lru_cache(maxsize=4096)
def parse_interval(text: str) -> int:
    """The interval in whole seconds, at least one; raises InvalidInput("every", …)."""
    stripped = text.strip()
    if not stripped:
        raise InvalidInput("every", f"the interval is missing; {_EXAMPLES}")
    seconds = _to_seconds(stripped)
    if seconds == 0:
        raise InvalidInput("every", "an interval of zero is not an interval; the shortest is 1s")
    if seconds > LONGEST_INTERVAL:
        raise InvalidInput("every", f"{_quote(stripped)} is longer than ten years")
    return seconds


def format_interval(seconds: int) -> str:
    """The one canonical spelling, so that `90s`, `1m30s` and `PT1M30S` share one cadence: `PT90S`."""
    return f"PT{seconds}S"


def check_phase(phase: int, interval: int) -> None:
    """A phase is where in the interval the grid starts; raises InvalidInput("phase", …)."""
    if not 0 <= phase < interval:
        raise InvalidInput("phase", f"{phase} is not in 0–{interval - 1}, the seconds of the interval")


def next_every(interval: int, phase: int, base: int) -> int:
    """The first instant of the grid strictly after `base` (seconds since 1970)."""
    return base - (base - phase) % interval + interval


def count_every(interval: int, phase: int, after: int, through: int) -> int:
    """How many instants of the grid lie in (after, through]."""
    return max(0, (through - phase) // interval - (after - phase) // interval)


def _to_seconds(text: str) -> int:
    if re.fullmatch(r"\d{1,12}", text, re.ASCII):
        return int(text)
    match = _ISO.fullmatch(text) or _SHORT.fullmatch(text)
    if match is None or not any(match.groups()):
        raise InvalidInput("every", _explain(text))
    digits = [group or "0" for group in match.groups()]
    if max(len(group) for group in digits) > 12:
        raise InvalidInput("every", f"{_quote(text)} is longer than ten years")
    return sum(int(count) * unit for count, unit in zip(digits, _UNITS.values(), strict=True))


def _explain(text: str) -> str:
    if text.startswith("-") or re.match(r"P.*-\d", text):
        return f"{_quote(text)} is negative; an interval runs forward"
    if re.search(r"\d[.,]\d|\d(ms|us|ns)$", text, re.IGNORECASE):
        return f"{_quote(text)} is not whole seconds; the shortest step is 1s"
    if _ISO_WITH_MONTHS.fullmatch(text):
        return f"{_quote(text)} counts years or months, which have no fixed length; use cron"
    return f"{_quote(text)} is not a duration; {_EXAMPLES}"


def _quote(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "...")
