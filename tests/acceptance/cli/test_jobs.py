"""`mainspring jobs` against a real API, as a person or a script runs it."""

from __future__ import annotations

import json

from tests.acceptance.cli.installation import Installation


def test_a_job_from_its_creation_to_its_end(shared: Installation) -> None:
    fields = ("--schedule", "0 9 * * 1", "--tz", "America/New_York", "--payload", '{"report_type": "weekly"}')
    created = shared.run("jobs", "create", "weekly", *fields, "--set", "max_retries=7", "--label", "team=a")
    assert created.returncode == 0, created.stderr
    assert "created weekly (j_" in created.stderr
    assert "0 9 * * 1 (America/New_York)" in created.stdout
    job = json.loads(shared.ok("jobs", "get", "weekly", "-o", "json"))
    assert (job["max_retries"], job["labels"], job["payload"]) == (
        7,
        {"team": "a"},
        {"report_type": "weekly"},
    )
    assert shared.ok("jobs", "edit", "weekly", "--unset", "max_retries", "-o", "name") == "weekly\n"
    assert json.loads(shared.ok("jobs", "get", "weekly", "-o", "jsonl"))["max_retries"] == 3
    shared.ok("jobs", "pause", "weekly", "--reason", "büro zu")
    shown = shared.ok("jobs", "get", "weekly")
    assert "büro zu" in shown
    assert "paused" in shown
    shared.ok("jobs", "resume", "weekly")
    gone = shared.run("jobs", "delete", "weekly")
    assert gone.returncode == 2
    assert "Nobody can be asked here" in gone.stderr
    shared.ok("jobs", "delete", "weekly", "--yes")
    missing = shared.run("jobs", "get", "weekly")
    assert (missing.returncode, missing.stdout) == (1, "")
    assert missing.stderr == "mainspring: there is no job 'weekly'\n"
