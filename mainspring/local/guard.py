"""Stands by for a parent that may be killed: python -I -S guard.py PID:START… or group:PGID…

The kernel kills our children when we go, not their children. A stopped Postgres backend cannot notice that
its postmaster was killed and would stay frozen for ever; a compiler would go on with a build that nobody
waits for. This program holds the reading end of a pipe whose writing end only the parent has: end-of-file
means that the parent is gone. Then it kills what it was told to watch: single processes, comparing start
times so that a reused pid is never hit, or whoever is left in a process group of this session. The parent
ends it with SIGKILL when its service is over.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress


def fields(pid: str) -> list[str]:
    """What follows the command's name in /proc/PID/stat; empty when the process is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stat:
            return stat.read().rpartition(")")[2].split()
    except OSError:
        return []


def kill_one(pid: str, start: str) -> None:
    if fields(pid)[19:20] == [start]:
        with suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)


def kill_group(group: str) -> None:
    """Again until nobody is left: a member may fork between the look and the kill."""
    session = str(os.getsid(0))
    while members := [
        (pid, found[19])
        for pid in os.listdir("/proc")
        if pid.isdigit() and (found := fields(pid)) and found[0] != "Z" and found[2:4] == [group, session]
    ]:
        for pid, start in members:
            kill_one(pid, start)


def main() -> None:
    watched = [name.split(":") for name in sys.argv[1:]]
    sys.stdin.buffer.read()
    for first, second in watched:
        if first == "group":
            kill_group(second)
        else:
            kill_one(first, second)


if __name__ == "__main__":
    main()
