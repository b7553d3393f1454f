"""Directories for stacks that nobody wants to keep.

Each is removed when its stack stops. One whose process was killed is swept up when the next is made; so are
the logs that a failed stack leaves behind, since its error names them.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from pathlib import Path

from mainspring.local.failures import file_errors
from mainspring.local.hold import Hold
from mainspring.schema.errors import LocalStackError

_PREFIX = "mainspring-ephemeral-"
# Abandoned is one that nobody holds and that is older than the moment between its making and its holding.
_ABANDONED_AFTER_SECONDS = 60.0


def make_directory() -> Path:
    """A new directory in the system's temporary one."""
    place = Path(tempfile.gettempdir())
    _sweep_abandoned(place)
    with file_errors(place):
        return Path(tempfile.mkdtemp(dir=place, prefix=_PREFIX))


def throw_away(directory: Path, *, keep_logs: bool) -> None:
    """Remove a directory; of a failed stack the logs stay. Blocks."""
    if not keep_logs:
        shutil.rmtree(directory, ignore_errors=True)
        return
    for place in directory.iterdir():
        if place.is_dir():
            shutil.rmtree(place, ignore_errors=True)


def _sweep_abandoned(place: Path) -> None:
    for directory in place.glob(f"{_PREFIX}*"):
        try:
            found = directory.stat()
            if found.st_uid != os.geteuid() or time.time() - found.st_mtime < _ABANDONED_AFTER_SECONDS:
                continue
            hold = Hold.take(directory)
        except (LocalStackError, OSError):
            continue
        shutil.rmtree(directory, ignore_errors=True)
        hold.release()
