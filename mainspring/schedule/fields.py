"""The grammar of a cron expression: checked field by field, with errors that name the field.

An expression is five fields (minute, hour, day-of-month, month, day-of-week), six with a leading second,
or a nickname. A field is a list of terms separated by commas:

    *         every value                    a         one value
    */n       every n-th value               a-b       a range, low to high
    a-b/n     every n-th value of a range    a/n       every n-th value from a to the end of the field
    L         the last day of the month      LW        the last weekday (Monday to Friday) of the month
    dL        the last such weekday          d#n       the n-th such weekday of the month (n is 1–5)

The first row of specials belongs to day-of-month, the second to day-of-week. Months and weekdays have
English names (JAN, MON) in either case. Weekday 0 and 7 are both Sunday.

cronsim checks expressions too, but says only “Bad minute”; and it reads `5-5/10` as `5/10`. So we parse
first, and hand it a *canonical* text: upper case, numbers for names, a one-value range written as that
value. Two spellings of one schedule then also share one cadence. The star is kept as it was written,
because it carries meaning of its own: `*` at the front of day-of-month or day-of-week decides between
*and* and *or*, and at the front of minute or hour between real elapsed time and a fixed time of day (see
`mainspring.schedule.cron`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NoReturn

from mainspring.schema.errors import InvalidInput

MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
NICKNAMES = {
    "@HOURLY": "0 * * * *",
    "@DAILY": "0 0 * * *",
    "@MIDNIGHT": "0 0 * * *",
    "@WEEKLY": "0 0 * * 0",
    "@MONTHLY": "0 0 1 * *",
    "@YEARLY": "0 0 1 1 *",
    "@ANNUALLY": "0 0 1 1 *",
}
LONGEST_EXPRESSION = 1024
"""Room for every minute, every hour and every day listed one by one; a bound on what strangers may send."""

_LAST_OF_WEEKDAY = re.compile(r"([0-9A-Z]+)L")
_DIGITS = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True, slots=True)
class Kind:
    """What one of the six fields may hold."""

    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()


SECOND = Kind("second", 0, 59)
MINUTE = Kind("minute", 0, 59)
HOUR = Kind("hour", 0, 23)
DAY = Kind("day-of-month", 1, 31)
MONTH = Kind("month", 1, 12, MONTHS)
WEEKDAY = Kind("day-of-week", 0, 7, WEEKDAYS)


@dataclass(frozen=True, slots=True)
class Field:
    """One parsed field: its canonical text, the plain values, and the specials (`L`, `LW`, `5L`, `1#2`)."""

    text: str
    values: frozenset[int]
    specials: tuple[str, ...] = ()

    @property
    def starred(self) -> bool:
        """Written with a star in front: what Debian cron looks at, even in `*/2`."""
        return self.text.startswith("*")


@dataclass(frozen=True, slots=True)
class Fields:
    """A whole expression, parsed."""

    second: Field
    minute: Field
    hour: Field
    day: Field
    month: Field
    weekday: Field

    @property
    def expression(self) -> str:
        """The canonical text, with six fields only where the second says something."""
        parts = [self.minute.text, self.hour.text, self.day.text, self.month.text, self.weekday.text]
        return " ".join(parts if self.second.text == "0" else [self.second.text, *parts])


def parse_fields(text: str) -> Fields:
    """Check an expression and take it apart; raises InvalidInput naming the first field that is wrong."""
    if len(text) > LONGEST_EXPRESSION:
        raise InvalidInput("cron", f"longer than {LONGEST_EXPRESSION} characters")
    words = _expand_nickname(text.upper().split())
    if len(words) not in (5, 6):
        raise InvalidInput(
            "cron", f"expected 5 fields (6 with leading seconds), found {len(words)} in {_shorten(text)}"
        )
    if len(words) == 5:
        words = ["0", *words]
    kinds = (SECOND, MINUTE, HOUR, DAY, MONTH, WEEKDAY)
    return Fields(*(_parse_field(kind, word) for kind, word in zip(kinds, words, strict=True)))


def _expand_nickname(words: list[str]) -> list[str]:
    if not words or not words[0].startswith("@"):
        return words
    if words == ["@REBOOT"]:
        raise InvalidInput(
            "cron", "@reboot has no time of its own: a cluster does not boot; trigger the job instead"
        )
    if len(words) > 1 or words[0] not in NICKNAMES:
        known = ", ".join(NICKNAMES).lower()
        raise InvalidInput("cron", f"{_shorten(' '.join(words).lower())} is not a nickname; known: {known}")
    return NICKNAMES[words[0]].split()


def _parse_field(kind: Kind, text: str) -> Field:
    texts: list[str] = []
    values: set[int] = set()
    specials: list[str] = []
    for term in text.split(","):
        special = _parse_special(kind, term)
        if special is not None:
            specials.append(special)
            texts.append(special)
            continue
        canonical, found = _parse_term(kind, term)
        values |= found
        texts.append(canonical)
    return Field(",".join(texts), frozenset(values), tuple(specials))


def _parse_special(kind: Kind, term: str) -> str | None:
    """`L` and `LW` in day-of-month, `5L` and `1#2` in day-of-week; None for a plain term."""
    if kind is DAY and term in ("L", "LW"):
        return term
    if kind is not WEEKDAY:
        return None
    if "#" in term:
        day, _, nth = term.partition("#")
        if nth not in ("1", "2", "3", "4", "5"):
            _refuse(kind, f"{_shorten(nth)} after # is not in 1–5")
        return f"{_parse_value(kind, day)}#{nth}"
    match = _LAST_OF_WEEKDAY.fullmatch(term)
    return None if match is None else f"{_parse_value(kind, match[1])}L"


def _parse_term(kind: Kind, term: str) -> tuple[str, set[int]]:
    span, slash, step_text = term.partition("/")
    step = _parse_step(kind, step_text) if slash else 1
    if span == "*":
        low, high, canonical = kind.low, kind.high, "*"
    elif "-" in span:
        low, high = _parse_range(kind, span)
        if low == high:  # cronsim would read 5-5/10 as 5/10
            return str(low), {low}
        canonical = f"{low}-{high}"
    else:
        low = _parse_value(kind, span)
        high = kind.high if slash else low
        canonical = str(low)
    values = set(range(low, high + 1, step))
    return (f"{canonical}/{step}" if slash else canonical), values


def _parse_step(kind: Kind, text: str) -> int:
    if not _DIGITS.fullmatch(text):
        _refuse(kind, f"{_shorten(text)} is not a step; write a whole number after /")
    step = int(text)
    if step == 0:
        _refuse(kind, "a step of 0 never moves")
    if step > kind.high - kind.low + 1:
        _refuse(kind, f"a step of {step} leaves {kind.low}–{kind.high}; for a longer interval use `every`")
    return step


def _parse_range(kind: Kind, text: str) -> tuple[int, int]:
    start, _, end = text.partition("-")
    low, high = _parse_value(kind, start), _parse_value(kind, end)
    if kind is WEEKDAY and end == "SUN" and low > 0:
        high = 7  # FRI-SUN reads forward; Sunday is 7 as much as 0
    if high < low:
        _refuse(kind, f"the range {start}-{end} runs backwards; write it as two terms")
    return low, high


def _parse_value(kind: Kind, text: str) -> int:
    if text in kind.names:
        return kind.names.index(text) + kind.low
    if not _DIGITS.fullmatch(text):
        _refuse(kind, _explain(kind, text))
    value = int(text)
    if not kind.low <= value <= kind.high:
        _refuse(kind, f"{value} is not in {kind.low}–{kind.high}")
    return value


def _explain(kind: Kind, text: str) -> str:
    if not text:
        return "a value is missing"
    if text == "?":
        return "? is not part of cron; write *"
    if text == "L" and kind is WEEKDAY:
        return "L needs a weekday in front, as in 5L (the last Friday)"
    if kind is DAY and text.endswith("W"):
        return f"{_shorten(text)} is not supported; the only W is LW, the last weekday of the month"
    names = f" or {kind.names[0]}–{kind.names[-1]}" if kind.names else ""
    return f"{_shorten(text)} is not in {kind.low}–{kind.high}{names}"


def _shorten(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "...")


def _refuse(kind: Kind, rule: str) -> NoReturn:
    raise InvalidInput(kind.name, rule)
