"""The per-user cache of downloads and builds: safe with two processes at once, never half written."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from mainspring.local.failures import file_errors


def cache_directory(variables: Mapping[str, str]) -> Path:
    """$XDG_CACHE_HOME/mainspring, or ~/.cache/mainspring."""
    base = variables.get("XDG_CACHE_HOME") or ""
    # The specification says to ignore a relative path.
    root = Path(base) if base.startswith("/") else Path(variables.get("HOME") or Path.home()) / ".cache"
    return root / "mainspring"


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Wait until no other process works in this directory, made when missing. Blocks: use a thread."""
    with file_errors(directory):
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(directory / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
