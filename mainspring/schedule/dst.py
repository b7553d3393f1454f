"""The choices a job has where the local clock jumps; the defaults are Debian cron's."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Gap(StrEnum):
    """A fixed time of day that the clock jumps over."""

    RUN_AFTER = "run_after"
    """Run at the first instant after the gap. Several such times in one gap are one run."""
    SKIP = "skip"
    """Do not run on that day."""


class Repeat(StrEnum):
    """A fixed time of day that happens twice."""

    FIRST = "first"
    SECOND = "second"
    BOTH = "both"


@dataclass(frozen=True, slots=True)
class DstPolicy:
    """What becomes of a fixed time of day that is missing, and of one that is repeated."""

    gap: Gap = Gap.RUN_AFTER
    repeat: Repeat = Repeat.FIRST


DEBIAN = DstPolicy()

REAL_TIME = DstPolicy(Gap.SKIP, Repeat.BOTH)
"""Follow the clock as it really runs: what never shows does not fire, what shows twice fires twice."""
