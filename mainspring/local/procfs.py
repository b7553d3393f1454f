"""What the kernel says about processes: when one started, and who descends from whom."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

_PROC = Path("/proc")
_LISTEN = "0A"  # TCP_LISTEN, in /proc/net/tcp


def _stat(pid: int) -> list[str] | None:
    """The fields after the command name, which may itself hold blanks and brackets; None when it is gone."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(")")[2].split()
    # A zombie has ended; only its exit code waits to be read.
    return None if fields[0] in ("Z", "X") else fields


def started(pid: int) -> int | None:
    """Clock ticks since boot at which it started. Together with the pid they name one process for good."""
    fields = _stat(pid)
    return None if fields is None else int(fields[19])


def is_alive(pid: int, start: int) -> bool:
    """Whether this very process still runs; a reused pid has another start."""
    return started(pid) == start


def descendants(root: int) -> list[int]:
    """Every living process below `root`, parents before children."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir(_PROC):
        if entry.isdigit() and (fields := _stat(int(entry))) is not None:
            children.setdefault(int(fields[1]), []).append(int(entry))
    found: list[int] = []
    waiting = [root]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def running_in(directory: Path, programs: frozenset[str]) -> list[int]:
    """Processes of these programs whose working directory lies in `directory`, as far as we may look."""
    root = str(directory.resolve())
    found = []
    for entry in os.listdir(_PROC):
        if not entry.isdigit() or _stat(int(entry)) is None:
            continue
        try:
            place = os.readlink(_PROC / entry / "cwd")
            program = os.path.basename(os.readlink(_PROC / entry / "exe"))
        except OSError:
            continue
        if program in programs and (place + "/").startswith(root + "/"):
            found.append(int(entry))
    return found


def send(pid: int, number: signal.Signals) -> None:
    """Send a signal; a process that has ended meanwhile is no error."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def send_exactly(pid: int, start: int, number: signal.Signals) -> bool:
    """Send a signal to this very process and to none that reuses its pid; False when it is gone.

    The descriptor pins the process before its start time is compared, so nothing can slip in between.
    """
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        if not is_alive(pid, start):
            return False
        signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)
    return True


def listens(pid: int, port: int) -> bool:
    """Whether this process has a listening socket on the port: that somebody answers there says not who."""
    listening = {
        fields[9]
        for table in ("tcp", "tcp6")
        for fields in _sockets(table)
        if fields[3] == _LISTEN and int(fields[1].rpartition(":")[2], 16) == port
    }
    return any(name in _open_files(pid) for name in (f"socket:[{inode}]" for inode in listening))


def _open_files(pid: int) -> set[str]:
    """What its descriptors are; one that is closed while we look is none."""
    names = set()
    with suppress(OSError):
        for descriptor in os.listdir(_PROC / str(pid) / "fd"):
            with suppress(OSError):
                names.add(os.readlink(_PROC / str(pid) / "fd" / descriptor))
    return names


def _sockets(table: str) -> list[list[str]]:
    try:
        lines = (_PROC / "net" / table).read_text(encoding="ascii").splitlines()[1:]
    except OSError:
        return []
    return [line.split() for line in lines]
