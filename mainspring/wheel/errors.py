"""What the wheel refuses. Each refusal leaves the wheel exactly as it was."""

from __future__ import annotations


class BeyondHorizon(ValueError):
    """An entry is due later than the wheel reaches: keep it elsewhere and insert it when it is nearer."""

    def __init__(self, *, due: int, horizon: int) -> None:
        super().__init__(f"due at {due}, but the wheel reaches only to {horizon}")
        self.due = due
        self.horizon = horizon


class TimeWentBack(ValueError):
    """The wheel was asked to advance to a second before the one it has reached."""

    def __init__(self, *, now: int, to: int) -> None:
        super().__init__(f"cannot advance to {to}: the wheel has reached {now}")
        self.now = now
        self.to = to
