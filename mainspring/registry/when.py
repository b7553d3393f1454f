"""When a requested job is due: its schedule or its parents, and which other fields mean something with that.

The schedule is kept in canonical form as a cadence, and that decides what is a change: `@daily` for `0 0 *
* *` is none. An interval's and an instant's cadence are kept in UTC whatever the job's time zone: it does
not matter to them, and so more jobs share one.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple

from mainspring.registry import values
from mainspring.schedule import Cadence, DstPolicy, Kind, format_instant, load_zone, parse_instant
from mainspring.schema.errors import InvalidInput
from mainspring.schema.states import JobKind, OnFailure

LONGEST_SCHEDULE = 1024

_EARLIEST = parse_instant("1970-01-01T00:00:00Z")
_LATEST = parse_instant("9999-12-30T00:00:00Z")  # a day before the end of the calendar: room for a jitter
_DEBIAN = DstPolicy()
_RECURRING = (JobKind.CRON, JobKind.EVERY)
_SCHEDULED = (*_RECURRING, JobKind.AT)


class _Bound(NamedTuple):
    """A field that means something for some kinds only; its default may be given with any."""

    kinds: tuple[JobKind, ...]
    default: Any
    reason: str


_BOUND = {
    "schedule": _Bound(_SCHEDULED, "", "a job that waits for others has no schedule"),
    "dst": _Bound((JobKind.CRON,), _DEBIAN, "only cron has a DST policy"),
    "phase_seconds": _Bound((JobKind.EVERY,), 0, "only `every` has a phase"),
    "starts_at": _Bound(_RECURRING, None, "only a recurring schedule has a start"),
    "ends_at": _Bound(_RECURRING, None, "only a recurring schedule has an end"),
    "jitter_seconds": _Bound(_SCHEDULED, 0, "only a schedule has a jitter"),
    "after": _Bound((JobKind.AFTER,), (), "a job that has a schedule waits for nobody"),
    "on_failure": _Bound((JobKind.AFTER,), OnFailure.SKIP, "only a job that waits for others can choose"),
}


def place_in_time(given: dict[str, Any]) -> None:
    """Replace the fields about time, each read already, by a cadence and instants.

    Refuses a job that is never due or due in two ways, and fields that mean nothing for its kind.
    """
    timezone = given.get("timezone", "UTC")
    cadence = None
    if _has_schedule(given):
        dst, phase = given.get("dst", _DEBIAN), given.get("phase_seconds", 0)
        cadence = parse_cadence(given["schedule"], timezone, dst, phase)
    _refuse_inapplicable(given, JobKind.AFTER if cadence is None else JobKind(cadence.kind))
    given.pop("dst", None)
    given.pop("phase_seconds", None)
    given["cadence"] = cadence
    for name in ("starts_at", "ends_at"):
        if name in given:
            given[name] = _check_instant(name, parse_instant(given[name], timezone, field=name))


def carry_over(carried: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a job that an edit keeps.

    A new schedule takes the place of parents and the other way round, and what means nothing for the new kind
    is left behind.
    """
    if changes.get("after"):
        carried.pop("schedule", None)
    elif changes.get("schedule") is not None:
        carried.pop("after", None)
    merged = {**carried, **changes}
    kind = _kind_of_schedule(merged["schedule"]) if _has_schedule(merged) else JobKind.AFTER
    return {name: value for name, value in carried.items() if name not in inapplicable(kind)}


@lru_cache(maxsize=8)
def inapplicable(kind: JobKind) -> frozenset[str]:
    """The fields that mean nothing for a kind."""
    return frozenset(name for name, bound in _BOUND.items() if kind not in bound.kinds)


@lru_cache(maxsize=4096)
def parse_cadence(schedule: str, timezone: str, dst: DstPolicy, phase: int) -> Cadence:
    """The canonical form of what was written; refusals name the request's fields."""
    load_zone(timezone)
    try:
        cadence = Cadence.parse(schedule, timezone, dst)
        if cadence.kind is Kind.EVERY:
            return Cadence(Kind.EVERY, cadence.expression, phase=phase)
        if cadence.kind is Kind.AT:
            _check_instant("schedule", parse_instant(cadence.expression))
            return Cadence(Kind.AT, cadence.expression)
    except InvalidInput as refusal:
        if refusal.field == "phase":
            raise InvalidInput("phase_seconds", refusal.rule) from None
        rule = refusal.rule if refusal.field == "schedule" else f"{refusal.field}: {refusal.rule}"
        raise InvalidInput("schedule", rule) from None
    return cadence


def read_schedule(value: Any) -> str:
    """One line; tabs and runs of spaces, which crontabs are full of, become one space."""
    if isinstance(value, str) and len(value) <= LONGEST_SCHEDULE:
        return " ".join(value.split())
    return values.check_text("schedule", value, LONGEST_SCHEDULE)


def _has_schedule(given: Mapping[str, Any]) -> bool:
    """A job has a schedule or parents, and exactly one of them."""
    scheduled, waits = given.get("schedule") is not None, bool(given.get("after"))
    if scheduled and waits:
        raise InvalidInput("after", "a job has a schedule or waits for other jobs, not both")
    if not scheduled and not waits:
        raise InvalidInput("schedule", "is missing; give one, or name the jobs to wait for in after")
    return scheduled


def _kind_of_schedule(value: Any) -> JobKind:
    return JobKind(parse_cadence(read_schedule(value), "UTC", _DEBIAN, 0).kind)


def _refuse_inapplicable(given: Mapping[str, Any], kind: JobKind) -> None:
    for name, bound in _BOUND.items():
        if name in given and kind not in bound.kinds and given[name] != bound.default:
            raise InvalidInput(name, f"{bound.reason}, and this job is `{kind}`")


def _check_instant(name: str, instant: datetime) -> datetime:
    if not _EARLIEST <= instant <= _LATEST:
        raise InvalidInput(name, f"{format_instant(instant)} is not between the years 1970 and 9999")
    return instant
