"""What a term has armed, by second: a timing wheel that also takes what lies beyond its day.

A term begins at the mark and is loaded to ten minutes after now. After a weekend without a leader there are
days in between, and what has become due meanwhile lies beyond the wheel's horizon as seen from the mark. It
waits beside the wheel, and is let in as time gets there.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

from mainspring.wheel import Bucket, Wheel

Key = TypeVar("Key", bound=Hashable)
Entry = TypeVar("Entry")


class Agenda(Generic[Key, Entry]):
    """Entries by key, each due at a second, however far away."""

    def __init__(self, now: int) -> None:
        self._wheel: Wheel[Key, Entry] = Wheel(now)
        self._later: dict[Key, tuple[int, Entry]] = {}

    def __len__(self) -> int:
        return len(self._wheel) + len(self._later)

    def __contains__(self, key: object) -> bool:
        return key in self._wheel or key in self._later

    @property
    def now(self) -> int:
        """The second through which everything has been handed out."""
        return self._wheel.now

    @property
    def has_overdue(self) -> bool:
        """Whether something was armed for a second that has passed."""
        due = self._wheel.next_due()
        return due is not None and due <= self._wheel.now

    def insert(self, key: Key, due: int, entry: Entry) -> None:
        """Arm an entry, or re-time the one of this key."""
        if due > self._wheel.horizon:
            self._wheel.remove(key)
            self._later[key] = (due, entry)
        else:
            self._later.pop(key, None)
            self._wheel.insert(key, due, entry)

    def remove(self, key: Key) -> None:
        """Disarm a key, if it is armed."""
        if self._later.pop(key, None) is None:
            self._wheel.remove(key)

    def advance(self, to: int) -> list[Bucket[Key, Entry]]:
        """Move time to this second and hand out what is due by then, in order."""
        due: list[Bucket[Key, Entry]] = []
        while self._later and to > self._wheel.horizon:
            due += self._wheel.advance(self._wheel.horizon)
            self._let_in()
        horizon = self._wheel.horizon
        due += self._wheel.advance(to)
        if self._later and self._wheel.horizon > horizon:
            self._let_in()
        return due

    def _let_in(self) -> None:
        near = [key for key, (due, _) in self._later.items() if due <= self._wheel.horizon]
        for key in near:
            self._wheel.insert(key, *self._later.pop(key))
