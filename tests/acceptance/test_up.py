"""`mainspring up`: the stack, migrated, with an API, schedulers and workers on it, until Ctrl-C."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mainspring.local import procfs
from mainspring.schema.migrate import load_migrations
from tests.integration.local.commands import (
    MAINSPRING,
    Foreground,
    assert_one_line,
    execute,
    run,
    until,
    until_gone,
)
from tests.integration.local.environments import own

NEWEST = len(load_migrations())
ONE_OF_EACH = ("--schedulers", "1", "--workers", "1", "--api", "127.0.0.1:0")


@contextmanager
def started(log: Path, *arguments: object, place: Path | None = None) -> Iterator[Foreground]:
    with log.open("wb") as output:
        command = [MAINSPRING, "up", *map(str, arguments)]
        process = subprocess.Popen(command, cwd=place, env=own(), stderr=output)
    try:
        yield Foreground(process, log)
    finally:
        process.kill()
        process.wait()


def variables_of(directory: Path) -> dict[str, str]:
    lines = run("env", "--directory", directory).stdout.splitlines()
    return dict(line.removeprefix("export ").split("=", 1) for line in lines)


def answered(url: str) -> Any:
    """What a GET is answered; None while nobody does."""
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.load(answer)
    except OSError:
        return None


def process_of(command: Foreground, kind: str) -> int | None:
    """The child that runs `mainspring KIND`."""
    for pid in procfs.descendants(command.process.pid):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:  # it has ended since it was listed
            continue
        if b"mainspring" in words and kind.encode() in words:
            return pid
    return None


def test_up_runs_everything_restarts_what_is_killed_and_leaves_nothing_on_ctrl_c(tmp_path: Path) -> None:
    place = tmp_path / "data"
    with started(tmp_path / "log", "--directory", place, "--shards", "16", *ONE_OF_EACH) as command:
        command.wait_for("Ready. Ctrl-C stops everything.")
        assert f"schema: applied {NEWEST} migrations, at {NEWEST:04} with 16 shards" in command.said
        for name in ("postgres", "kafka-1", "etcd-1", "api", "scheduler-1", "worker-1"):
            assert f"  {name} " in command.said
        variables = variables_of(place)
        assert f"{variables['MAINSPRING_URL']}/api/v1   keys are off" in command.said
        url = f"{variables['MAINSPRING_URL']}/api/v1"
        assert [each["status"] for each in answered(f"{url}/workers")["items"]] == ["alive"]
        until(lambda: all(shard["leader"] for shard in answered(f"{url}/shards")["items"]))
        shards = execute([MAINSPRING, "shards", "--json"], **variables)
        assert [row["shard"] for row in json.loads(shards.stdout)] == list(range(16))
        comes_back(command, "worker")
        comes_back(command, "api")
        assert command.end(signal.SIGINT) == 0
        assert command.said.endswith("stopped\n")
        for name in ("api", "scheduler-1", "worker-1"):
            assert (place / f"{name}.log").read_text()
        # Nobody had to be killed: a worker that ends in order says so last.
        assert '"event": "worker_stopped"' in (place / "worker-1.log").read_text()


def comes_back(command: Foreground, kind: str) -> None:
    """SIGKILL a child: one line says so, and another process of its kind answers at the same address."""
    found = re.search(rf"^  {kind}\S* +(http://[\d.:]+)", command.said, re.MULTILINE)
    assert found is not None
    killed = process_of(command, kind)
    assert killed is not None
    procfs.send(killed, signal.SIGKILL)
    until(lambda: process_of(command, kind) not in (None, killed))
    until(lambda: answered(f"{found[1]}/readyz") is not None)
    assert re.search(
        rf"^{kind}\S* ended \(signal 9\); starting it again in 0.5 s$", command.said, re.MULTILINE
    )


def test_up_that_is_killed_takes_everything_along(tmp_path: Path) -> None:
    with started(tmp_path / "log", "--directory", tmp_path / "data", *ONE_OF_EACH) as command:
        command.wait_for("Ready.")
        everyone = procfs.descendants(command.process.pid)
        assert len(everyone) > 6
        command.process.kill()
        command.process.wait()
        until_gone(everyone)


def test_up_again_finds_everything_as_it_was_and_another_number_of_shards_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "data"
    with started(tmp_path / "first", "--directory", place, "--shards", "16", "--no-processes") as command:
        command.wait_for("Ready.")
        assert process_of(command, "scheduler") is None
        assert command.end(signal.SIGTERM) == 0
    refused = execute([MAINSPRING, "up", "--directory", str(place), "--shards", "8", "--no-processes"])
    assert_one_line(refused, "this process expects 8 shards, but the cluster was created with 16")
    assert run("status", "--directory", place).returncode == 1
    with started(tmp_path / "second", "--directory", place, "--no-processes") as command:
        command.wait_for("Ready.")
        assert f"schema: at {NEWEST:04} with 16 shards" in command.said
        held = execute([MAINSPRING, "up", "--directory", str(place), "--no-processes"])
        assert_one_line(held, f"{place} is held by process {command.process.pid} ")
        # What never was ready is a mistake, which is named; nothing is started again for ever.
        mistaken = execute(
            [MAINSPRING, "up", "--ephemeral", *ONE_OF_EACH, "--app", "nosuchmodule:app"],
            **variables_of(place),
        )
        assert_one_line(
            mistaken, r"worker-1 ended \(exit code 2\): mainspring: .*nosuchmodule.*; its log is "
        )
        assert command.end(signal.SIGINT) == 0


def test_an_api_without_keys_is_refused_beyond_loopback() -> None:
    refused = execute([MAINSPRING, "up", "--ephemeral", "--api", "0.0.0.0:8080"])
    assert_one_line(refused, "--api: 0.0.0.0:8080 is no loopback address", code=2)
