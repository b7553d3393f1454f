"""The wheel itself; the package's docstring explains it with a worked example."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from mainspring.wheel.errors import BeyondHorizon, TimeWentBack
from mainspring.wheel.level import Level

Key = TypeVar("Key", bound=Hashable)
Entry = TypeVar("Entry")

MINUTE: Final = 60
HOUR: Final = 3600
HOURS_AHEAD: Final = 24


@dataclass(frozen=True, slots=True)
class Bucket(Generic[Key, Entry]):
    """Everything due in one second: the entries by key, in order of insertion."""

    due: int
    entries: dict[Key, Entry]


class Wheel(Generic[Key, Entry]):
    """Entries by key, each due at a whole unix second; `advance` hands out those whose second has come."""

    __slots__ = ("_bucket_of", "_buckets", "_hours", "_minutes", "_now", "_overdue", "_seconds")

    def __init__(self, now: int) -> None:
        self._now = now
        # By due second. Finding an open bucket is one lookup: placing is paid per second, not per entry.
        self._buckets: dict[int, Bucket[Key, Entry]] = {}
        # By key. Holds the bucket rather than its second: removing an entry searches for nothing.
        self._bucket_of: dict[Key, Bucket[Key, Entry]] = {}
        # Each key of _buckets waits in exactly one of these four, the one that _home names.
        self._overdue: set[int] = set()
        self._seconds = Level(width=1, size=MINUTE)
        self._minutes = Level(width=MINUTE, size=HOUR // MINUTE)
        self._hours = Level(width=HOUR, size=HOURS_AHEAD)

    def __len__(self) -> int:
        return len(self._bucket_of)

    def __contains__(self, key: object) -> bool:
        return key in self._bucket_of

    def __repr__(self) -> str:
        return (
            f"<Wheel now={self._now} entries={len(self)} seconds waiting: overdue={len(self._overdue)} "
            f"seconds={len(self._seconds)} minutes={len(self._minutes)} hours={len(self._hours)}>"
        )

    @property
    def now(self) -> int:
        """The second the wheel has reached."""
        return self._now

    @property
    def horizon(self) -> int:
        """The last second an entry may be due: the end of the 24th hour after the current one."""
        return (self._now // HOUR + HOURS_AHEAD + 1) * HOUR - 1

    def insert(self, key: Key, due: int, entry: Entry) -> None:
        """Arm an entry for the second `due`, behind those of that second; a key already armed is re-timed.

        Raises BeyondHorizon, with nothing changed, if `due` lies after `horizon`.
        """
        bucket = self._buckets.get(due)
        if bucket is None:
            bucket = self._open(due)
        previous = self._bucket_of.get(key)
        if previous is not None:
            del previous.entries[key]
        bucket.entries[key] = entry
        self._bucket_of[key] = bucket
        # Only now: the previous bucket may be this one, and is then not empty after all.
        if previous is not None and not previous.entries:
            self._discard(previous)

    def remove(self, key: Key) -> bool:
        """Disarm a key. False if the wheel does not hold it: never armed, removed, or already handed out."""
        bucket = self._bucket_of.pop(key, None)
        if bucket is None:
            return False
        del bucket.entries[key]
        if not bucket.entries:
            self._discard(bucket)
        return True

    def advance(self, to: int) -> list[Bucket[Key, Entry]]:
        """Move time to the second `to` and hand out every bucket due by then, in order.

        Raises TimeWentBack, with nothing changed, if `to` lies before `now`. Advancing to `now` itself hands
        out what was already due when it was inserted.
        """
        if to < self._now:
            raise TimeWentBack(now=self._now, to=to)
        due = sorted(self._overdue)
        self._overdue.clear()
        before, self._now = self._now, to
        # From fine to coarse: that is the order of time, and what moves down lands where nothing is taken.
        for level in (self._seconds, self._minutes, self._hours):
            for second in level.take(before, to):
                if second <= to:
                    due.append(second)
                else:
                    self._home(second).add(second)
        return [self._hand_out(second) for second in due]

    def next_due(self) -> int | None:
        """The earliest second for which an entry is armed, None if there is none. Changes nothing."""
        if self._overdue:
            return min(self._overdue)
        for level in (self._seconds, self._minutes, self._hours):
            earliest = level.earliest(self._now)
            if earliest is not None:
                return earliest
        return None

    def _home(self, second: int) -> Level | set[int]:
        """Where a second waits as seen from now."""
        if second <= self._now:
            return self._overdue
        if second // MINUTE == self._now // MINUTE:
            return self._seconds
        if second // HOUR == self._now // HOUR:
            return self._minutes
        return self._hours

    def _open(self, due: int) -> Bucket[Key, Entry]:
        """A bucket for a second that has none."""
        # The horizon never shrinks, so a second that has a bucket needs no check: it is made once, here.
        if due > self.horizon:
            raise BeyondHorizon(due=due, horizon=self.horizon)
        self._home(due).add(due)
        bucket: Bucket[Key, Entry] = Bucket(due, {})
        self._buckets[due] = bucket
        return bucket

    def _discard(self, bucket: Bucket[Key, Entry]) -> None:
        """Forget a bucket whose last entry has gone, so that next_due is exact."""
        del self._buckets[bucket.due]
        self._home(bucket.due).discard(bucket.due)

    def _hand_out(self, second: int) -> Bucket[Key, Entry]:
        """A bucket that has left its level leaves the wheel."""
        bucket = self._buckets.pop(second)
        for key in bucket.entries:
            del self._bucket_of[key]
        return bucket
