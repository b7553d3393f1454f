"""Real processes: who dies with whom, and what pausing a tree means."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import AnyStr

import pytest

from mainspring.local import procfs
from mainspring.local.postgres import unprivileged
from mainspring.local.process import Command, Process, Spawner, run, server_environment
from mainspring.local.waiting import in_thread, to_the_end, together

# A parent with a child of its own; `setsid` takes the child out of every process group, as Postgres does.
TREE = "setsid sleep 300 & echo child $!; wait"
STUBBORN = "trap '' TERM; echo ready; while :; do sleep 300; done"


def shell(text: str, directory: Path) -> Command:
    return Command(argv=["/bin/sh", "-c", text], directory=directory, environment=server_environment())


async def until(fact: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not fact():  # noqa: ASYNC110  (the kernel sets no event)
            await asyncio.sleep(0.01)


@contextmanager
def ending(process: subprocess.Popen[AnyStr]) -> Iterator[subprocess.Popen[AnyStr]]:
    """Also when the test fails: nobody waits for a process that nobody ends."""
    with process:
        try:
            yield process
        finally:
            process.kill()


def state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return "gone"


def gone(pid: int) -> bool:
    return state(pid) in ("gone", "Z", "X")


@pytest.fixture
async def spawner() -> AsyncIterator[Spawner]:
    spawner = Spawner()
    yield spawner
    spawner.close()


@pytest.fixture
async def tree(spawner: Spawner, tmp_path: Path) -> AsyncIterator[tuple[Process, int]]:
    process = spawner.spawn(shell(TREE, tmp_path), tmp_path / "log")
    await until(lambda: (tmp_path / "log").read_text().startswith("child "))
    child = int((tmp_path / "log").read_text().split()[1])
    await until(lambda: child in procfs.descendants(process.pid))
    yield process, child
    process.kill()
    await process.wait()


async def test_killing_a_member_takes_its_whole_tree(tree: tuple[Process, int]) -> None:
    process, child = tree
    await process.end()
    assert state(process.pid) == "gone"
    assert gone(child)
    assert process.exit_code == -signal.SIGKILL


async def test_pausing_freezes_the_whole_tree_and_resuming_wakes_it(tree: tuple[Process, int]) -> None:
    process, child = tree
    process.pause()
    await until(lambda: state(process.pid) == "T" and state(child) == "T")
    process.resume()
    await until(lambda: state(process.pid) == "S" and state(child) == "S")


async def test_a_paused_tree_can_be_stopped(tree: tuple[Process, int]) -> None:
    process, _ = tree
    process.pause()
    await process.stop(signal.SIGTERM, grace=20)
    assert process.exit_code == -signal.SIGTERM


async def test_one_that_ignores_the_request_is_killed(spawner: Spawner, tmp_path: Path) -> None:
    process = spawner.spawn(shell(STUBBORN, tmp_path), tmp_path / "log")
    await until(lambda: (tmp_path / "log").read_text() == "ready\n")
    await process.stop(signal.SIGTERM, grace=0.05)
    assert process.exit_code == -signal.SIGKILL


async def test_a_cancelled_stop_still_kills(spawner: Spawner, tmp_path: Path) -> None:
    process = spawner.spawn(shell(STUBBORN, tmp_path), tmp_path / "log")
    await until(lambda: (tmp_path / "log").read_text() == "ready\n")
    stopping = asyncio.create_task(process.stop(signal.SIGTERM, grace=300))
    await asyncio.sleep(0)
    stopping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopping
    assert state(process.pid) == "gone"


async def test_a_child_outlives_the_thread_that_asked_for_it(spawner: Spawner, tmp_path: Path) -> None:
    started: list[Process] = []
    thread = threading.Thread(
        target=lambda: started.append(spawner.spawn(shell("echo on; sleep 300", tmp_path), tmp_path / "log"))
    )
    thread.start()
    thread.join()
    await until(lambda: (tmp_path / "log").read_text() == "on\n")
    assert started[0].running
    started[0].kill()
    await started[0].wait()


async def test_closing_the_spawner_ends_what_nobody_stopped(tmp_path: Path) -> None:
    spawner = Spawner()
    process = spawner.spawn(shell("echo on; exec sleep 300", tmp_path), tmp_path / "log")
    await until(lambda: (tmp_path / "log").read_text() == "on\n")
    spawner.close()
    await until(lambda: not process.running)


PARENT = """
import sys, time
from pathlib import Path
from mainspring.local.postgres import unprivileged
from mainspring.local.process import Command, Spawner, server_environment
directory = Path(sys.argv[1])
command = Command(
    argv=["/bin/sh", "-c", sys.argv[2]],
    directory=directory,
    identity=unprivileged(),
    environment=server_environment(),
)
process = Spawner().spawn(command, directory / "log")
while "child" not in (directory / "log").read_text():
    time.sleep(0.01)
