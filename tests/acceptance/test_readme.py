"""README: what it says to type is typed, in its order, against what it says to start."""

from __future__ import annotations

import re
import signal
import subprocess
from pathlib import Path

from tests.acceptance.test_up import started
from tests.integration.local.commands import MAINSPRING
from tests.integration.local.environments import own

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
TRY_IT = README.partition("## Try it")[2].partition("\n## ")[0]
HELLO = re.findall(r"```python\n(.*?)```", TRY_IT, re.DOTALL)
PROSE = re.sub(r"```.*?```", "", TRY_IT, flags=re.DOTALL)
LINES = re.findall(r"^    (?=\S)((?:.*\\\n)*.*)", PROSE, re.MULTILINE)


def script(lines: list[str]) -> str:
    return "\n".join(f"{line}\necho" for line in lines).replace(".venv/bin/mainspring", f"'{MAINSPRING}'")


def typed(lines: list[str], directory: Path) -> str:
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script(lines)],
        cwd=directory,
        env=own(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_readme_has_a_handler_and_lines_to_type() -> None:
    assert len(HELLO) == 1
    assert len(LINES) == 11
    assert [line for line in LINES if "mainspring up" in line] == [".venv/bin/mainspring up --app hello:app"]


def test_what_the_readme_says_to_type_does_what_it_says(tmp_path: Path) -> None:
    (tmp_path / "hello.py").write_text(HELLO[0], encoding="utf-8")
    place = LINES.index(".venv/bin/mainspring up --app hello:app")
    assert "2026-03-08T07:00:00" in typed(LINES[:place], tmp_path)
    with started(tmp_path / "log", "--app", "hello:app", "--api", "127.0.0.1:0", place=tmp_path) as command:
        command.wait_for("Ready.")
        answers = typed(LINES[place + 1 :], tmp_path)
        assert '"result":"Good morning, due at ' in answers
        assert '"timezone":"Europe/London"' in answers
        assert command.end(signal.SIGINT) == 0
