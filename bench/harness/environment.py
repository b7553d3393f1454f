"""Where a measurement was made: a number without its machine says nothing."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Environment:
    """The machine, the interpreter and the code."""

    cpu: str
    cores: int
    platform: str
    python: str
    commit: str | None
    servers: Mapping[str, str] = field(default_factory=dict)
    """Versions and settings of what a cluster scenario ran on."""

    @classmethod
    def capture(cls, servers: Mapping[str, str] | None = None) -> Environment:
        """This machine, now."""
        return cls(
            cpu=_cpu_model(),
            cores=len(os.sched_getaffinity(0)),  # what this process may use, not what the machine has
            platform=f"{platform.system()} {platform.release()} {platform.machine()}",
            python=f"{platform.python_implementation()} {platform.python_version()}",
            commit=_commit(REPOSITORY),
            servers=dict(servers or {}),
        )

    def lines(self) -> list[str]:
        """For people, one fact a line."""
        return [
            f"CPU       {self.cpu}, {self.cores} cores",
            f"platform  {self.platform}",
            f"Python    {self.python}",
            f"commit    {self.commit or 'not a git checkout'}",
            *(f"{name:<9} {what}" for name, what in self.servers.items()),
        ]


def _cpu_model(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The model as the kernel names it; other platforms, and some ARM kernels, do not say."""
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:
        lines = []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.processor() or platform.machine())


def _commit(directory: Path) -> str | None:
    """The commit checked out, with `-dirty` if the files are not exactly its files; None outside git."""
    head = _git(directory, "rev-parse", "--short=12", "HEAD")
    if head is None:
        return None
    # Untracked files count: a number measured with a new module was not measured at that commit.
    return f"{head}-dirty" if _git(directory, "status", "--porcelain") else head


def _git(directory: Path, *arguments: str) -> str | None:
    """What git answers, None if it cannot."""
    # Without optional locks: a benchmark must not get in the way of a git command in the same checkout.
    command = ["git", "--no-optional-locks", *arguments]
    try:
        done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
