"""A cadence in words, for people: `0 9 * * MON-FRI` is “at 09:00, Monday to Friday”.

Correct or literal, never approximate. Each part of an expression (time of day, days, months) has a few
shapes that read well; whatever has none of them is shown as it is written, with the names of its fields.
Nothing is rounded: “every 25 minutes” would be false for `*/25`, which fires at :00, :25 and :50, so it
becomes a list of minutes.
"""

from __future__ import annotations

from collections.abc import Iterable

from mainspring.schedule.cadence import Cadence, Kind
from mainspring.schedule.cron import parse_cron
from mainspring.schedule.durations import parse_interval
from mainspring.schedule.fields import Field, Fields

_WEEKDAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_ORDINALS = ("", "1st", "2nd", "3rd", "4th", "5th")
_MOST_TIMES = 6
_ALL_SIXTY = frozenset(range(60))
_ALL_HOURS = frozenset(range(24))


def describe(cadence: Cadence) -> str:
    """One line without a full stop, lower case unless it begins with a name."""
    match cadence.kind:
        case Kind.EVERY:
            phase = f", {_length(cadence.phase)} past the grid" if cadence.phase else ""
            return f"every {_length(parse_interval(cadence.expression), drop_one=True)}{phase}"
        case Kind.AT:
            return f"once, at {cadence.expression}"
        case Kind.CRON:
            return _cron(parse_cron(cadence.expression))


def _cron(fields: Fields) -> str:
    time = _time(fields)
    days = _days(fields.day, fields.weekday)
    if not days and time.startswith("at ") and fields.hour.values != _ALL_HOURS:
        days = "every day"
    return ", ".join(part for part in (time, days, _months(fields.month)) if part)


def _time(fields: Fields) -> str:
    second, minute, hour = fields.second.values, fields.minute.values, fields.hour.values
    if len(second) * len(minute) * len(hour) <= _MOST_TIMES:
        return f"at {_join(_times(fields))}"
    if second == {0}:
        return _minutes(fields)
    if minute == _ALL_SIXTY and hour == _ALL_HOURS:
        step = _step(second)
        return _every(step, "second") if step else f"at second {_numbers(second)} of every minute"
    return f"second {fields.second.text}, minute {fields.minute.text}, hour {fields.hour.text}"


def _minutes(fields: Fields) -> str:
    """The time of day for expressions that fire on full minutes."""
    minute, hour = fields.minute.values, fields.hour.values
    step = _step(minute)
    if hour == _ALL_HOURS:
        if minute == {0}:
            return "every hour, on the hour"
        return _every(step, "minute") if step else f"at minute {_numbers(minute)} of every hour"
    if step and _contiguous(hour):
        return f"{_every(step, 'minute')} from {min(hour):02}:00 to {max(hour):02}:{max(minute):02}"
    if len(minute) == 1 and _contiguous(hour):
        shown = min(minute)
        return f"every hour from {min(hour):02}:{shown:02} to {max(hour):02}:{shown:02}"
    return f"minute {fields.minute.text}, hour {fields.hour.text}"


def _times(fields: Fields) -> list[str]:
    return [
        f"{hour:02}:{minute:02}" + ("" if fields.second.values == {0} else f":{second:02}")
        for hour in sorted(fields.hour.values)
        for minute in sorted(fields.minute.values)
        for second in sorted(fields.second.values)
    ]


def _days(day: Field, weekday: Field) -> str:
    """cron's own rule: both must match if one begins with a star, otherwise either is enough."""
    of_month = "" if _any_day(day) else _days_of_month(day)
    of_week = "" if _any_weekday(weekday) else _days_of_week(weekday)
    if day.starred or weekday.starred:
        return " and only ".join(part for part in (of_month, of_week) if part)
    return f"{of_month or 'on any day of the month'} or {of_week or 'on any day of the week'}"


def _any_day(day: Field) -> bool:
    return day.values == frozenset(range(1, 32))


def _any_weekday(weekday: Field) -> bool:
    return {value % 7 for value in weekday.values} == set(range(7))


def _days_of_month(day: Field) -> str:
    names = {"L": "the last day", "LW": "the last weekday (Monday to Friday)"}
    parts = [names[special] for special in day.specials]
    if day.values:
        parts.insert(0, f"day {_numbers(day.values)}")
    return f"on {_join(parts)} of the month"


def _days_of_week(weekday: Field) -> str:
    days = {value % 7 for value in weekday.values}
    from_monday = {(value - 1) % 7 for value in days}
    if not weekday.specials and len(days) > 2 and _contiguous(from_monday):
        return f"{_WEEKDAYS[min(from_monday) + 1]} to {_WEEKDAYS[(max(from_monday) + 1) % 7]}"
    parts = [_WEEKDAYS[(value + 1) % 7] for value in sorted(from_monday)]
    return f"on {_join([*parts, *(_special_weekday(special) for special in weekday.specials)])}"


def _special_weekday(special: str) -> str:
    if special.endswith("L"):
        return f"the last {_WEEKDAYS[int(special[:-1]) % 7]} of the month"
    day, _, nth = special.partition("#")
    return f"the {_ORDINALS[int(nth)]} {_WEEKDAYS[int(day) % 7]} of the month"


def _months(month: Field) -> str:
    if len(month.values) == 12:
        return ""
    if len(month.values) > 2 and _contiguous(month.values):
        return f"from {_MONTHS[min(month.values) - 1]} to {_MONTHS[max(month.values) - 1]}"
    return f"in {_join(_MONTHS[value - 1] for value in sorted(month.values))}"


def _step(values: frozenset[int]) -> int | None:
    """The n for which these are 0, n, 2n … evenly around the sixty; None if they are anything else."""
    step = 60 // len(values)
    return step if len(values) > 1 and values == frozenset(range(0, 60, step)) and 60 % step == 0 else None


def _contiguous(values: Iterable[int]) -> bool:
    found = set(values)
    return found == set(range(min(found), max(found) + 1))


def _every(step: int, unit: str) -> str:
    return f"every {unit}" if step == 1 else f"every {step} {unit}s"


def _length(seconds: int, *, drop_one: bool = False) -> str:
    """`5400` as “1 hour and 30 minutes”; alone and with drop_one, “1 hour” becomes “hour”."""
    parts = []
    for unit, size in (("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1)):
        amount, seconds = divmod(seconds, size)
        if amount:
            parts.append(f"{amount} {unit}" + ("s" if amount > 1 else ""))
    text = _join(parts)
    return text.removeprefix("1 ") if drop_one and len(parts) == 1 else text


def _numbers(values: Iterable[int]) -> str:
    return _join(str(value) for value in sorted(values))


def _join(parts: Iterable[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    *rest, last = parts
    return f"{', '.join(rest)} and {last}" if rest else last
