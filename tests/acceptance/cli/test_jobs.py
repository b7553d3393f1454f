"""`mainspring jobs` and its neighbours against a real API, as a person or a script runs them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from threading import Timer

from mainspring.client import Client
from mainspring.local.ports import free_port
from tests.acceptance.cli.installation import GENEROUS_SECONDS, MAINSPRING, Installation


def test_a_job_from_its_creation_to_its_end(own: Installation) -> None:
    fields = ("--schedule", "0 9 * * 1", "--tz", "America/New_York", "--payload", '{"report_type": "weekly"}')
    created = own.run("jobs", "create", "weekly", *fields, "--set", "max_retries=7", "--label", "team=a")
    assert created.returncode == 0, created.stderr
    assert "created weekly (j_" in created.stderr
    assert "0 9 * * 1 (America/New_York)" in created.stdout
    job = json.loads(own.ok("jobs", "get", "weekly", "-o", "json"))
    assert (job["max_retries"], job["labels"], job["payload"]) == (
        7,
        {"team": "a"},
        {"report_type": "weekly"},
    )
    assert own.ok("jobs", "edit", "weekly", "--unset", "max_retries", "-o", "name") == "weekly\n"
    assert json.loads(own.ok("jobs", "get", "weekly", "-o", "jsonl"))["max_retries"] == 3
    own.ok("jobs", "pause", "weekly", "--reason", "büro zu")
    shown = own.ok("jobs", "get", "weekly")
    assert "büro zu" in shown
    assert "paused" in shown
    own.ok("jobs", "resume", "weekly")
    gone = own.run("jobs", "delete", "weekly")
    assert gone.returncode == 2
    assert "Nobody can be asked here" in gone.stderr
    own.ok("jobs", "delete", "weekly", "--yes")
    missing = own.run("jobs", "get", "weekly")
    assert (missing.returncode, missing.stdout) == (1, "")
    assert missing.stderr == "mainspring: there is no job 'weekly'\n"


def test_an_editor_changes_what_a_person_changes_in_it(own: Installation, tmp_path: Path) -> None:
    own.ok("jobs", "create", "edited", "--schedule", "@daily", "--label", "a=b")
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nsed -i \'s/"priority": 5/"priority": 9/; s/"a": "b"//\' "$1"\n')
    editor.chmod(0o700)
    own.ok("jobs", "edit", "edited", VISUAL=str(editor))
    job = json.loads(own.ok("jobs", "get", "edited", "-o", "json"))
    assert (job["priority"], job["labels"], job["version"]) == (9, {}, 2)
    nothing = own.run("jobs", "edit", "edited", VISUAL="true")
    assert (nothing.returncode, nothing.stderr) == (0, "nothing was changed\n")


def test_many_are_counted_before_anything_is_done_to_them(own: Installation, client: Client) -> None:
    for number in range(3):
        client.jobs.create(name=f"a/b {number}", schedule="@daily", labels={"x": "y"})
    dry = own.run("jobs", "delete", "--label", "x=y", "--dry-run")
    assert (dry.returncode, dry.stdout) == (0, "a/b 0\na/b 1\na/b 2\n")
    assert "delete 3 jobs: a/b 0, a/b 1, a/b 2" in dry.stderr
    for arguments in (["--label", "x=y"], ["a/b 0", "--label", "x=y", "--yes"], []):
        assert own.run("jobs", "delete", *arguments).returncode == 2
    assert own.ok("jobs", "list", "-o", "name") == "a/b 0\na/b 1\na/b 2\n"
    done = own.run("jobs", "pause", "a/b 0", "nobody", "a/b 2", "--yes")
    assert (done.returncode, done.stderr.splitlines()[-3:]) == (
        1,
        ["paused a/b 0", "mainspring: nobody: there is no job 'nobody'", "paused a/b 2"],
    )
    assert own.ok("jobs", "list", "--status", "paused", "-o", "name") == "a/b 0\na/b 2\n"


def test_a_list_says_when_it_is_not_all(own: Installation) -> None:
    lines = "".join(
        json.dumps({"name": f"n-{number:04}", "schedule": "@daily"}) + "\n" for number in range(1203)
    )
    assert own.run("jobs", "submit", "-", given=lines).stderr == "1,203 created, 0 refused\n"
    first = own.run("jobs", "list", "--limit", "2")
    assert len(first.stdout.splitlines()) == 3
    assert first.stderr == "2 of 1,203 jobs; --all shows all of them\n"
    assert len(own.ok("jobs", "list", "--all", "-o", "name").splitlines()) == 1203
    assert len(json.loads(own.ok("jobs", "list", "--limit", "1100", "-o", "json"))) == 1100


def test_an_api_that_does_not_answer_is_one_line_with_its_address(shared: Installation) -> None:
    address = f"http://127.0.0.1:{free_port()}"
    done = shared.run("jobs", "list", MAINSPRING_URL=address)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert done.stderr.startswith(f"mainspring: no answer from the API at {address}: ")
    wrong = shared.run("jobs", "list", MAINSPRING_URL="localhost:8080")
    assert (wrong.returncode, wrong.stderr.startswith("mainspring: MAINSPRING_URL: ")) == (2, True)


def test_a_key_that_may_not_is_told_so_on_one_line(own: Installation) -> None:
    viewer = own.ok("keys", "create", "reader", "--role", "viewer").strip()
    refused = own.run("jobs", "create", "x", "--schedule", "@daily", MAINSPRING_API_KEY=viewer)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "this needs the role operator" in refused.stderr
    own.ok("keys", "revoke", "reader", "--yes")
    unknown = own.run("jobs", "list", MAINSPRING_API_KEY=viewer)
    assert (unknown.returncode, unknown.stderr.count("\n")) == (1, 1)
    assert "revoked (MAINSPRING_API_KEY holds the key" in unknown.stderr


def test_a_bad_value_is_the_field_and_the_rule_and_exit_code_2(shared: Installation) -> None:
    for arguments, reason in (
        (["create", "x", "--schedule", "61 * * * *"], "minute: 61 is not in 0–59"),
        (["create", "x", "--schedule", "@daily", "--set", "max_retry=1"], "max_retry"),
        (["create", "x", "--schedule", "@daily", "--payload", "{"], "is not JSON"),
        (["create", "x", "--schedule", "@daily", "--label", "team"], "is not KEY=VALUE"),
        (["list", "--limit", "0"], "0 is not in the range"),
        (["backfill", "x", "--from", "yesterday", "--to", "now"], "yesterday"),
    ):
        done = shared.run("jobs", *arguments)
        assert (done.returncode, done.stdout, reason in done.stderr) == (2, "", True), done.stderr
        assert "Traceback" not in done.stderr


def test_a_quota_is_said_at_once_and_not_waited_for(own: Installation, client: Client) -> None:
    tenant = client.tenant().tenant
    own.ok("tenants", "limit", tenant, "--maximum-jobs", "1")
    own.ok("jobs", "create", "one", "--schedule", "@daily")
    done = own.run("jobs", "create", "two", "--schedule", "@daily")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "may have 1 jobs" in done.stderr
    own.ok("tenants", "limit", tenant, "--maximum-jobs", "none")
    own.ok("jobs", "create", "two", "--schedule", "@daily")
    subjects = [row.action for row in client.audit(subject=f"tenant:{tenant}")]
    assert subjects == ["limit_tenant", "limit_tenant", "create_tenant"]


def test_watching_shows_what_comes(own: Installation, client: Client) -> None:
    client.jobs.create(name="first", schedule="@daily")
    with subprocess.Popen(
        [MAINSPRING, "jobs", "list", "-o", "name", "--watch", "0.1"],
        env=own.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as watching:
        given_up = Timer(GENEROUS_SECONDS, watching.kill)
        given_up.start()
        assert watching.stdout is not None
        assert watching.stdout.readline() == "first\n"
        client.jobs.create(name="second", schedule="@daily")
        assert "second\n" in iter(watching.stdout.readline, "")
        watching.send_signal(2)
        watching.communicate(timeout=GENEROUS_SECONDS)
        given_up.cancel()
        assert watching.returncode == 0


def test_a_shell_completes_commands_and_options(shared: Installation) -> None:
    for shell in ("bash", "zsh", "fish"):
        assert "_MAINSPRING_COMPLETE" in shared.ok("completion", shell)
    asked = {"_MAINSPRING_COMPLETE": "bash_complete", "COMP_WORDS": "mainspring jobs tri", "COMP_CWORD": "2"}
    assert shared.ok(**asked) == "plain,trigger\n"
    options = asked | {"COMP_WORDS": "mainspring jobs trigger --wa", "COMP_CWORD": "3"}
    assert shared.ok(**options) == "plain,--wait\n"
