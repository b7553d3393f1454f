from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from mainspring.local.failures import ended, file_errors, tail
from mainspring.schema.errors import LocalStackError


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.ENOSPC, "is full; free some space"),
        (errno.EDQUOT, "is full; free some space"),
        (errno.EACCES, "cannot be written"),
        (errno.EROFS, "cannot be written"),
        (errno.ENOTDIR, "is not a directory"),
    ],
)
def test_what_the_file_system_refuses_says_what_to_do(number: int, said: str) -> None:
    with pytest.raises(LocalStackError, match=said), file_errors(Path("/data")):
        raise OSError(number, os.strerror(number))


def test_a_real_full_device_is_a_full_disk() -> None:
    with pytest.raises(LocalStackError, match="is full"), file_errors(Path("/dev/full")):
        Path("/dev/full").write_text("x")


def test_another_system_error_is_not_hidden() -> None:
    with pytest.raises(OSError, match="loop"), file_errors(Path("/data")):
        raise OSError(errno.ELOOP, "loop")


@pytest.mark.parametrize(
    ("log", "said"),
    [
        ("FATAL: could not extend file: No space left on device\nbye\n", "the disk that holds"),
        ("java.net.BindException: Address already in use\n\tat x.y(Z.java)\n", "found its port taken by"),
        (
            "Socket server failed to bind to 127.0.0.1:26071: Address already in use.\n",
            "its port 26071 taken by",
        ),
        (
            'LOG:  could not bind IPv4 address "127.0.0.1": Address already in use\n'
            "HINT:  Is another postmaster already running on port 17329? If not, wait.\n",
            "found its port 17329 taken by another program; start again",
        ),
        (
            "ERROR broken\n\tat x.y(Z.java)\n\t... 3 more\nshutting down\n",
            r"\(exit code 3\): ERROR broken; its log is",
        ),
        ("last words\n\n", r"\(exit code 3\): last words"),
        ("", "it wrote nothing"),
    ],
)
def test_a_dead_servers_log_becomes_one_line(tmp_path: Path, log: str, said: str) -> None:
    path = tmp_path / "kafka-1.log"
    path.write_text(log)
    failure = ended("kafka-1", path, exit_code=3)
    with pytest.raises(LocalStackError, match=said):
        raise failure
    assert "\n" not in str(failure)


def test_of_a_killed_server_no_line_of_its_log_is_given_as_the_reason(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("WARN something failed, nothing to do with it\n")
    assert ended("etcd-1", tmp_path / "log", exit_code=-9).problem == "etcd-1 ended (signal 9)"
    assert ended("etcd-1", tmp_path / "log", exit_code=-6).problem.startswith("etcd-1 ended (signal 6): WARN")


def test_an_earlier_runs_trouble_is_not_reported_again(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("No space left on device\n")
    start = path.stat().st_size
    with path.open("a") as log:
        log.write("FATAL other\n")
    assert "FATAL other" in ended("postgres", path, exit_code=1, start=start).problem


def test_of_a_huge_log_only_the_end_is_read(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("old\n" * 100_000 + "new\n")
    lines = tail(path)
    assert lines[-1] == "new"
    assert len(lines) < 20_000
