"""Repeated measurements in three numbers: the median, and how far the rounds lay apart."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Summary:
    """The median with the lowest and the highest. A mean would let one disturbed round speak for all."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Summary | None:
        """None where nothing was measured."""
        measured = list(values)
        if not measured:
            return None
        return cls(statistics.median(measured), min(measured), max(measured))

    def __str__(self) -> str:
        digits = 1 if self.median < 10 else 0
        return f"{self.median:,.{digits}f} ({self.low:,.{digits}f}–{self.high:,.{digits}f})"
