"""Times for people: local or UTC in tables, both where there is room, and how far away."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from mainspring.cli.next_times import distance
from mainspring.schedule import format_instant


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """How one command shows its times."""

    utc: bool
    now: datetime

    def short(self, moment: datetime | None) -> str | None:
        """`2026-03-30 09:00:00 BST`, or in UTC `2026-03-30T08:00:00Z`."""
        if moment is None:
            return None
        return format_instant(moment) if self.utc else _local(moment)

    def whole(self, moment: datetime | None) -> str | None:
        """Local, UTC, and how far away."""
        if moment is None:
            return None
        both = format_instant(moment) if self.utc else f"{_local(moment)}  {format_instant(moment)}"
        return f"{both}  {distance(moment, self.now)}"


def _local(moment: datetime) -> str:
    here = moment.astimezone()
    return f"{here:%Y-%m-%d %H:%M:%S} {here.tzname()}"


def milliseconds(duration: int | None) -> str | None:
    """`12 ms`, `3.2 s`, `1 h 5 min`."""
    if duration is None:
        return None
    if duration < 1000:
        return f"{duration} ms"
    if duration < 120_000:
        return f"{duration / 1000:.1f} s"
    minutes = duration // 60_000
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def utc_now() -> datetime:
    return datetime.now(UTC)
