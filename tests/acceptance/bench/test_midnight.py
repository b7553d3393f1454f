"""`python -m bench midnight`, small: a stack of its own, real processes, and a result that adds up."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.acceptance.waiting import GENEROUS_SECONDS

JOBS = 2000
LEADS = (15, 60)
"""Seconds to register in: a machine that is too slow for the first is given the second."""


def run(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bench", "midnight", "--jobs", str(JOBS), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=3 * GENEROUS_SECONDS, check=False)


def measure(*options: str) -> tuple[dict[str, Any], str]:
    """The result, and what was said meanwhile."""
    for lead in LEADS:
        done = run("--json", "--lead", str(lead), *options)
        if "give it more seconds" not in done.stderr:
            break
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


def test_a_small_midnight_is_whole(tmp_path: Path) -> None:
    pictures = tmp_path / "report"
    found, said = measure("--tenants", "2", "--cadences", "many", "--report", str(pictures))
    assert found["complete"] is True
    assert found["jobs"] == JOBS
    assert (found["lost"], found["executed_twice"]) == (0, 0)
    assert 0 < found["published_s"] <= found["durable_s"]
    for name in ("publish", "start", "durable"):
        lateness = found[f"{name}_lateness_ms"]
        assert 0 < lateness["p50"] <= lateness["p99"] <= lateness["p999"] <= lateness["max"]
    assert {"scheduler 1", "worker 1", "postgres", "kafka"} <= {each["name"] for each in found["processes"]}
    assert found["environment"]["servers"]["kafka"].startswith("4.")
    assert "<svg" in (pictures / "index.html").read_text()
    assert "registered" in said
