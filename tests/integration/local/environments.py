"""The variables that the stacks of these tests start from: nothing in them leads outside."""

from __future__ import annotations

import os


def own(**extra: str) -> dict[str, str]:
    """os.environ without any setting of ours, and with `extra`."""
    return {name: value for name, value in os.environ.items() if not name.startswith("MAINSPRING_")} | extra
