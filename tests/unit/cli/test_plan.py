"""What applying files would do."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from mainspring.cli.jobs.documents import Document
from mainspring.cli.jobs.plan import Action, Step, differences, in_order, named, prune, read, step_of
from mainspring.client.models import JobDetail, Validated
from mainspring.client.models import read as read_model
from mainspring.schema.errors import InvalidInput

NOW = datetime(2026, 11, 18, tzinfo=UTC)
STORED: dict[str, Any] = {
    "name": "report",
    "handler": "report",
    "schedule": "0 9 * * 1",
    "timezone": "UTC",
    "payload": None,
    "pool": "default",
    "priority": 5,
    "idempotency_key_template": None,
    "max_retries": 3,
    "retry_backoff": "exponential",
    "missed_window": "RUN_ONCE",
    "max_missed": 100,
    "grace_seconds": 60,
    "timeout_seconds": 300,
    "overlap": "allow",
    "jitter_seconds": 0,
    "dst": {"gap": "run_after", "repeat": "first"},
    "phase_seconds": 0,
    "starts_at": None,
    "ends_at": None,
    "after": [],
    "on_failure": "skip",
    "labels": {},
}
AFTER = {"schedule": None, "dst": None, "after": ["j_000000000000a", "j_000000000000b"]}


def job(**fields: Any) -> JobDetail:
    """As the API answers it."""
    added = {
        "job_id": "j_0000000000001",
        "kind": "cron",
        "status": "active",
        "version": 3,
        "valid_from": "2026-11-01T00:00:00Z",
        "created_at": "2026-11-01T00:00:00Z",
        "updated_at": "2026-11-01T00:00:00Z",
        "paused_reason": None,
        "resume_at": None,
        "next_run_at": "2026-11-23T09:00:00Z",
        "last_run": None,
        "next_runs": ["2026-11-23T09:00:00Z"],
    }
    return read_model(JobDetail, {**STORED, **added, **fields})


def document(**fields: Any) -> Document:
    return Document("jobs.yaml", {"name": "report", "schedule": "0 9 * * 1", **fields})


def changed(wanted: Document, current: JobDetail, **ids: str) -> dict[str, tuple[Any, Any]]:
    return {name: (before, after) for name, before, after in differences(wanted, current, ids)}


@pytest.mark.parametrize(
    ("written", "stored"),
    [
        ({}, {}),
        ({"priority": "high"}, {"priority": 8}),
        ({"schedule": " 0  9 * * 1 "}, {}),
        ({"max_retries": 3, "labels": {}, "dst": {"gap": "run_after"}}, {}),
        ({"starts_at": "2026-12-01T09:00:00+01:00"}, {"starts_at": "2026-12-01T08:00:00Z"}),
        ({"starts_at": "2026-12-01T09:00:00", "timezone": "Europe/Berlin"},
         {"starts_at": "2026-12-01T08:00:00Z", "timezone": "Europe/Berlin"}),
        ({"payload": {"b": 1, "a": 2}}, {"payload": {"a": 2, "b": 1}}),
        ({"schedule": None, "after": ["b", "a"]}, AFTER),
    ],
)  # fmt: skip
def test_another_spelling_is_no_change(written: dict[str, Any], stored: dict[str, Any]) -> None:
    ids = {"a": "j_000000000000a", "b": "j_000000000000b"}
    assert changed(document(**written), job(**stored), **ids) == {}


def test_a_field_that_is_not_in_the_file_goes_to_its_default() -> None:
    assert changed(document(), job(max_retries=9, labels={"a": "b"})) == {
        "max_retries": (9, 3),
        "labels": ({"a": "b"}, {}),
    }


def test_another_parent_is_a_change_and_one_that_does_not_exist_yet_too() -> None:
    wanted = document(schedule=None, after=["a", "new"])
    assert changed(wanted, job(**AFTER), a="j_000000000000a") == {
        "after": (["j_000000000000a", "j_000000000000b"], ["j_000000000000a", "new"])
    }


def test_only_what_changes_is_sent_as_it_was_written() -> None:
    wanted, current = document(priority="low", payload={"x": 1}), job()
    step = step_of(wanted, current, differences(wanted, current, {}), None)
    assert step.fields == {"priority": "low", "payload": {"x": 1}}


def test_what_means_nothing_for_the_new_kind_is_not_sent() -> None:
    wanted, current = document(schedule="every 5m"), job(dst={"gap": "skip", "repeat": "both"})
    step = step_of(wanted, current, differences(wanted, current, {}), None)
    assert "dst" not in step.fields
    assert step.fields["schedule"] == "every 5m"


def test_a_job_that_is_not_there_is_created_whole() -> None:
    validated = Validated(kind="cron", words="At 09:00", next_runs=(NOW,))
    step = step_of(document(priority="low"), None, (), validated)
    assert (step.action, step.fields["priority"], step.before, step.after) == (
        Action.CREATE,
        "low",
        (),
        (NOW,),
    )


def test_fire_times_are_shown_where_they_change() -> None:
    wanted, current = document(schedule="0 10 * * 1"), job()
    validated = Validated(kind="cron", words="", next_runs=(NOW,))
    changes = differences(wanted, current, {})
    assert step_of(wanted, current, changes, validated).fires_otherwise
    same = Validated(kind="cron", words="", next_runs=current.next_runs)
    assert not step_of(wanted, current, changes, same).fires_otherwise
    paused = job(status="paused", next_runs=[])
    assert not step_of(wanted, paused, changes, validated).fires_otherwise


def test_parents_come_before_those_that_wait_and_deletions_last() -> None:
    steps = [
        Step(action=Action.DELETE, name="old", fields={}),
        Step(action=Action.CREATE, name="c", fields={"after": ["b", "elsewhere"]}),
        Step(action=Action.CREATE, name="b", fields={"after": ["a"]}),
        Step(action=Action.CREATE, name="a", fields={}),
    ]
    assert [step.name for step in in_order(steps)] == ["a", "b", "c", "old"]


def test_a_cycle_is_left_to_the_api() -> None:
    steps = [Step(action=Action.CREATE, name=name, fields={"after": [name]}) for name in "ab"]
    assert [step.name for step in in_order(steps)] == ["a", "b"]


def test_what_has_the_label_and_is_in_no_file_is_deleted() -> None:
    unnamed = job(name=None, job_id="j_0000000000009")
    found = prune([job(), unnamed], ["report"])
    assert [(step.action, step.name) for step in found] == [(Action.DELETE, "j_0000000000009")]


@pytest.mark.parametrize(
    ("documents", "reason"),
    [
        ([Document("a.yaml", {"schedule": "@daily"})], "a.yaml: has no name"),
        (
            [Document("a.yaml", {"name": "x"}), Document("b.yaml", {"name": "x"})],
            "b.yaml: 'x' stands in a.yaml too",
        ),
    ],
)
def test_each_job_has_one_name_and_stands_once(documents: list[Document], reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        named(documents)


def test_a_refusal_says_where_the_job_stands() -> None:
    with pytest.raises(InvalidInput, match=r"jobs.yaml: max_retries: -1 is not in 0–1000"):
        read(document(max_retries=-1))
