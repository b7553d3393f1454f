"""What the kernel says about the processes of a run: processor time and memory, as they grow.

Postgres is many processes, of which one shared memory is counted once; the time of a session that has ended
is in its parent's. So each *part* (a scheduler, a worker, Postgres, Kafka, etcd) is one line, whatever it
consists of.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from mainspring.local import procfs

SAMPLE_SECONDS = 0.5
SERVERS = {"postgres": "postgres", "java": "kafka", "etcd": "etcd"}
"""Command names of the servers, and what they are called here."""

_TICKS = os.sysconf("SC_CLK_TCK")
_PROC = Path("/proc")


class Sample(NamedTuple):
    """One look at a part: seconds since 1970, processor seconds since its start, megabytes now."""

    at: float
    cpu_s: float
    resident_mb: float


@dataclass(frozen=True, slots=True)
class Usage:
    """What a part used between two moments; the peak is that of its life where the kernel keeps one."""

    name: str
    cpu_s: float
    peak_mb: float


def look(pids: Iterable[int]) -> Sample | None:
    """A sample of processes that belong together; None when none of them is there any more."""
    ticks, anonymous, shared = 0, 0.0, 0.0
    found = False
    for pid in pids:
        facts = _facts(pid)
        if facts is not None:
            found = True
            ticks += facts[0]
            anonymous += facts[1]
            shared = max(shared, facts[2])
    return Sample(time.time(), ticks / _TICKS, anonymous + shared) if found else None


def peak_megabytes(pid: int) -> float | None:
    """The most a process has held so far."""
    memory = _memory(pid)
    return None if memory is None else memory.get("VmHWM")


def _facts(pid: int) -> tuple[int, float, float] | None:
    """Ticks of its own and of its ended children, megabytes of its own, megabytes that may be shared."""
    memory = _memory(pid)
    try:
        fields = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    if memory is None or "RssAnon" not in memory:  # one that has ended has none
        return None
    ticks = sum(int(value) for value in fields.rpartition(")")[2].split()[11:15])
    return ticks, memory["RssAnon"], memory["RssFile"] + memory["RssShmem"]


def _memory(pid: int) -> dict[str, float] | None:
    try:
        lines = (_PROC / str(pid) / "status").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    pairs = (line.split() for line in lines if line.startswith(("VmHWM", "VmRSS", "Rss")))
    return {name.rstrip(":"): int(value) / 1024 for name, value, *_ in pairs}


def servers() -> dict[str, list[int]]:
    """The servers that this process has started, by name."""
    found: dict[str, list[int]] = {}
    for pid in procfs.descendants(os.getpid()):
        try:
            command = (_PROC / str(pid) / "comm").read_text().strip()
        except OSError:
            continue
        if command in SERVERS:
            found.setdefault(SERVERS[command], []).append(pid)
    return found


class Watch:
    """The samples of every part, in the order in which they were taken."""

    def __init__(self, others: Callable[[], Mapping[str, Sequence[int]]] = servers) -> None:
        self._others = others
        self._pids: dict[str, int] = {}
        self._peaks: dict[str, float] = {}
        self.samples: dict[str, list[Sample]] = {}

    def add(self, name: str, pid: int) -> None:
        """Watch one process from now on."""
        self._pids[name] = pid

    def take(self) -> None:
        """Look at everything once."""
        for name, pid in self._pids.items():
            self._note(name, [pid])
            self._peaks[name] = max(self._peaks.get(name, 0.0), peak_megabytes(pid) or 0.0)
        for name, pids in self._others().items():
            self._note(name, pids)

    def usage(self, since: float, until: float) -> list[Usage]:
        """Of each part: what it used between these moments, as closely as the samples say."""
        found = []
        for name, samples in self.samples.items():
            cpu = max(0.0, _at(samples, until) - _at(samples, since))
            peak = self._peaks.get(name) or max(sample.resident_mb for sample in samples)
            found.append(Usage(name, round(cpu, 2), round(peak, 1)))
        return found

    def _note(self, name: str, pids: Sequence[int]) -> None:
        sample = look(pids)
        if sample is not None:
            self.samples.setdefault(name, []).append(sample)


def _at(samples: Sequence[Sample], moment: float) -> float:
    """Processor seconds at that moment: of the last sample before it, else of the first there is."""
    before = [sample for sample in samples if sample.at <= moment]
    return (before[-1] if before else samples[0]).cpu_s


@asynccontextmanager
async def watching(seconds: float = SAMPLE_SECONDS) -> AsyncIterator[Watch]:
    """Samples are taken until the block ends."""
    watch = Watch()

    async def sample() -> None:
        while True:
            await asyncio.to_thread(watch.take)
            await asyncio.sleep(seconds)

    task = asyncio.create_task(sample(), name="watch-processes")
    try:
        yield watch
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
