"""One level of the wheel: a ring of slots that hold due seconds, and a bitmap of the occupied ones.

Time is cut into *units* of the level's width, numbered from unix second 0; unit u lives in slot u % size. The
wheel never keeps two units in one level that are `size` or more apart: a slot holds one unit's seconds only.
"""

from __future__ import annotations

from collections.abc import Iterator


class Level:
    """`size` slots, each `width` seconds wide."""

    __slots__ = ("_occupied", "_size", "_slots", "_width")

    def __init__(self, *, width: int, size: int) -> None:
        self._width = width
        self._size = size
        self._slots: list[set[int]] = [set() for _ in range(size)]
        self._occupied = 0  # bit i is set while slot i holds anything

    def __len__(self) -> int:
        return sum(len(slot) for slot in self._slots)

    def add(self, second: int) -> None:
        """Let a second wait here."""
        index = second // self._width % self._size
        self._slots[index].add(second)
        self._occupied |= 1 << index

    def discard(self, second: int) -> None:
        """Forget a second whose last entry has gone."""
        index = second // self._width % self._size
        slot = self._slots[index]
        slot.discard(second)
        if not slot:
            self._occupied &= ~(1 << index)

    def earliest(self, now: int) -> int | None:
        """The earliest second waiting here, all of them being in units after that of `now`."""
        for unit in self._occupied_units(now // self._width + 1, self._size):
            return min(self._slots[unit % self._size])
        return None

    def take(self, now: int, to: int) -> list[int]:
        """Empty the slots of all units after that of `now`, through that of `to`: their seconds, in order.

        The last of these units may reach beyond `to`; what lies there is returned too, for a finer level.
        """
        first = now // self._width + 1
        count = to // self._width + 1 - first
        seconds: list[int] = []
        for unit in self._occupied_units(first, min(count, self._size)):
            index = unit % self._size
            seconds.extend(sorted(self._slots[index]))
            self._slots[index].clear()
            self._occupied &= ~(1 << index)
        return seconds

    def _occupied_units(self, first: int, count: int) -> Iterator[int]:
        """The occupied units among `count` (at most `size`) of them from `first` on, in order."""
        # The ring turned so that bit k stands for unit first + k: the lowest set bit is the earliest unit.
        start = first % self._size
        turned = self._occupied >> start | self._occupied << (self._size - start)
        turned &= (1 << count) - 1
        while turned:
            lowest = turned & -turned
            yield first + lowest.bit_length() - 1
            turned ^= lowest
