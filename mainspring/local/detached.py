"""Leave a stack running: the same command in a session of its own, followed until it is ready.

The follower passes on what the command says while it starts. Progress ends with the first empty line; what
comes after it speaks to somebody who sits in front of the stack. An error is one line of progress too, so the
follower has nothing to add but the exit code. A follower that is told to stop takes its command along.
"""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable
from pathlib import Path

from mainspring.local.failures import ended, file_errors
from mainspring.local.foreground import run_until_signalled
from mainspring.local.hold import holder_of
from mainspring.local.layout import Running

_POLL_SECONDS = 0.05


def start_detached(argv: list[str], directory: Path, say: Callable[[str], None]) -> int:
    """Start `argv`, which holds `directory`, and wait until it is ready. Returns 0, or the exit code."""
    log = directory / "up.log"
    with file_errors(directory):
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        start = log.stat().st_size if log.exists() else 0
        # Appended, never cut: the stack that holds the directory may be writing to it.
        with log.open("ab") as output:
            child = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
    ended_by = run_until_signalled(_follow(child, directory, _Progress(log, start, say)))
    if ended_by is not None:
        return 128 + ended_by
    code = child.poll()
    if code is None:
        # It is on its own now; Python would warn that nobody waits for it.
        child.returncode = 0
        return 0
    if code < 0:
        raise ended("the stack's process", log, exit_code=code, start=start)
    return code


async def _follow(child: subprocess.Popen[bytes], directory: Path, progress: _Progress) -> None:
    """Return when the child has its stack ready, or has ended."""
    try:
        while child.poll() is None and not _is_ready(directory, child.pid):
            progress.pass_on()
            await asyncio.sleep(_POLL_SECONDS)
    except asyncio.CancelledError:
        child.terminate()
        while child.poll() is None:  # noqa: ASYNC110  (its stop has a bound of its own)
            await asyncio.sleep(_POLL_SECONDS)
        raise
    finally:
        progress.pass_on()


def _is_ready(directory: Path, pid: int) -> bool:
    running = Running.load(directory, holder_of(directory))
    return running is not None and running.pid == pid and running.ready


class _Progress:
    """What a log says behind the byte `start`, passed on line by line up to the first empty one."""

    def __init__(self, log: Path, start: int, say: Callable[[str], None]) -> None:
        self._log = log
        self._position = start
        self._say = say
        self._over = False

    def pass_on(self) -> None:
        with self._log.open("rb") as file:
            file.seek(self._position)
            complete = file.read().rpartition(b"\n")
        self._position += len(complete[0] + complete[1])
        for line in complete[0].decode("utf-8", errors="replace").splitlines():
            self._over = self._over or not line
            if not self._over:
                self._say(line)
