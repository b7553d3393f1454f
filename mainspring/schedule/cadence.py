"""A cadence: a rule that says, for any instant, which one comes next. Nothing else decides when a job is due.

It is a value, checked and brought to its canonical spelling when made; equal values mean the same
occurrences. In Postgres it is one row per shard that thousands of jobs share.

Ranges are `(after, through]`, as the mark is: the second `fired_through` belongs to what has been fired.
So ranges that follow each other share no occurrence and miss none.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from mainspring.schedule.cron import next_cron, parse_cron
from mainspring.schedule.dst import DEBIAN, DstPolicy
from mainspring.schedule.durations import (
    check_phase,
    count_every,
    format_interval,
    next_every,
    parse_interval,
)
from mainspring.schedule.instants import LOOKS_LIKE_INSTANT, format_instant, parse_instant
from mainspring.schedule.wall import to_datetime, to_instant
from mainspring.schedule.zones import load_zone
from mainspring.schema.errors import InvalidInput


class Kind(StrEnum):
    """How a cadence is written."""

    CRON = "cron"
    EVERY = "every"
    AT = "at"


@dataclass(frozen=True, slots=True)
class Cadence:
    """One distinct (kind, expression, time zone, DST policy, phase); the phase is in seconds."""

    kind: Kind
    expression: str
    timezone: str = "UTC"
    dst: DstPolicy = DEBIAN
    phase: int = 0

    def __post_init__(self) -> None:
        load_zone(self.timezone)
        object.__setattr__(self, "expression", self._canonical())
        if self.kind is not Kind.EVERY and self.phase != 0:
            raise InvalidInput("phase", f"only `every` has a phase, not `{self.kind}`")

    @classmethod
    def parse(cls, text: str, timezone: str = "UTC", dst: DstPolicy = DEBIAN) -> Cadence:
        """Read what people write: a cron expression, `every 90s`, `every PT15M`, or an ISO-8601 instant."""
        stripped = text.strip()
        first, _, rest = stripped.partition(" ")
        if first.lower() == "every":
            return cls(Kind.EVERY, rest, timezone, dst)
        if LOOKS_LIKE_INSTANT.match(stripped):
            return cls(Kind.AT, stripped, timezone, dst)
        if not stripped:
            raise InvalidInput(
                "schedule", "empty; write a cron expression, `every 15m`, or an ISO-8601 instant"
            )
        return cls(Kind.CRON, stripped, timezone, dst)

    def next_after(self, instant: datetime) -> datetime | None:
        """The first occurrence strictly after this aware instant, in UTC; None when there is none."""
        following = self.next_second(_whole_second(instant))
        return None if following is None else to_datetime(following)

    def between(self, after: datetime, through: datetime, limit: int) -> list[datetime]:
        """The occurrences in (after, through], oldest first; of more than `limit`, the first ones."""
        return [
            to_datetime(instant)
            for instant in self._between(_whole_second(after), _whole_second(through), limit)
        ]

    def newest(self, after: datetime, through: datetime, limit: int) -> list[datetime]:
        """The last `limit` occurrences in (after, through], oldest first, without walking through the others.

        Looks back through windows of double length until one holds enough, so the work is in proportion to
        `limit`, however long the range.
        """
        start, end = _whole_second(after), _whole_second(through)
        reach = 64
        while True:
            begin = max(start, end - reach)
            # A window of `reach` seconds holds at most `reach` occurrences; its half held fewer than `limit`.
            found = self._between(begin, end, reach)
            if len(found) >= limit or begin == start:
                return [to_datetime(instant) for instant in found[-limit:]] if limit else []
            reach *= 2

    def count(self, after: datetime, through: datetime, limit: int) -> int:
        """How many occurrences (after, through] holds, counted up to `limit`."""
        start, end = _whole_second(after), _whole_second(through)
        if self.kind is Kind.EVERY:
            return min(limit, count_every(parse_interval(self.expression), self.phase, start, end))
        return len(self._between(start, end, limit))

    def next_second(self, base: int) -> int | None:
        """`next_after` in whole seconds since 1970: what the wheel counts in."""
        match self.kind:
            case Kind.CRON:
                return next_cron(self.expression, self.timezone, self.dst, base)
            case Kind.EVERY:
                following = next_every(parse_interval(self.expression), self.phase, base)
                return following if following <= _END_OF_CALENDAR else None
            case Kind.AT:
                instant = to_instant(parse_instant(self.expression))
                return instant if instant > base else None

    def _between(self, start: int, end: int, limit: int) -> list[int]:
        found: list[int] = []
        following = self.next_second(start)
        while following is not None and following <= end and len(found) < limit:
            found.append(following)
            following = self.next_second(following)
        return found

    def _canonical(self) -> str:
        match self.kind:
            case Kind.CRON:
                return parse_cron(self.expression).expression
            case Kind.EVERY:
                interval = parse_interval(self.expression)
                check_phase(self.phase, interval)
                return format_interval(interval)
            case Kind.AT:
                return format_instant(parse_instant(self.expression, self.timezone))


def _whole_second(instant: datetime) -> int:
    """Occurrences are whole seconds, so the fraction of a bound never decides."""
    if instant.utcoffset() is None:
        raise ValueError(f"{instant.isoformat()} is naive; an instant needs its offset")
    return to_instant(instant)


_END_OF_CALENDAR = to_instant(datetime.fromisoformat("9999-12-31T23:59:59+00:00"))
