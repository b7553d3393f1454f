"""What a local clock shows, and when: the map from wall times to instants around a change of offset.

Twice a year, in many zones, the map between wall times and instants is not one to one:

    gap     02:00 becomes 03:00: the wall times 02:00–02:59 never happen
    repeat  02:00 becomes 01:00: the wall times 01:00–01:59 happen twice

`locate` says which of the three a wall time is. PEP 495 gives it away: the two readings of a wall time
(`fold` 0 and 1) have the same offset when it is plain, a falling offset when it is repeated, a rising one
when it is missing. The instant of the change itself is found by bisection, because `zoneinfo` does not
publish its transitions: at most seventeen probes, and only for a wall time that is really affected.
Nothing here assumes an hour: Lord Howe moves by 30 minutes and Apia lost the whole of 2011-12-30.

Wall times are naive datetimes, instants are seconds since 1970 (UTC); both are whole seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  (wall times are naive on purpose)
_EPOCH_UTC = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Plain:
    """A wall time that happens once."""

    instant: int


@dataclass(frozen=True, slots=True)
class Missing:
    """A wall time inside a gap: the clock jumps over it at `change`, to the wall time `resumes`."""

    change: int
    resumes: datetime


@dataclass(frozen=True, slots=True)
class Repeated:
    """A wall time that happens twice; the walls from `starts` up to, not including, `ends` are repeated."""

    first: int
    second: int
    starts: datetime
    ends: datetime


def locate(wall: datetime, zone: ZoneInfo) -> Plain | Missing | Repeated:
    """Say when this wall time happens in the zone: once, never, or twice."""
    early, late = _offset(wall, zone, fold=0), _offset(wall, zone, fold=1)
    local = _seconds(wall)
    if early == late:
        return Plain(local - early)
    first, second = sorted((local - early, local - late))
    change = _find_change(first, second, zone)
    if early < late:
        return Missing(change, _wall(change + late))
    return Repeated(first, second, _wall(change + late), _wall(change + early))


def wall_at(instant: int, zone: ZoneInfo) -> datetime:
    """The wall time at this instant; its `fold` is 1 in the second pass of a repeated stretch."""
    return to_datetime(instant).astimezone(zone).replace(tzinfo=None)


def to_datetime(instant: int) -> datetime:
    """The instant as an aware UTC datetime. Raises OverflowError beyond the calendar."""
    return _EPOCH_UTC + timedelta(seconds=instant)


def to_instant(moment: datetime) -> int:
    """The whole second this aware datetime lies in: fractions are cut off, before 1970 as well as after."""
    return (moment - _EPOCH_UTC) // timedelta(seconds=1)


def _find_change(low: int, high: int, zone: ZoneInfo) -> int:
    """The first second after `low` whose offset differs from the one at `low`; the one at `high` does."""
    before = _offset_at(low, zone)
    while high - low > 1:
        middle = (low + high) // 2
        if _offset_at(middle, zone) == before:
            low = middle
        else:
            high = middle
    return high


def _offset_at(instant: int, zone: ZoneInfo) -> int:
    return _seconds(wall_at(instant, zone)) - instant


def _offset(wall: datetime, zone: ZoneInfo, *, fold: int) -> int:
    offset = wall.replace(tzinfo=zone, fold=fold).utcoffset()
    assert offset is not None
    return offset // timedelta(seconds=1)


def _seconds(wall: datetime) -> int:
    return (wall - _EPOCH) // timedelta(seconds=1)


def _wall(seconds: int) -> datetime:
    return _EPOCH + timedelta(seconds=seconds)
