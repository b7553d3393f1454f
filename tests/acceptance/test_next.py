"""`mainspring next` as a person or a script runs it: a process of its own, no server anywhere."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

MAINSPRING = Path(sys.executable).with_name("mainspring")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([MAINSPRING, "next", *arguments], capture_output=True, text=True, check=False)


def test_json_is_an_array_of_utc_instants_and_nothing_else() -> None:
    done = run(
        "30 2 * * *", "--tz", "America/New_York", "--from", "2026-03-07T12:00:00Z", "-n", "2", "--json"
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == '["2026-03-08T07:00:00Z", "2026-03-09T06:30:00Z"]\n'


@pytest.mark.parametrize(
    ("options", "first"),
    [
        (["--gap", "skip"], "2026-03-09T06:30:00Z"),
        (["--gap", "run_after"], "2026-03-08T07:00:00Z"),
    ],
)
def test_the_gap_option(options: list[str], first: str) -> None:
    zone = ["--tz", "America/New_York", "--from", "2026-03-07T12:00:00Z", "-n", "1", "--json"]
    assert json.loads(run("30 2 * * *", *zone, *options).stdout) == [first]


@pytest.mark.parametrize(
    ("repeat", "hours"), [("first", ["05:30"]), ("second", ["06:30"]), ("both", ["05:30", "06:30"])]
)
def test_the_repeat_option(repeat: str, hours: list[str]) -> None:
    zone = ["--tz", "America/New_York", "--from", "2026-11-01T04:00:00Z", "--json"]
    done = run("30 1 * * *", *zone, "--repeat", repeat, "-n", str(len(hours)))
    assert json.loads(done.stdout) == [f"2026-11-01T{hour}:00Z" for hour in hours]


@pytest.mark.parametrize("words", [["every 90s"], ["every", "90s"], ["every", "PT90S"]])
def test_every_quoted_or_not(words: list[str]) -> None:
    done = run(*words, "--from", "2026-01-01T00:00:00Z", "-n", "2", "--json")
    assert json.loads(done.stdout) == ["2026-01-01T00:01:30Z", "2026-01-01T00:03:00Z"]


def test_a_person_sees_words_local_time_utc_and_the_distance() -> None:
    done = run("0 9 * * MON-FRI", "--tz", "Europe/London", "--from", "2026-03-27T12:00", "-n", "1")
    words, _, head, line = done.stdout.splitlines()
    assert words == "At 09:00, Monday to Friday (Europe/London)"
    assert head.split() == ["local", "time", "UTC", "from", "now"]
    assert line.startswith("Mon 2026-03-30 09:00:00 BST  2026-03-30T08:00:00Z  ")
    assert line.endswith(" ago") or "  in " in line


def test_an_instant_without_an_offset_is_read_in_the_zone() -> None:
    done = run("2099-01-01T00:00", "--tz", "Asia/Tokyo", "--json")
    assert json.loads(done.stdout) == ["2098-12-31T15:00:00Z"]


def test_an_instant_in_the_past_is_an_answer_not_an_error() -> None:
    done = run("2020-01-01T00:00:00Z", "--json")
    assert (done.returncode, done.stdout, done.stderr) == (0, "[]\n", "")
    done = run("2020-01-01T00:00:00Z", "--from", "2026-01-01T00:00:00Z")
    assert (done.returncode, done.stderr) == (0, "Nothing after 2026-01-01T00:00:00Z.\n")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["61 * * * *"], "mainspring: minute: 61 is not in 0–59"),
        (["0 0 30 2 *"], "can never fire"),
        (["@daily", "--tz", "Mars/Olympus"], "timezone: 'Mars/Olympus' is not an IANA time zone"),
        (["every", "soon"], "every: 'soon' is not a duration"),
        (["@daily", "--from", "yesterday"], "--from: 'yesterday' is not an ISO-8601 instant"),
        (["2026-03-08T02:30", "--tz", "America/New_York"], "does not exist in America/New_York"),
        (["0", "9", "README.md", "docs", "mainspring", "tests", "x"], "quote it: '0 9 * * *'"),
        (["@daily", "-n", "0"], "0 is not in the range"),
        (["@daily", "--gap", "maybe"], "'maybe' is not one of"),
        ([], "Missing argument"),
    ],
)
def test_a_bad_request_exits_2_with_the_reason_on_stderr(arguments: list[str], reason: str) -> None:
    done = run(*arguments, "--json")
    assert (done.returncode, done.stdout) == (2, "")
    assert reason in done.stderr
    assert "Traceback" not in done.stderr


def test_help_shows_examples() -> None:
    done = run("--help")
    assert done.returncode == 0
    assert "mainspring next '0 9 * * MON-FRI' --tz Europe/London" in done.stdout


def test_neither_driver_nor_event_loop_is_loaded() -> None:
    heavy = "{'asyncpg', 'confluent_kafka', 'asyncio'}"
    code = f"import mainspring.cli.next_times, sys; print({heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
