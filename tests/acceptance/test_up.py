"""`mainspring up`, which is `make demo`: the stack, migrated, until Ctrl-C."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mainspring.schema.migrate import load_migrations
from tests.integration.local.commands import MAINSPRING, Foreground, assert_one_line, execute, run
from tests.integration.local.environments import own

NEWEST = len(load_migrations())


@contextmanager
def started(log: Path, *arguments: object) -> Iterator[Foreground]:
    with log.open("wb") as output:
        process = subprocess.Popen([MAINSPRING, "up", *map(str, arguments)], env=own(), stderr=output)
    try:
        yield Foreground(process, log)
    finally:
        process.kill()
        process.wait()


def variables_of(directory: Path) -> dict[str, str]:
    lines = run("env", "--directory", directory).stdout.splitlines()
    return dict(line.removeprefix("export ").split("=", 1) for line in lines)


def test_up_migrates_shows_the_addresses_and_ends_well_on_ctrl_c(tmp_path: Path) -> None:
    place = tmp_path / "data"
    with started(tmp_path / "log", "--directory", place, "--shards", "16") as command:
        command.wait_for("Ready. Ctrl-C stops everything.")
        assert f"schema: applied {NEWEST} migrations, at {NEWEST:04} with 16 shards" in command.said
        for name in ("postgres", "kafka-1", "etcd-1"):
            assert f"  {name} " in command.said
        shards = execute([MAINSPRING, "shards", "--json"], **variables_of(place))
        assert [row["shard"] for row in json.loads(shards.stdout)] == list(range(16))
        assert command.end(signal.SIGINT) == 0
        assert command.said.endswith("stopped\n")


def test_up_again_finds_everything_as_it_was_and_another_number_of_shards_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "data"
    with started(tmp_path / "first", "--directory", place, "--shards", "16") as command:
        command.wait_for("Ready.")
        assert command.end(signal.SIGTERM) == 0
    refused = execute([MAINSPRING, "up", "--directory", str(place), "--shards", "8"])
    assert_one_line(refused, "this process expects 8 shards, but the cluster was created with 16")
    assert run("status", "--directory", place).returncode == 1
    with started(tmp_path / "second", "--directory", place) as command:
        command.wait_for("Ready.")
        assert f"schema: at {NEWEST:04} with 16 shards" in command.said
        held = execute([MAINSPRING, "up", "--directory", str(place)])
        assert_one_line(held, f"{place} is held by process {command.process.pid} ")
        assert command.end(signal.SIGINT) == 0
