"""Who holds a data directory: a locked file that names its holder.

The lock (flock) is the truth and falls with its process, however that ends; the text in the file only serves
the error message and `mainspring local down`. The start time beside the pid keeps `down` from ever signalling
another process that was given the same pid later.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from mainspring.local import procfs
from mainspring.local.failures import file_errors
from mainspring.schema.errors import LocalStackError

_FILE = "held-by.json"
_WRITING_SECONDS = 2.0


@dataclass(frozen=True, kw_only=True)
class Holder:
    """The process that has a data directory in use."""

    pid: int
    started: int
    since: str
    command: str

    @classmethod
    def me(cls) -> Self:
        program = Path(sys.argv[0]).name or "python"
        return cls(
            pid=os.getpid(),
            started=procfs.started(os.getpid()) or 0,
            since=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
            command=" ".join([program, *sys.argv[1:]])[:120],
        )


class Hold:
    """An exclusive right to a data directory, given up by `release` or by the end of the process."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @classmethod
    def take(cls, directory: Path) -> Self:
        """Take the directory, which is made when missing; refuse, naming the holder, when it is taken."""
        with file_errors(directory):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(directory / _FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise _held(directory) from None
        with file_errors(directory):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, json.dumps(asdict(Holder.me())).encode(), 0)
        return cls(descriptor)

    def release(self) -> None:
        os.close(self._descriptor)


def _held(directory: Path) -> LocalStackError:
    holder = _read(directory)
    who = (
        "another process"
        if holder is None
        else f"process {holder.pid} ({holder.command}) since {holder.since}"
    )
    return LocalStackError(
        f"{directory} is held by {who}",
        "stop it with `mainspring local down` or choose another --directory",
    )


def holder_of(directory: Path) -> Holder | None:
    """Who holds the directory now; None when nobody does."""
    try:
        descriptor = os.open(directory / _FILE, os.O_RDWR | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError as error:
        raise LocalStackError(f"{directory} belongs to another user", "ask as that user") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read_patiently(directory)
    else:
        return None
    finally:
        os.close(descriptor)


def _read_patiently(directory: Path) -> Holder:
    """Wait out the moment between locking and writing."""
    deadline = time.monotonic() + _WRITING_SECONDS
    while (holder := _read(directory)) is None:
        if time.monotonic() > deadline:
            raise _held(directory)
        time.sleep(0.01)
    return holder


def _read(directory: Path) -> Holder | None:
    """What the file says; None in the moment between locking and writing."""
    try:
        return Holder(**json.loads((directory / _FILE).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