if sys.argv[3] == "paused":
    process.pause()
print(process.pid, flush=True)
time.sleep(300)
"""


@pytest.mark.parametrize("paused", ["running", "paused"])
async def test_kill_9_of_the_parent_leaves_no_child_behind(tmp_path: Path, paused: str) -> None:
    """As root the child runs as nobody; the switch of users must not lose the parent-death signal."""
    text = "echo child; exec sleep 300" if paused == "running" else "setsid sleep 300 & echo child $!; wait"
    with ending(
        subprocess.Popen(  # noqa: ASYNC220
            [sys.executable, "-c", PARENT, str(tmp_path), text, paused], stdout=subprocess.PIPE, text=True
        )
    ) as parent:
        assert parent.stdout is not None
        child = int(await in_thread(parent.stdout.readline))
        everyone = [child, *procfs.descendants(child)]
        assert len(everyone) == (1 if paused == "running" else 2)
        who = unprivileged()
        assert os.stat(f"/proc/{child}").st_uid == (os.geteuid() if who is None else who.user)
        parent.kill()
        await until(lambda: all(gone(pid) for pid in everyone))


BUILD = """
import asyncio, sys
from pathlib import Path
from mainspring.local.process import Command, Spawner, run, server_environment
directory = Path(sys.argv[1])
# A compiler below a build tool: the parent-death signal reaches the tool alone.
command = Command(
    argv=["/bin/sh", "-c", "sleep 300 & echo $$ $!; wait"],
    directory=directory,
    environment=server_environment(),
)
asyncio.run(run(Spawner(), command, directory / "log"))
"""


async def test_kill_9_of_the_parent_ends_a_build_with_its_compilers(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with ending(subprocess.Popen([sys.executable, "-c", BUILD, str(tmp_path)])) as parent:  # noqa: ASYNC220
        await until(lambda: log.exists() and log.read_text().endswith("\n"))
        tool, compiler = map(int, log.read_text().split())
        # Tool, compiler and guard.
        await until(lambda: len(procfs.descendants(parent.pid)) == 3)
        parent.kill()
        await until(lambda: gone(tool) and gone(compiler))


async def test_a_program_that_does_not_exist_is_said_in_the_log(spawner: Spawner, tmp_path: Path) -> None:
    missing = Command(argv=["/nowhere/server"], directory=tmp_path)
    assert await run(spawner, missing, tmp_path / "log") == 1
    assert "/nowhere/server cannot be started: No such file" in (tmp_path / "log").read_text()


async def test_a_cancelled_run_kills_its_command(spawner: Spawner, tmp_path: Path) -> None:
    running = asyncio.create_task(run(spawner, shell("echo $$; exec sleep 300", tmp_path), tmp_path / "log"))
    await until(lambda: (tmp_path / "log").exists() and (tmp_path / "log").read_text() != "")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    # Not even a zombie is left: nobody would ever collect it.
    assert state(int((tmp_path / "log").read_text())) == "gone"


def test_servers_inherit_no_variables_that_configure_them(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ETCD_NAME", "PGDATA", "MAINSPRING_POSTGRES_PASSWORD"):
        monkeypatch.setenv(name, "x")
    assert set(server_environment()) <= {"PATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH", "LC_ALL"}


async def test_abandoned_blocking_work_does_not_hold_its_caller() -> None:
    release = threading.Event()
    waiting = asyncio.create_task(in_thread(release.wait))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    release.set()


async def test_work_that_must_end_outlasts_two_cancellations() -> None:
    release, steps = asyncio.Event(), list[str]()

    async def work() -> None:
        await release.wait()
        steps.append("done")

    waiting = asyncio.create_task(to_the_end(work()))
    for _ in range(2):
        await asyncio.sleep(0)
        waiting.cancel()
    release.set()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert steps == ["done"]


async def test_the_failure_of_work_that_must_end_is_its_waiters() -> None:
    async def fail() -> None:
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        await to_the_end(fail())


async def test_the_first_failure_is_raised_as_itself() -> None:
    async def fail() -> None:
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        await together(fail(), asyncio.Event().wait())
