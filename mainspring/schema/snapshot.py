"""A Postgres snapshot as the change feed uses it: which transactions a reader had seen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Below `xmin` everything is seen, from `xmax` on nothing, in between all but `in_progress`."""

    xmin: int
    xmax: int
    in_progress: frozenset[int]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read Postgres's own form, `xmin:xmax:xip,xip`."""
        xmin, xmax, listed = text.split(":")
        return cls(int(xmin), int(xmax), frozenset(map(int, listed.split(","))) if listed else frozenset())

    def sees(self, transaction: int) -> bool:
        """Whether a row changed by this (committed) transaction was visible."""
        return transaction < self.xmax and transaction not in self.in_progress

    def __str__(self) -> str:
        return f"{self.xmin}:{self.xmax}:{','.join(map(str, sorted(self.in_progress)))}"
