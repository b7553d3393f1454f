"""docs/api.md: every line of every example is run, in order, against a real process."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

from mainspring.api.documents import VERDICTS
from mainspring.api.problems import TABLE
from tests.acceptance.api.conftest import PATIENCE, ApiProcess

PAGE = (Path(__file__).parents[3] / "docs" / "api.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)


def test_every_example_does_what_it_says(api: ApiProcess, admin_key: str, tmp_path: Path) -> None:
    lines = [line for block in BLOCKS[1:] for line in block.splitlines()]
    assert len(lines) > 30
    script = "\n".join(f"{line.replace('/tmp/jobs.ndjson', 'jobs.ndjson')}\necho" for line in lines)
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-x", "-c", script],
        env={"PATH": "/usr/bin:/bin", "MAINSPRING_URL": api.url(), "MAINSPRING_API_KEY": admin_key},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-600:]}\n{done.stderr[-600:]}"
    assert '{"summary":{"created":1000,"refused":0}}' in done.stdout
    assert '"words":"every 1 minute and 30 seconds"' in done.stdout
    first = next(line for line in done.stdout.splitlines() if line)
    assert json.loads(first)["name"] == "send-weekly-report"


def test_the_page_names_every_verdict_and_every_refusal() -> None:
    assert {word for word in VERDICTS if f"`{word}`" not in PAGE} == set()
    assert {kind.slug for _, kind in TABLE if f"`{kind.slug}`" not in PAGE} == set()
