"""A crontab, read as cron reads it."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from mainspring.cli.jobs.crontab import Crontab, Options, read_crontab
from mainspring.cli.jobs.documents import read_value
from mainspring.cli.jobs.importing import write_yaml
from mainspring.registry import JobRequest

EVERYTHING = """\
# m h dom mon dow command
SHELL=/bin/bash
PATH="/usr/local/bin:/usr/bin"
MAILTO=""

# The books of yesterday.
# Asked for by accounting.
CRON_TZ=Europe/Berlin
30 2 * * 1-5 /opt/books/close.sh --day yesterday

# Not this job's.

*/15 9-17 * * mon-fri  cd /srv && sudo -E ./poll.py  # inline is part of the command
@daily   /opt/report --date \\%F
@hourly  /usr/bin/mail%Dear root,%all is well.
@reboot  /opt/start
0 25 * * * never
MAILTO=ops@example.org
CRON_TZ=Mars/Olympus
5 5 * * * lost
CRON_TZ=
5 5 * * * /opt/report
"""


def read(text: str, **options: Any) -> Crontab:
    return read_crontab(text, Options(**options))


def only(text: str, **options: Any) -> dict[str, Any]:
    found = read(text, **options)
    assert [found.problems, len(found.entries)] == [[], 1]
    return found.entries[0].job


def test_every_line_becomes_part_of_a_job_or_is_named() -> None:
    found = read(EVERYTHING)
    assert [(entry.line, entry.job["name"]) for entry in found.entries] == [
        (9, "close-sh"),
        (13, "poll-py"),
        (14, "report"),
        (15, "mail"),
        (22, "report-2"),
    ]
    assert [line for line, _ in found.problems] == [16, 17, 18, 19, 20]
    reasons = " | ".join(reason for _, reason in found.problems)
    for word in ("@reboot", "hour: 25", "ops@example.org", "Mars/Olympus", "the one of line 19"):
        assert word in reasons


def test_a_job_carries_the_zone_the_environment_and_what_cron_would_not_do() -> None:
    job = read(EVERYTHING).entries[0].job
    assert job == {
        "name": "close-sh",
        "schedule": "30 2 * * 1-5",
        "timezone": "Europe/Berlin",
        "handler": "command",
        "payload": {
            "command": "/opt/books/close.sh --day yesterday",
            "environment": {"SHELL": "/bin/bash", "PATH": "/usr/local/bin:/usr/bin"},
        },
        "missed_window": "SKIP",
        "max_retries": 0,
        "timeout_seconds": 2_592_000,
    }


def test_a_zone_that_is_taken_back_is_the_default_again() -> None:
    assert "timezone" not in read(EVERYTHING).entries[-1].job


def test_percent_signs_end_a_command_and_begin_its_lines_of_input() -> None:
    entries = read(EVERYTHING).entries
    assert entries[2].job["payload"]["command"] == "/opt/report --date %F"
    assert entries[3].job["payload"]["command"] == "/usr/bin/mail"
    assert entries[3].job["payload"]["stdin"] == "Dear root,\nall is well.\n"


def test_the_comment_right_above_a_job_is_its_own() -> None:
    entries = read("# a\n# b\n@daily x\n# c\n\n@daily y\n").entries
    assert [entry.comment for entry in entries] == [("a", "b"), ()]


def test_a_system_crontab_has_a_user_before_the_command() -> None:
    job = only("0 4 * * *  postgres  /usr/bin/vacuum all\n", system=True)
    assert job["payload"] == {"command": "/usr/bin/vacuum all", "user": "postgres"}
    assert job["name"] == "vacuum"
    assert read("@daily root\n", system=True).problems[0].line == 1


@pytest.mark.parametrize(
    ("nickname", "schedule"),
    [
        ("@hourly", "@hourly"),
        ("@Daily", "@daily"),
        ("@midnight", "@daily"),
        ("@annually", "@yearly"),
        ("@weekly", "@weekly"),
        ("@every_minute", "* * * * *"),
    ],
)
def test_nicknames(nickname: str, schedule: str) -> None:
    assert only(f"{nickname} x\n")["schedule"] == schedule


def test_tz_is_a_zone_and_part_of_the_environment_with_a_note() -> None:
    found = read("TZ=Asia/Tokyo\n@daily x\n")
    assert found.entries[0].job["timezone"] == "Asia/Tokyo"
    assert found.entries[0].job["payload"]["environment"] == {"TZ": "Asia/Tokyo"}
    assert [note.line for note in found.notes] == [1]


def test_cron_tz_goes_before_tz() -> None:
    job = only("CRON_TZ=Europe/Berlin\nTZ=Asia/Tokyo\n@daily x\n")
    assert job["timezone"] == "Europe/Berlin"


@pytest.mark.parametrize(
    "line",
    ["* * * *", "* * * * *", "61 * * * * x", "@fortnightly x", "0~59 * * * * x", "* * * * * %x", "nonsense"],
)
def test_what_is_no_entry_is_named_with_its_line(line: str) -> None:
    found = read(f"\n{line}\n")
    assert (found.entries, [problem.line for problem in found.problems]) == ([], [2])


def test_names_come_from_programs_and_take_prefix_labels_and_handler() -> None:
    job = only(
        "@daily FOO=1 /usr/bin/env python3 /srv/clean_up.py\n",
        prefix="old-",
        labels={"from": "cron"},
        handler="shell",
    )
    assert (job["name"], job["labels"], job["handler"]) == ("old-clean-up-py", {"from": "cron"}, "shell")


def test_what_is_written_is_what_was_read_and_jobs_that_the_registry_takes() -> None:
    found = read(EVERYTHING)
    text = write_yaml(found)
    jobs = yaml.safe_load(text)
    assert jobs == [entry.job for entry in found.entries] == read_value(text, "crontab")
    assert "# Asked for by accounting.\n# line 9\n- name: close-sh\n" in text
    for job in jobs:
        JobRequest.from_mapping(job)


def test_an_empty_crontab_is_an_empty_list() -> None:
    assert yaml.safe_load(write_yaml(read("# nothing\n"))) == []
