"""Cron expressions in a time zone.

cronsim answers one question: which wall time matches next. It is asked in naive local time, where its
answer involves no zone, and the wall time is then turned into instants here, under the job's DST policy:

    plain      the one instant
    missing    `run_after`: the first instant after the gap; `skip`: none
    repeated   `first`, `second`, or `both`

An expression is a *fixed time of day* if neither its minute nor its hour is written with a star in front;
the policy is for those. Any other follows real elapsed time, which is the same engine under `skip` and
`both`: a wall time that never shows does not fire and one that shows twice fires twice, so `*/15 * * * *`
fires every fifteen minutes right through both changes. This is Debian cron's rule, star and all: `*/2` in
the hour is a star, `0-23/2` is not. Expressions with seconds obey it like those without.

Why not let cronsim handle the zone: it has one policy, none for expressions with seconds, and from a start
inside the repeated hour it can answer an instant before the start. What it does right we do not repeat.

**Why the answer is the smallest instant after the base.** Read in rising wall time, first passes come in
rising order of instants, and so do second passes; a gap maps to its end, between its neighbours. Scanning
from the base's own wall time therefore meets the earliest instant first, with one exception: a base inside
a *first* pass, where the second pass of an *earlier* wall time is still to come. `_first_of_second_pass`
looks there, and the smaller answer wins. Every instant is held against the base itself (`> base`), so no
answer is ever at or before it. Where the policy takes nothing from a gap or a repeat, the scan jumps over
it: a day without existence costs one step, not 86,400.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from mainspring.schedule.dst import REAL_TIME, DstPolicy, Gap, Repeat
from mainspring.schedule.fields import Fields, parse_fields
from mainspring.schedule.wall import Missing, Plain, Repeated, locate, wall_at
from mainspring.schedule.zones import load_zone
from mainspring.schema.errors import InvalidInput

MEMORY = 65_536
"""Evaluations remembered: two minutes of five hundred cadences that fire each second."""

_SECOND = timedelta(seconds=1)
_ANY_YEAR = datetime(2000, 1, 1)  # noqa: DTZ001  (a wall time)


@lru_cache(maxsize=MEMORY)
def parse_cron(text: str) -> Fields:
    """Check an expression completely; raises InvalidInput also for one that can never fire."""
    fields = parse_fields(text)
    if not _can_fire(fields.expression):
        date = f"day {fields.day.text}, month {fields.month.text}, weekday {fields.weekday.text}"
        raise InvalidInput("day-of-month", f"no date matches {date}: the expression can never fire")
    return fields


def next_cron(expression: str, timezone: str, dst: DstPolicy, base: int) -> int | None:
    """The first instant strictly after `base` (both seconds since 1970); None at the end of the calendar.

    Remembered per (expression, zone, policy, second), so one evaluation serves every shard and every member.
    Expressions that follow real time share one entry whatever their policy says. Safe from several threads:
    the memory is the standard library's, and two threads that miss together compute the same answer twice.
    """
    return _next(expression, timezone, dst if is_fixed_time(expression) else REAL_TIME, base)


def is_fixed_time(expression: str) -> bool:
    """Whether the DST policy applies: no star in front of the minute or of the hour."""
    minute, hour = expression.split()[-5:-3]
    return not minute.startswith("*") and not hour.startswith("*")


@lru_cache(maxsize=MEMORY)
def _next(expression: str, timezone: str, dst: DstPolicy, base: int) -> int | None:
    zone = load_zone(timezone)
    try:
        answers = (_scan(expression, zone, dst, base), _first_of_second_pass(expression, zone, dst, base))
    except OverflowError:  # beyond the year 9999
        return None
    return min((answer for answer in answers if answer is not None), default=None)


def _scan(expression: str, zone: ZoneInfo, dst: DstPolicy, base: int) -> int | None:
    """Go through the matching wall times after the base's own, up to the first instant after the base."""
    wall = _next_wall(expression, wall_at(base, zone))
    while wall is not None:
        place = locate(wall, zone)
        for instant in _instants(place, dst):
            if instant > base:
                return instant
        wall = _next_wall(expression, _end_of(place, wall))
    return None


def _first_of_second_pass(expression: str, zone: ZoneInfo, dst: DstPolicy, base: int) -> int | None:
    """With the base inside a first pass: the earliest instant that the second pass has to offer."""
    if dst.repeat is Repeat.FIRST:
        return None
    wall = wall_at(base, zone)
    place = locate(wall, zone)
    if wall.fold == 1 or not isinstance(place, Repeated):
        return None
    earliest = _next_wall(expression, place.starts - _SECOND)
    if earliest is None or earliest >= place.ends:
        return None
    again = locate(earliest, zone)
    assert isinstance(again, Repeated)
    return again.second


def _instants(place: Plain | Missing | Repeated, dst: DstPolicy) -> tuple[int, ...]:
    """When to fire for one wall time, in order."""
    match place:
        case Plain():
            return (place.instant,)
        case Missing():
            return (place.change,) if dst.gap is Gap.RUN_AFTER else ()
        case Repeated():
            passes = {Repeat.FIRST: (place.first,), Repeat.SECOND: (place.second,)}
            return passes.get(dst.repeat, (place.first, place.second))


def _end_of(place: Plain | Missing | Repeated, wall: datetime) -> datetime:
    """The last wall time that would be treated like this one; the scan goes on after it."""
    match place:
        case Plain():
            return wall
        case Missing():
            return place.resumes - _SECOND
        case Repeated():
            return place.ends - _SECOND


def _next_wall(expression: str, wall: datetime) -> datetime | None:
    """The next matching wall time, or None where cronsim finds none in fifty years.

    Fifty are enough for every date there is: the rarest, a leap day on one weekday, comes after 40 at most.
    """
    try:
        found: datetime = next(CronSim(expression, wall.replace(fold=0)))
    except StopIteration:
        return None
    return found


def _can_fire(expression: str) -> bool:
    try:
        return _next_wall(expression, _ANY_YEAR) is not None
    except CronSimError:  # day 30 or 31 in months that have none; all else was refused by parse_fields
        return False
