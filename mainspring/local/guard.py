"""Stands by while a process tree is paused: python -I guard.py PID:START…

A stopped Postgres backend cannot notice that its postmaster was killed, so a parent that dies by kill -9
during a pause would leave it frozen for ever. This program holds the reading end of a pipe whose writing
end only the parent has: end-of-file means that the parent is gone. Then it kills what it was told to watch,
comparing start times so that a reused pid is never hit. The parent ends it with SIGKILL when the tree is
resumed or stopped.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress


def started(pid: int) -> int | None:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stat:
            return int(stat.read().rpartition(")")[2].split()[19])
    except OSError:
        return None


def main() -> None:
    watched = [tuple(map(int, name.split(":"))) for name in sys.argv[1:]]
    sys.stdin.buffer.read()
    for pid, start in watched:
        if started(pid) == start:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
