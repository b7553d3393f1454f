"""The journal: what handlers did, written by themselves, so that executions are counted without Postgres.

One line per fact, each appended with a single write: lines of processes that write at the same time do not
mix, and a process that is killed leaves whole lines.
"""

from __future__ import annotations

import json
import os
import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from mainspring.schema.ids import parse_job_id, to_microseconds
from mainspring.worker import Context

VARIABLE = "TEST_JOURNAL"


class Occurrence(NamedTuple):
    """What is to be done once."""

    job_id: int
    scheduled_at: int  # microseconds since 1970


class Line(NamedTuple):
    """What a handler said."""

    what: str  # start, end, stopped, or a word of its own
    occurrence: Occurrence
    attempt: int
    pid: int
    at: float


def write(context: Context, what: str) -> None:
    """Append one line; for handlers."""
    key = [parse_job_id(context.job_id), to_microseconds(context.scheduled_at), context.attempt]
    line = json.dumps([what, *key, os.getpid(), time.time()]) + "\n"
    file = os.open(os.environ[VARIABLE], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)


class Journal:
    """Reads the file as it grows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()
        self._read = 0
        self._lines: list[Line] = []

    @property
    def lines(self) -> list[Line]:
        with self.path.open("rb") as file:
            file.seek(self._read)
            found = file.read()
        whole = found[: found.rfind(b"\n") + 1]
        self._read += len(whole)
        self._lines += map(_parse, whole.splitlines())
        return self._lines

    def of(self, what: str, occurrences: Iterable[Occurrence] | None = None) -> list[Line]:
        """The lines with this word, of all or of these occurrences."""
        wanted = None if occurrences is None else set(occurrences)
        return [
            line for line in self.lines if line.what == what and (wanted is None or line.occurrence in wanted)
        ]

    def under_way(self) -> dict[int, list[Line]]:
        """By process: what it has started and not ended."""
        ended = {(line.occurrence, line.attempt) for line in self.lines if line.what in ("end", "stopped")}
        found: defaultdict[int, list[Line]] = defaultdict(list)
        for line in self.of("start"):
            if (line.occurrence, line.attempt) not in ended:
                found[line.pid].append(line)
        return found


def _parse(line: bytes) -> Line:
    what, job_id, scheduled_at, attempt, pid, at = json.loads(line)
    return Line(what, Occurrence(job_id, scheduled_at), attempt, pid, at)
