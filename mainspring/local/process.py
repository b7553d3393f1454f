"""Child processes that cannot outlive this one.

Every child is started through `launcher.py`, which asks the kernel for SIGKILL when its parent ends. The
kernel counts the *thread* that forked as the parent: a child started from a short-lived worker thread would
die with it. So each stack owns a `Spawner`, one thread that does nothing but fork and lives until the stack
is stopped or the interpreter exits.

Nothing here belongs to an event loop: a member started in one loop may be stopped in another. Waiting is
polling at 10 ms, which costs nothing beside a server's start or stop.

Signals go to the whole tree of a child. Process groups are not enough: each Postgres backend makes a session
of its own. A tree is frozen from the root downwards, so that nothing can fork past the enumeration.

The parent-death signal reaches the child alone, not what it forked. Postgres backends end by themselves when
the postmaster is gone, unless they are stopped; a compiler that a build forked goes on to its end. So a guard
stands by while a tree is paused and while a command such as a build runs, see `guard.py`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from mainspring.local import procfs
from mainspring.local.waiting import to_the_end

_LAUNCHER = Path(__file__).with_name("launcher.py")
_GUARD = Path(__file__).with_name("guard.py")
_POLL_SECONDS = 0.01

_PROGRAMS = frozenset({"postgres", "java", "etcd"})

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
        self._killed: list[tuple[int, int]] = []

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
        tree = self._freeze()
        if self._guard is None and tree:
            self._guard = _stand_guard([f"{pid}:{start}" for pid, start in tree])

    def guard_group(self) -> None:
        """Have everything that stays in the child's process group killed, should we be killed ourselves."""
        self._guard = _stand_guard([f"group:{self.pid}"])

    def resume(self) -> None:
        """Let a frozen tree go on, leaves first: no parent wakes up to children that still sleep."""
        if not self.running:
            return
        for pid in reversed([self.pid, *procfs.descendants(self.pid)]):
            procfs.send(pid, signal.SIGCONT)
        self._dismiss_guard()

    def kill(self) -> None:
        """End the whole tree at once, as a power cut does."""
        self._killed += self._freeze()
        for pid, start in self._killed:
            procfs.send_exactly(pid, start, signal.SIGKILL)
        self._dismiss_guard()

    async def end(self) -> None:
        """Kill the whole tree and wait until all of it is gone; of our own child not even a zombie stays."""
        self.kill()
        await self.wait()
        while any(procfs.is_alive(pid, start) for pid, start in self._killed):  # noqa: ASYNC110
            await asyncio.sleep(_POLL_SECONDS)
        self._killed = []

    async def stop(self, number: signal.Signals, grace: float) -> None:
        """Ask with `number`, insist with SIGKILL after `grace` seconds. A paused tree is woken to hear it."""
        try:
            if self.running:
                self._child.send_signal(number)
                self.resume()
                await self.wait(grace)
        finally:
            # Also when this very wait is cancelled: nothing may be left running.
            await to_the_end(self.end())

    def _freeze(self) -> list[tuple[int, int]]:
        """Stop root and descendants, named by pid and start; repeat until a look around finds no one new."""
        if not self.running:
            return []
        frozen: dict[int, int] = {}
        found = [self.pid]
        while found:
            for pid in found:
                procfs.send(pid, signal.SIGSTOP)
                frozen[pid] = procfs.started(pid) or 0
            found = [pid for pid in procfs.descendants(self.pid) if pid not in frozen]
        return list(frozen.items())

    def _dismiss_guard(self) -> None:
        if self._guard is not None:
            self._guard.kill()
            self._guard.wait()
            assert self._guard.stdin is not None
            self._guard.stdin.close()
            self._guard = None


def _stand_guard(watched: list[str]) -> subprocess.Popen[bytes]:
    """A process that kills these, and no reuse of their pids, once the pipe to us breaks."""
    return subprocess.Popen(
        [sys.executable, "-I", "-S", str(_GUARD), *watched],
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
        process.guard_group()
        await process.wait()
    finally:
        await to_the_end(process.end())
    code = process.exit_code
    assert code is not None
    return code


async def end_leftovers(directory: Path) -> None:
    """End the servers in `directory` that have lost their parent and are not yet gone.

    For a holder of the directory, who started none of them: they belong to nobody.
    """
    while leftovers := procfs.running_in(directory, _PROGRAMS):
        for pid in leftovers:
            procfs.send(pid, signal.SIGKILL)
        await asyncio.sleep(_POLL_SECONDS)
