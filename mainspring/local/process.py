"""Child processes that cannot outlive this one.

Every child is started through `launcher.py`, which asks the kernel for SIGKILL when its parent ends. The
kernel counts the *thread* that forked as the parent: a child started from a short-lived worker thread would
die with it. So each stack owns a `Spawner`, one thread that does nothing but fork and lives until the stack
is stopped or the interpreter exits.

Nothing here belongs to an event loop: a member started in one loop may be stopped in another. Waiting is
polling at 10 ms, which costs nothing beside a server's start or stop.

Signals go to the whole tree of a child. Process groups are not enough: each Postgres backend makes a session
of its own. A tree is frozen from the root downwards, so that nothing can fork past the enumeration. While a
tree is paused, a guard stands by, see `guard.py`: Postgres backends end by themselves when the postmaster is
killed, but a stopped one cannot notice.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar

from mainspring.local import procfs

Value = TypeVar("Value")

_LAUNCHER = Path(__file__).with_name("launcher.py")
_GUARD = Path(__file__).with_name("guard.py")
_POLL_SECONDS = 0.01

# What a server may inherit. ETCD_… and PG… variables would configure it, MAINSPRING_… may hold secrets.
_INHERITED = ("PATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH")


@dataclass(frozen=True, kw_only=True)
class Identity:
    """The user a child runs as."""

    user: int
    group: int


@dataclass(frozen=True, kw_only=True)
class Command:
    """What to execute, where and as whom."""

    argv: list[str]
    directory: Path
    identity: Identity | None = None
    environment: Mapping[str, str] = field(default_factory=dict)


def server_environment(**extra: str) -> dict[str, str]:
    """The few variables a server needs. Messages in English: failures are recognised by them."""
    return {name: os.environ[name] for name in _INHERITED if name in os.environ} | {"LC_ALL": "C"} | extra


class Process:
    """One running child and everything below it."""

    def __init__(self, child: subprocess.Popen[bytes]) -> None:
        self._child = child
        self.pid = child.pid
        # Only a child that ended at once has no start time any more; 0 matches no process.
        self.started = procfs.started(child.pid) or 0
        self._guard: subprocess.Popen[bytes] | None = None

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative for a signal."""
        return self._child.poll()

    @property
    def running(self) -> bool:
        return self.exit_code is None

    async def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end; False when `timeout` seconds passed first."""
        loop = asyncio.get_running_loop()
        deadline = None if timeout is None else loop.time() + timeout
        while self.running:
            if deadline is not None and loop.time() >= deadline:
                return False
            await asyncio.sleep(_POLL_SECONDS)
        return True

    def pause(self) -> None:
        """Freeze the whole tree; sockets stay open and nobody answers, as on a machine that hangs."""
        pids = self._freeze()
        if self._guard is None and pids:
            self._guard = _stand_guard(pids)

    def resume(self) -> None:
        """Let a frozen tree go on, leaves first: no parent wakes up to children that still sleep."""
        if not self.running:
            return
        for pid in reversed([self.pid, *procfs.descendants(self.pid)]):
            procfs.send(pid, signal.SIGCONT)
        self._dismiss_guard()

    def kill(self) -> None:
        """End the whole tree at once, as a power cut does."""
        for pid in self._freeze():
            procfs.send(pid, signal.SIGKILL)
        self._dismiss_guard()

    async def stop(self, number: signal.Signals, grace: float) -> None:
        """Ask with `number`, insist with SIGKILL after `grace` seconds. A paused tree is woken to hear it."""
        if self.running:
            self._child.send_signal(number)
            self.resume()
        try:
            if await self.wait(grace):
                return
        finally:
            # Also when this very wait is cancelled: nothing may be left running.
            self.kill()
        await self.wait()

    def _freeze(self) -> list[int]:
        """Stop root and descendants; repeat until an enumeration finds no one new."""
        if not self.running:
            return []
        frozen: list[int] = []
        found = [self.pid]
        while found:
            for pid in found:
                procfs.send(pid, signal.SIGSTOP)
            frozen += found
            found = [pid for pid in procfs.descendants(self.pid) if pid not in frozen]
        return frozen

    def _dismiss_guard(self) -> None:
        if self._guard is not None:
            self._guard.kill()
            self._guard.wait()
            assert self._guard.stdin is not None
            self._guard.stdin.close()
            self._guard = None


def _stand_guard(pids: list[int]) -> subprocess.Popen[bytes]:
    """A process that kills these, and no reuse of their pids, once the pipe to us breaks."""
    names = [f"{pid}:{start}" for pid in pids if (start := procfs.started(pid)) is not None]
    return subprocess.Popen(
        [sys.executable, "-I", str(_GUARD), *names],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        process_group=0,
    )


class Spawner:
    """The one thread that forks for a stack; it must live as long as its children."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="mainspring-spawner")

    def spawn(self, command: Command, log: Path) -> Process:
        """Start a child whose output is appended to `log`.

        Blocks for the millisecond of a fork, on purpose: an awaited start that is cancelled half-way
        would leave a child that nobody knows.
        """
        return self._thread.submit(self._spawn, command, log).result()

    def close(self) -> None:
        """End the thread; the kernel kills what it started and nobody stopped."""
        self._thread.shutdown()

    @staticmethod
    def _spawn(command: Command, log: Path) -> Process:
        who = command.identity
        ids = ["-", "-"] if who is None else [str(who.user), str(who.group)]
        argv = [sys.executable, "-I", "-S", str(_LAUNCHER), str(os.getpid()), *ids, *command.argv]
        with log.open("ab") as output:
            child = subprocess.Popen(
                argv,
                cwd=command.directory,
                env=dict(command.environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                # A group of its own: the terminal's Ctrl-C is ours to turn into an orderly stop.
                process_group=0,
            )
        return Process(child)


async def run(spawner: Spawner, command: Command, log: Path) -> int:
    """Run a command to its end and return its exit code; killed when the wait is cancelled."""
    process = spawner.spawn(command, log)
    try:
        await process.wait()
    finally:
        process.kill()
    code = process.exit_code
    assert code is not None
    return code


async def in_thread(work: Callable[[], Value]) -> Value:
    """Run blocking work in a daemon thread that a cancelled wait leaves behind.

    `asyncio.to_thread` would hold the process at its exit until the work is done: a stalled download
    must not delay Ctrl-C. Whatever runs here is safe to abandon at any point.
    """
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[Value] = loop.create_future()

    def deliver(set_outcome: Callable[[Any], None], value: object) -> None:
        if not outcome.done():
            set_outcome(value)

    def report(set_outcome: Callable[[Any], None], value: object) -> None:
        with suppress(RuntimeError):  # the loop has closed: nobody waits any more
            loop.call_soon_threadsafe(deliver, set_outcome, value)

    def body() -> None:
        try:
            value = work()
        except BaseException as error:  # noqa: BLE001
            report(outcome.set_exception, error)
        else:
            report(outcome.set_result, value)

    Thread(target=body, name="mainspring-blocking", daemon=True).start()
    return await outcome


async def together(*jobs: Coroutine[Any, Any, object]) -> None:
    """Run all jobs at once; the first failure cancels the rest and is raised without a group around it."""
    try:
        async with asyncio.TaskGroup() as group:
            for job in jobs:
                group.create_task(job, name=f"mainspring-local:{job}")
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from failures
