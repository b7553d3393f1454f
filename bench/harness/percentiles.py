"""Percentiles: always a value that occurred, never one between two."""

from __future__ import annotations

from collections.abc import Sequence

SHARES = {"p50": 0.5, "p99": 0.99, "p999": 0.999}


def percentile(ordered: Sequence[float], share: float) -> float:
    """The value below which this share of the sorted values lies."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def summary(ordered: Sequence[float], digits: int | None = None) -> dict[str, float | None]:
    """p50, p99, p99.9 and the largest of sorted values; nothing measured is null."""
    if not ordered:
        return dict.fromkeys((*SHARES, "max"))
    found = {name: percentile(ordered, share) for name, share in SHARES.items()} | {"max": ordered[-1]}
    return {name: round(value, digits) for name, value in found.items()}


def in_words(found: dict[str, float | None], unit: str = "ms") -> str:
    """`p50 12 ms, p99 …`, as people read it."""
    shown = ((name.replace("p999", "p99.9"), value) for name, value in found.items())
    return ", ".join(f"{name} –" if value is None else f"{name} {value:,.0f} {unit}" for name, value in shown)


def curve(ordered: Sequence[float]) -> list[tuple[float, float]]:
    """Points of the percentile curve: how many nines, and the value there; to the last single one."""
    if not ordered:
        return []
    points = []
    nines = 0.0
    while 10**-nines * len(ordered) >= 1:
        points.append((nines, percentile(ordered, 1 - 10**-nines)))
        nines += 0.1
    return [*points, (nines, ordered[-1])]
