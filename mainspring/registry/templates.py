"""Idempotency keys: a template with placeholders, filled in from the occurrence alone.

    report-{{week}}        →  report-2026-W46
    {{job}}:{{unix}}       →  j_06jtwf0vcp0x3:1763380800      (the default)

A key must be the same for every attempt at an occurrence, so there is no placeholder for the attempt; and
it should differ where two occurrences differ, so hour and minute carry the offset: when clocks are set
back, two occurrences an hour apart both read 01:00, and the second would be taken for done.

Times are local to the job's time zone. A manual trigger has an instant with a fraction, and `{{unix}}` shows
it: several triggers in one second have several keys.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from difflib import get_close_matches
from functools import lru_cache

from mainspring.schedule import load_zone
from mainspring.schema.errors import InvalidInput
from mainspring.schema.ids import format_job_id, to_microseconds

DEFAULT_TEMPLATE = "{{job}}:{{unix}}"
LONGEST_TEMPLATE = 200

_FIELD = "idempotency_key_template"
_PLACEHOLDER = re.compile(r"\{\{\s*([^{}]*?)\s*\}\}")


def _iso_week(local: datetime) -> str:
    year, week, _ = local.isocalendar()
    return f"{year:04}-W{week:02}"


def _unix(local: datetime) -> str:
    seconds, fraction = divmod(to_microseconds(local), 1_000_000)
    return f"{seconds}.{fraction:06}" if fraction else str(seconds)


_OF_TIME: Mapping[str, Callable[[datetime], str]] = {
    "year": lambda local: f"{local.year:04}",
    "month": lambda local: f"{local.year:04}-{local.month:02}",
    "week": _iso_week,
    "date": lambda local: local.date().isoformat(),
    "hour": lambda local: local.strftime("%Y-%m-%dT%H%z"),
    "minute": lambda local: local.strftime("%Y-%m-%dT%H:%M%z"),
    "unix": _unix,
}
PLACEHOLDERS = ("job", "name", *_OF_TIME)


@lru_cache(maxsize=1024)
def check_template(template: str) -> str:
    """The template, if every placeholder in it is known; raises InvalidInput."""
    if len(template) > LONGEST_TEMPLATE:
        raise InvalidInput(_FIELD, f"is longer than {LONGEST_TEMPLATE} characters")
    for word in _PLACEHOLDER.findall(template):
        if word not in PLACEHOLDERS:
            raise InvalidInput(_FIELD, _explain(word))
    rest = _PLACEHOLDER.sub("", template)
    if "{{" in rest or "}}" in rest:
        raise InvalidInput(_FIELD, "has {{ or }} without its partner; write {{week}}")
    return template


def uses_name(template: str) -> bool:
    """Whether the key has the job's name in it."""
    return "name" in _PLACEHOLDER.findall(template)


def render(template: str, *, job_id: int, name: str | None, scheduled_at: datetime, timezone: str) -> str:
    """The key of an occurrence; an empty template means the default. Pure: every attempt gets the same."""
    local = scheduled_at.astimezone(load_zone(timezone))

    def fill(placeholder: re.Match[str]) -> str:
        word = placeholder[1]
        if word == "job":
            return format_job_id(job_id)
        return (name or "") if word == "name" else _OF_TIME[word](local)

    return _PLACEHOLDER.sub(fill, template or DEFAULT_TEMPLATE)


def _explain(word: str) -> str:
    if word == "attempt":
        return "{{attempt}} is not offered: the key must be the same for every attempt at an occurrence"
    close = get_close_matches(word.lower()[:64], PLACEHOLDERS, n=1)
    hint = f"did you mean {{{{{close[0]}}}}}?" if close else f"known: {', '.join(PLACEHOLDERS)}"
    return f"{{{{{word[:40]}}}}} is not known; {hint}"
