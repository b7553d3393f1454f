from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from mainspring.local import procfs
from mainspring.local.hold import Hold, holder_of
from mainspring.local.layout import Running
from mainspring.schema.errors import LocalStackError


def test_a_second_taker_is_told_who_holds_the_directory_and_since_when(tmp_path: Path) -> None:
    hold = Hold.take(tmp_path)
    holder = holder_of(tmp_path)
    assert holder is not None
    with pytest.raises(LocalStackError) as refused:
        Hold.take(tmp_path)
    assert f"held by process {os.getpid()}" in refused.value.problem
    assert holder.since in refused.value.problem
    hold.release()


def test_a_released_directory_is_free(tmp_path: Path) -> None:
    Hold.take(tmp_path).release()
    assert holder_of(tmp_path) is None
    Hold.take(tmp_path).release()


def test_the_refused_taker_does_not_wipe_the_holders_name(tmp_path: Path) -> None:
    hold = Hold.take(tmp_path)
    before = holder_of(tmp_path)
    with pytest.raises(LocalStackError):
        Hold.take(tmp_path)
    assert holder_of(tmp_path) == before
    hold.release()


def test_what_a_killed_stack_told_is_not_taken_for_its_heirs_word(tmp_path: Path) -> None:
    hold = Hold.take(tmp_path)
    heir = holder_of(tmp_path)
    Running(pid=os.getpid() + 1, ready=True, environment={}, members=[]).save(tmp_path)
    assert Running.load(tmp_path, heir) is None
    Running(pid=os.getpid(), ready=True, environment={}, members=[]).save(tmp_path)
    assert Running.load(tmp_path, heir) is not None
    hold.release()
    assert Running.load(tmp_path, holder_of(tmp_path)) is None


def test_nobody_holds_a_directory_that_does_not_exist(tmp_path: Path) -> None:
    assert holder_of(tmp_path / "missing") is None


def test_a_file_in_the_place_of_the_directory_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(LocalStackError, match="is not a directory"):
        Hold.take(tmp_path / "file")
    with pytest.raises(LocalStackError, match="is not a directory"):
        Hold.take(tmp_path / "file" / "below")


def test_a_signal_never_reaches_a_process_that_reuses_the_pid() -> None:
    with subprocess.Popen(["sleep", "60"]) as sleeper:
        start = procfs.started(sleeper.pid)
        assert start is not None
        assert not procfs.send_exactly(sleeper.pid, start - 1, signal.SIGKILL)
        assert procfs.is_alive(sleeper.pid, start)
        assert procfs.send_exactly(sleeper.pid, start, signal.SIGKILL)
        assert sleeper.wait() == -signal.SIGKILL
        assert not procfs.send_exactly(sleeper.pid, start, signal.SIGKILL)
