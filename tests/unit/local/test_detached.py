"""Commands that stand for `mainspring local up`, followed until they are ready or end."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from mainspring.local.detached import start_detached
from mainspring.local.hold import holder_of
from mainspring.local.layout import Running
from mainspring.schema.errors import LocalStackError

READY = """
import os, sys, time
from pathlib import Path
from mainspring.local.hold import Hold
from mainspring.local.layout import Running
directory = Path(sys.argv[1])
hold = Hold.take(directory)
print("making something", flush=True)
print("\\nfor the one who sits in front of it", flush=True)
Running(pid=os.getpid(), ready=True, environment={}, members=[]).save(directory)
time.sleep(300)
"""

# Takes the directory and is told by the follower's talk to end, not ready.
NEVER_READY = """
import sys, time
from pathlib import Path
from mainspring.local.hold import Hold
directory = Path(sys.argv[1])
hold = Hold.take(directory)
print("holding", flush=True)
while not (directory / "heard").exists():
    time.sleep(0.01)
print("mainspring: no luck; try again", flush=True)
sys.exit(3)
"""


def python(code: str, directory: Path) -> list[str]:
    return [sys.executable, "-c", code, str(directory)]


def test_a_ready_stack_is_left_running_and_its_progress_passed_on(tmp_path: Path) -> None:
    said: list[str] = []
    assert start_detached(python(READY, tmp_path), tmp_path, said.append) == 0
    holder = holder_of(tmp_path)
    assert holder is not None
    os.kill(holder.pid, signal.SIGKILL)
    os.waitpid(holder.pid, 0)
    assert said == ["making something"]


def test_a_failed_start_has_said_why_and_gives_its_exit_code(tmp_path: Path) -> None:
    said: list[str] = []
    command = [sys.executable, "-c", "print('mainspring: a reason; a remedy'); raise SystemExit(2)"]
    assert start_detached(command, tmp_path, said.append) == 2
    assert said == ["mainspring: a reason; a remedy"]


def test_what_an_earlier_stack_said_is_not_said_again(tmp_path: Path) -> None:
    (tmp_path / "up.log").write_text("long ago\n")
    said: list[str] = []
    assert start_detached([sys.executable, "-c", "print('now')"], tmp_path, said.append) == 0
    assert said == ["now"]
    assert (tmp_path / "up.log").read_text() == "long ago\nnow\n"


def test_a_command_that_is_killed_is_one_line(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"]
    with pytest.raises(LocalStackError, match=r"^the stack's process ended \(signal 9\); its log is"):
        start_detached(command, tmp_path, print)


def test_that_a_killed_stack_was_ready_says_nothing_about_the_next(tmp_path: Path) -> None:
    Running(pid=1, ready=True, environment={}, members=[]).save(tmp_path)
    said: list[str] = []

    def hear(line: str) -> None:
        said.append(line)
        (tmp_path / "heard").touch()

    assert start_detached(python(NEVER_READY, tmp_path), tmp_path, hear) == 3
    assert said == ["holding", "mainspring: no luck; try again"]
