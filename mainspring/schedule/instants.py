"""Instants as people write them: ISO-8601, with an offset or in a given time zone.

`2026-03-08T07:00:00Z` and `2026-03-08T02:00:00-05:00` say everything. `2026-03-08T02:30` leaves the offset
to the zone; where the zone cannot tell (the time is skipped or repeated on that day) the instant is
refused with the two spellings that would be clear. A DST policy does not apply: it is for times that
recur, and whoever writes one date can say which instant is meant. Instants are whole seconds, as the
wheel's slots are.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone

from mainspring.schedule.wall import Missing, Plain, Repeated, locate, to_datetime
from mainspring.schedule.zones import load_zone
from mainspring.schema.errors import InvalidInput

LOOKS_LIKE_INSTANT = re.compile(r"[+-]?\d{4}-\d|\d{8}[T ]|\d{4}-?W\d", re.IGNORECASE | re.ASCII)
_SHAPE = re.compile(r"[0-9W-]+[T ][0-9:.,]+(Z|[+-][0-9:]+)?", re.IGNORECASE | re.ASCII)


def parse_instant(text: str, timezone_name: str = "UTC", *, field: str = "at") -> datetime:
    """The instant in UTC; raises InvalidInput(field, …)."""
    moment = _read(text.strip(), field)
    if moment.microsecond:
        raise InvalidInput(field, f"{_quote(text)} has a fraction of a second; instants are whole seconds")
    if moment.tzinfo is None:
        return _in_zone(moment, timezone_name, field)
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise InvalidInput(field, f"{_quote(text)} is beyond the calendar") from None


def format_instant(moment: datetime) -> str:
    """`2026-03-08T07:00:00Z`: UTC and whole seconds, the only form that is stored or sent."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ").rjust(20, "0")


def _read(text: str, field: str) -> datetime:
    if re.fullmatch(r"\d{4}-\d{2}-\d{2}", text, re.ASCII):
        raise InvalidInput(
            field, f"{_quote(text)} has no time of day; write {text}T00:00:00 and an offset or Z"
        )
    if _SHAPE.fullmatch(text):
        try:
            return datetime.fromisoformat(text.upper())
        except ValueError as error:
            raise InvalidInput(field, f"{_quote(text)} is not a real date and time ({error})") from None
    raise InvalidInput(field, f"{_quote(text)} is not an ISO-8601 instant such as 2026-03-08T07:00:00Z")


def _in_zone(wall: datetime, timezone_name: str, field: str) -> datetime:
    shown = wall.isoformat()
    try:
        place = locate(wall, load_zone(timezone_name))
        match place:
            case Plain():
                return to_datetime(place.instant)
            case Missing():
                resumes = f"{place.resumes:%Y-%m-%dT%H:%M:%S}"
                rule = f"{shown} does not exist in {timezone_name}: the clock jumps over it, to {resumes}"
                raise InvalidInput(field, f"{rule}; write another time, or an offset")
            case Repeated():
                first, second = _with_offset(wall, place.first), _with_offset(wall, place.second)
                rule = f"{shown} happens twice in {timezone_name}; write {first} or {second}"
                raise InvalidInput(field, rule)
    except OverflowError:
        raise InvalidInput(field, f"{shown} is beyond the calendar") from None


def _with_offset(wall: datetime, instant: int) -> str:
    offset = wall.replace(tzinfo=UTC) - to_datetime(instant)
    return wall.replace(tzinfo=timezone(timedelta(seconds=offset.total_seconds()))).isoformat()


def _quote(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "...")
