"""Where the wheels with embedded programs lie; looked up, not imported: their modules have side effects."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path


def wheel_directory(package: str) -> Path | None:
    """The directory of an installed package, or None."""
    spec = find_spec(package)
    return None if spec is None or spec.origin is None else Path(spec.origin).parent
