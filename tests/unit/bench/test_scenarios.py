"""`python -m bench`: the list, the refusal, and an interrupt of the real process."""

from __future__ import annotations

import re
import signal
import subprocess
import sys

from click.testing import CliRunner

from bench.__main__ import main


def test_without_a_scenario_it_lists_them_with_their_description() -> None:
    result = CliRunner().invoke(main, [])
    assert result.exit_code == 0
    assert re.search(r"wheel +insert and advance", result.stdout)


def test_shared_pieces_are_not_scenarios() -> None:
    result = CliRunner().invoke(main, [])
    assert "harness" not in result.stdout
    assert "main" not in result.stdout.partition("Commands:")[2]


def test_an_unknown_scenario_is_refused_with_the_list() -> None:
    result = CliRunner().invoke(main, ["nonsense"])
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "there is no scenario 'nonsense'; there are: armed, execute, " in result.stderr


def test_an_interrupted_run_still_prints_what_it_has() -> None:
    # So many rounds of so few entries that the interrupt comes long before the end, whatever the machine.
    command = [sys.executable, "-m", "bench", "wheel", "--entries", "500", "--repeat", "1000000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("round 2 "):
                break
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in stderr
    assert "Stopped after" in stdout
    assert "dict of lists" in stdout
