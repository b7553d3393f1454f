"""From a failed system call or a dead server's log to one line that says what to do."""

from __future__ import annotations

import errno
import re
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mainspring.schema.errors import LocalStackError

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_FORBIDDEN = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.ENAMETOOLONG})
_NO_DIRECTORY = frozenset({errno.ENOTDIR, errno.EEXIST})
# What the file system may refuse and the user can do something about.
FILE_ERRORS = _FULL | _FORBIDDEN | _NO_DIRECTORY

_TAIL_BYTES = 64 * 1024
_LINE_LIMIT = 240
_FULL_BYTES = 64 * 1024
_WORTH_SHOWING = re.compile(r"error|fatal|panic|exception|cannot|could not|failed", re.IGNORECASE)
_STACK_FRAME = re.compile(r"^\s+at |^\s*\.\.\. \d+ more")
_PORT_TAKEN = re.compile(r"address already in use|could not bind", re.IGNORECASE)
# Kafka and etcd name the port where they complain, Postgres in the hint that follows.
_WHICH_PORT = re.compile(
    r"127\.0\.0\.1:(\d+)[^\d].*already in use|already running on port (\d+)", re.IGNORECASE
)
_DISK_FULL = re.compile(r"no space left on device|disk quota exceeded", re.IGNORECASE)


def disk_full(path: Path) -> LocalStackError:
    return LocalStackError(f"the disk that holds {path} is full", "free some space and start again")


@contextmanager
def file_errors(path: Path) -> Iterator[None]:
    """Translate what the file system refuses while something below `path` is written."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise disk_full(path) from error
        if error.errno in _FORBIDDEN:
            raise LocalStackError(
                f"{path} cannot be written ({error.strerror})",
                "choose another place with --directory, or XDG_CACHE_HOME for the downloads",
            ) from error
        if error.errno in _NO_DIRECTORY:
            raise LocalStackError(
                f"{path} is not a directory", "remove that file or choose another --directory"
            ) from error
        raise


def tail(log: Path, start: int = 0) -> list[str]:
    """The last lines written behind the byte `start`: an earlier run's trouble is not this one's."""
    try:
        with log.open("rb") as file:
            file.seek(max(start, log.stat().st_size - _TAIL_BYTES))
            text = file.read().decode("utf-8", errors="replace")
    except FileNotFoundError:
        return []
    return [line for line in text.splitlines() if line.strip()]


def telling_line(lines: list[str]) -> str:
    """The last line that looks like a reason, else the last line at all."""
    prose = [line for line in lines if not _STACK_FRAME.search(line)]
    reasons = [line for line in prose if _WORTH_SHOWING.search(line)]
    line = (reasons or prose or ["it wrote nothing"])[-1].strip()
    return line if len(line) <= _LINE_LIMIT else line[: _LINE_LIMIT - 1] + "…"


def ended(name: str, log: Path, *, exit_code: int, start: int = 0) -> LocalStackError:
    """Why a server or tool ended, judged by what it wrote to `log` behind the byte `start`."""
    lines = tail(log, start)
    # On the full disk itself the complaint may not fit into the log any more.
    if any(_DISK_FULL.search(line) for line in lines) or _is_full(log.parent):
        return disk_full(log.parent)
    if any(_PORT_TAKEN.search(line) for line in lines):
        return _port_taken(name, lines)
    how = f"signal {-exit_code}" if exit_code < 0 else f"exit code {exit_code}"
    # Who was killed did not know it, so nothing in its log is the reason.
    reason = "" if exit_code == -signal.SIGKILL else f": {telling_line(lines)}"
    return LocalStackError(f"{name} ended ({how}){reason}", f"its log is {log}")


def _is_full(directory: Path) -> bool:
    try:
        return shutil.disk_usage(directory).free < _FULL_BYTES
    except FileNotFoundError:
        return False


def _port_taken(name: str, lines: list[str]) -> LocalStackError:
    found = [match for match in map(_WHICH_PORT.search, lines) if match]
    port = f" {found[-1][1] or found[-1][2]}" if found else ""
    return LocalStackError(
        f"{name} found its port{port} taken by another program",
        "start again for a free port, or name another one",
    )
