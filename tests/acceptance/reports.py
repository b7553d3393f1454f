"""Figures of a run: reported to whoever watches, never asserted: they are the machine's of that day."""

from __future__ import annotations

from collections.abc import Callable

Report = Callable[[str], None]
