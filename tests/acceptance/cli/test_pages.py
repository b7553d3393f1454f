"""docs/cli.md and docs/client.md do what they say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.acceptance.cli.installation import GENEROUS_SECONDS, Installation
from tests.acceptance.cli.pages import blocks, commands, expected_code, program, run_command


def test_every_command_of_the_page_about_the_command_line(shared: Installation, tmp_path: Path) -> None:
    count = 0
    for block in blocks("cli.md", shared):
        if block.file:
            (tmp_path / block.file).parent.mkdir(exist_ok=True)
            (tmp_path / block.file).write_text(block.text)
        elif block.language == "sh":
            for line, command in commands(block):
                done = run_command(shared, tmp_path, command)
                told = f"docs/cli.md:{line}: {command}\n{done.stdout}{done.stderr}"
                assert done.returncode == expected_code(command), told
                assert "Traceback" not in done.stderr, told
                count += 1
    assert count > 60


def test_the_examples_of_the_client(shared: Installation, tmp_path: Path) -> None:
    file, seen = tmp_path / "client.md.py", shared.tenant()
    file.write_text(program("client.md", seen))
    done = subprocess.run(
        [sys.executable, "-W", "error", file],
        cwd=tmp_path,
        env=seen.environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=GENEROUS_SECONDS,
    )
    assert done.returncode == 0, done.stderr
