"""`mainspring demo --seconds 30`, as `make demo SECONDS=30` runs it: the one test that takes its time."""

from __future__ import annotations

import re
import shlex
import subprocess
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from mainspring.local import procfs
from tests.integration.local.commands import MAINSPRING, execute, until, until_gone
from tests.integration.local.environments import own

DEMO = [MAINSPRING, "demo", "--api", "127.0.0.1:0"]


def curl(line: str) -> int:
    """What a line of curl as the demo shows it is answered."""
    words = shlex.split(line)
    method = words[words.index("-X") + 1] if "-X" in words else "GET"
    with urllib.request.urlopen(urllib.request.Request(words[-1], method=method), timeout=30) as answer:
        return int(answer.status)


def curl_lines(said: str) -> Sequence[str]:
    return [line.strip() for line in said.splitlines() if line.startswith("  curl ")]


def test_the_demo_keeps_its_promises_and_its_curl_lines_work(tmp_path: Path) -> None:
    shown, said = tmp_path / "shown", tmp_path / "said"
    with shown.open("wb") as stdout, said.open("wb") as stderr:
        process = subprocess.Popen([*DEMO, "--seconds", "30"], env=own(), stdout=stdout, stderr=stderr)
    try:
        until(lambda: "last minute: fired" in shown.read_text() or process.poll() is not None)
        everyone = procfs.descendants(process.pid)
        lines = curl_lines(shown.read_text())
        assert len(lines) >= 3, said.read_text()
        assert [curl(line) // 100 for line in lines] == [2] * len(lines)
        code = process.wait()
    finally:
        process.kill()
        process.wait()
    summary = shown.read_text().partition("What was promised")[2]
    assert code == 0, shown.read_text() + said.read_text()
    assert "BROKEN" not in summary
    assert summary.endswith("Everything that was promised happened.\n")
    for fact in (
        r"kept +every-second +due (29|3\d) times, and ran exactly once each time",
        r"kept +always-fails +due \w+( times)?, each time 2 attempts and a dead letter",
        r"kept +takeover +(scheduler-[12]) led \d+ shards when it was killed; (?!\1)scheduler-[12] took \d+",
    ):
        assert re.search(fact, summary), summary
    until_gone(everyone)


def test_a_demo_too_short_for_its_promises_is_refused_at_once() -> None:
    refused = execute([*DEMO, "--seconds", "24"])
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "24 is too short: a leader is killed after 15 s" in refused.stderr
