"""Pages of docs/, run: their files written, their commands given to a shell, their Python executed.

    ```yaml schedules/books.yaml     a file of that name
    ```sh                            commands, each a line (or several that end with a backslash)
    ```python                        parts of one program

A command must end with 0, or with what stands behind it: `# exit code 1`. Variables live from one to the
next. One with `--watch` is ended with Ctrl-C after its first line.
"""

from __future__ import annotations

import re
import select
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.acceptance.cli.installation import GENEROUS_SECONDS, ROOT, Done, Installation

_FENCE = re.compile(r"^```(\w*) ?(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_EXIT_CODE = re.compile(r"# exit code (\d)")
_KEEP = "set -a; [ -f .state ] && . ./.state; {command}\ncode=$?; export -p > .state; exit $code"


class Block(NamedTuple):
    """A fenced part of a page."""

    line: int
    language: str
    file: str
    text: str


def blocks(page: str, installation: Installation) -> Iterator[Block]:
    """The page's blocks in order, with the installation's own pool in place of the page's."""
    text = (ROOT / "docs" / page).read_text()
    for matched in _FENCE.finditer(text):
        line = text.count("\n", 0, matched.start()) + 2
        content = re.sub(r"\bbilling\b", installation.pool, matched[3])
        yield Block(line, matched[1], matched[2], content)


def commands(block: Block) -> Iterator[tuple[int, str]]:
    """Each command of a block and its line."""
    held, first = "", block.line
    for number, line in enumerate(block.text.splitlines(), block.line):
        first = first if held else number
        held += line
        if held.endswith("\\"):
            held = held[:-1]
        elif held.strip():
            yield first, held
            held = ""


def run_command(installation: Installation, directory: Path, command: str) -> Done:
    """One command in the page's shell."""
    if re.match(r"export MAINSPRING_(URL|API_KEY)=(http|ms_…)", command):
        return subprocess.CompletedProcess(command, 0, "", "")  # where the test's own installation is
    if "--watch" in command:
        return _watch(installation, directory, command)
    return subprocess.run(
        ["bash", "-c", _KEEP.format(command=command)],
        cwd=directory,
        env=installation.environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=GENEROUS_SECONDS,
    )


def expected_code(command: str) -> int:
    matched = _EXIT_CODE.search(command)
    return int(matched[1]) if matched else 0


def program(page: str, installation: Installation) -> str:
    """The page's Python as one program, each part on the lines where it stands in the page."""
    lines: list[str] = []
    for block in blocks(page, installation):
        if block.language == "python":
            lines += [""] * (block.line - 1 - len(lines)) + block.text.splitlines()
    return "\n".join(lines) + "\n"


def _watch(installation: Installation, directory: Path, command: str) -> Done:
    """Ctrl-C once it has shown something; a command that shows nothing is ended, and fails."""
    child = subprocess.Popen(
        ["bash", "-c", f"[ -f .state ] && . ./.state; exec {command}"],
        cwd=directory,
        env=installation.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    shown, _, _ = select.select([child.stdout], [], [], GENEROUS_SECONDS)
    first = child.stdout.readline() if shown else ""
    child.send_signal(signal.SIGINT if shown else signal.SIGKILL)
    rest, talk = child.communicate(timeout=GENEROUS_SECONDS)
    return subprocess.CompletedProcess(command, child.returncode, first + rest, talk)
