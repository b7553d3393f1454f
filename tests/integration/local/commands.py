"""`mainspring local …` as processes."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mainspring.local import procfs
from tests.integration.local.environments import own

MAINSPRING = str(Path(sys.executable).with_name("mainspring"))


def run(*arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
    """`mainspring local ARGUMENT…` to its end."""
    return execute([MAINSPRING, "local", *map(str, arguments)], **variables)


def execute(command: list[str], **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, env=own(**variables), capture_output=True, text=True, check=False)


def report(directory: Path) -> dict[str, Any]:
    """What `status --json` says."""
    decoded = json.loads(run("status", "--directory", directory, "--json").stdout)
    assert isinstance(decoded, dict)
    return decoded


def assert_one_line(done: subprocess.CompletedProcess[str], reason: str, code: int = 1) -> None:
    """It failed, and after its progress it said why in one line."""
    assert (done.returncode, done.stdout) == (code, "")
    *progress, last = done.stderr.splitlines()
    assert re.match(f"mainspring: {reason}", last), done.stderr
    assert not [line for line in progress if line.startswith(("mainspring:", "Traceback"))], done.stderr


def until(fact: Callable[[], bool]) -> None:
    """Wait for a fact; the deadline only ends a broken test: a first start downloads and builds."""
    deadline = time.monotonic() + 600
    while not fact():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def until_gone(pids: list[int]) -> None:
    until(lambda: not any(procfs.started(pid) for pid in pids))


class Foreground:
    """A command that stays, and what it says."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self._log = log

    @property
    def said(self) -> str:
        return self._log.read_text()

    def wait_for(self, text: str) -> None:
        until(lambda: text in self.said or self.process.poll() is not None)
        assert text in self.said, self.said

    def end(self, number: signal.Signals) -> int:
        """Send a signal and return the exit code; of all that ran below, nothing runs on."""
        everyone = [self.process.pid, *procfs.descendants(self.process.pid)]
        self.process.send_signal(number)
        code = self.process.wait()
        until_gone(everyone)
        return code


@contextmanager
def up(log: Path, *arguments: object, **variables: str) -> Iterator[Foreground]:
    """`mainspring local up ARGUMENT…`, killed at the end if it still runs."""
    with log.open("wb") as output:
        command = [MAINSPRING, "local", "up", *map(str, arguments)]
        process = subprocess.Popen(command, env=own(**variables), stderr=output)
    try:
        yield Foreground(process, log)
    finally:
        process.kill()
        process.wait()
