"""Schedules as code: the plan, what is done, what is left alone."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from threading import Timer
from typing import Any

from mainspring.client import Client
from tests.acceptance.cli.installation import GENEROUS_SECONDS, MAINSPRING, Installation

BOOKS = """\
- name: ship
  after: [close]
- name: close
  schedule: "30 2 * * *"
  timezone: Europe/Berlin
  priority: high
  labels: {managed-by: git}
"""


def plan(own: Installation, *arguments: str) -> dict[str, dict[str, Any]]:
    found = json.loads(own.ok("jobs", "apply", *arguments, "--dry-run", "-o", "json"))
    return {step["name"]: step for step in found}


def test_what_files_say_becomes_so_and_stays_so(own: Installation, client: Client, tmp_path: Path) -> None:
    file = tmp_path / "books.yaml"
    file.write_text(BOOKS)
    shown = own.run("jobs", "apply", str(file), "--dry-run")
    assert "+ create close  at 02:30, every day\n    next then    " in shown.stdout
    assert shown.stderr == "2 to create, 0 to change, 0 to delete, 0 unchanged\n"
    assert own.ok("jobs", "list", "-o", "name") == ""
    assert own.run("jobs", "apply", str(file)).returncode == 2
    done = own.run("jobs", "apply", str(file), "--yes", "--reason", "release 1")
    assert done.stderr.splitlines()[1:] == ["created close", "created ship"]  # the parent first
    assert {row.reason for row in client.audit(action="create")} == {"release 1"}
    assert {step["action"] for step in plan(own, str(file)).values()} == {"unchanged"}
    file.write_text(BOOKS.replace("30 2", "0 3").replace("  priority: high\n", ""))
    changed = plan(own, str(file))
    assert changed["ship"]["action"] == "unchanged"
    assert changed["close"]["changes"] == {
        "schedule": {"before": "30 2 * * *", "after": "0 3 * * *"},
        "priority": {"before": 8, "after": 5},
    }
    before, after = changed["close"]["next_runs_before"], changed["close"]["next_runs_after"]
    assert len(before) == len(after) == 5
    assert set(before).isdisjoint(after)
    own.ok("jobs", "apply", str(file), "--yes")
    assert [str(each) for each in client.jobs.get("close").next_runs] == [
        each.replace("T", " ").replace("Z", "+00:00") for each in after
    ]


def test_a_job_changed_since_it_was_looked_at_is_refused_and_the_others_applied(
    own: Installation, client: Client, tmp_path: Path
) -> None:
    """Somebody edits one of them while the question stands."""
    for name in ("a", "b"):
        client.jobs.create(name=name, schedule="@daily")
    file = tmp_path / "jobs.yaml"
    file.write_text("[{name: a, schedule: '@hourly'}, {name: b, schedule: '@hourly'}]")
    person, terminal = os.openpty()
    with subprocess.Popen(
        [MAINSPRING, "jobs", "apply", str(file)],
        env=own.environment,
        stdin=terminal,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as applying:
        given_up = Timer(GENEROUS_SECONDS, applying.kill)
        given_up.start()
        assert applying.stderr is not None
        asked = b""
        while b"apply to 2 jobs? [y/N]" not in asked:
            asked += (read := os.read(applying.stderr.fileno(), 1000))
            assert read, asked
        client.jobs.edit("a", schedule="@weekly")
        os.write(person, b"y\n")
        shown, told = applying.communicate(timeout=GENEROUS_SECONDS)
        given_up.cancel()
    os.close(person)
    os.close(terminal)
    assert b"~ change a" in shown
    assert applying.returncode == 1
    assert "a: the job is at version 2, not at 1" in told.decode()
    assert "changed b" in told.decode()
    assert [job.schedule for job in client.jobs.list()] == ["@weekly", "@hourly"]


def test_pruning_deletes_what_has_the_label_and_is_in_no_file(
    own: Installation, client: Client, tmp_path: Path
) -> None:
    for name, label in (("kept", "git"), ("gone", "git"), ("other", "hand")):
        client.jobs.create(name=name, schedule="@daily", labels={"managed-by": label})
    (tmp_path / "jobs.json").write_text(
        '{"name": "kept", "schedule": "@daily", "labels": {"managed-by": "git"}}'
    )
    steps = plan(own, str(tmp_path), "--prune", "managed-by=git")
    assert {name: step["action"] for name, step in steps.items()} == {"kept": "unchanged", "gone": "delete"}
    own.ok("jobs", "apply", str(tmp_path), "--prune", "managed-by=git", "--yes")
    assert own.ok("jobs", "list", "-o", "name") == "kept\nother\n"


def test_what_the_api_would_refuse_is_refused_before_anything_is_applied(
    own: Installation, client: Client, tmp_path: Path
) -> None:
    client.schemas.put("greet", {"type": "object", "required": ["name"]})
    file = tmp_path / "jobs.yaml"
    for second, reason in (
        ("{name: b, schedule: '61 * * * *'}", f"{file}, job 2: schedule"),
        ("{name: b, schedule: '@daily', handler: greet, payload: {}}", f"{file}, job 2: payload"),
        ("{name: a, schedule: '@hourly'}", f"{file}, job 2: 'a' stands in {file}, job 1 too"),
        ("{schedule: '@daily'}", f"{file}, job 2: has no name"),
    ):
        file.write_text(f"- {{name: a, schedule: '@daily'}}\n- {second}\n")
        done = own.run("jobs", "apply", str(file), "--yes")
        assert (done.returncode, done.stdout) == (2, "")
        assert reason in done.stderr, done.stderr
    assert own.ok("jobs", "list", "-o", "name") == ""


def test_jobs_come_from_stdin_too(own: Installation) -> None:
    assert own.run("jobs", "apply", "-", given="{name: a, schedule: '@daily'}").returncode == 2
    own.ok("jobs", "apply", "-", "--yes", given="{name: a, schedule: '@daily'}")
    assert own.ok("jobs", "list", "-o", "name") == "a\n"


def test_a_crontab_becomes_jobs(own: Installation, client: Client, tmp_path: Path) -> None:
    crontab = tmp_path / "crontab"
    crontab.write_text("TZ=Asia/Tokyo\n# nightly\n15 4 * * * root /bin/backup%yes\n@reboot root /bin/start\n")
    done = own.run("jobs", "import-crontab", str(crontab), "--system", "--prefix", "old-")
    assert done.returncode == 1
    assert f"{crontab}:4: not carried over: @reboot: is not a time" in done.stderr
    own.ok("jobs", "apply", "-", "--yes", given=done.stdout)
    job = client.jobs.get("old-backup")
    assert (job.schedule, job.timezone, job.missed_window) == ("15 4 * * *", "Asia/Tokyo", "SKIP")
    assert job.payload == {
        "command": "/bin/backup",
        "user": "root",
        "environment": {"TZ": "Asia/Tokyo"},
        "stdin": "yes\n",
    }
