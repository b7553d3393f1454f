"""An edit keeps what it does not name, and what means something for the kind of job that results."""

from __future__ import annotations

from typing import Any

import pytest

from mainspring.registry import JobRequest
from mainspring.schedule import Gap
from mainspring.schema.errors import InvalidInput
from mainspring.schema.states import JobKind, OnFailure

CRON = JobRequest.from_mapping(
    {
        "name": "report",
        "schedule": "30 2 * * *",
        "timezone": "America/New_York",
        "dst": {"gap": "skip"},
        "starts_at": "2026-01-01T00:00:00Z",
        "jitter_seconds": 30,
        "timeout_seconds": 10,
    }
)
WAITING = JobRequest.from_mapping({"name": "b", "after": ["a"], "on_failure": "run", "timeout_seconds": 10})


def test_fields_that_are_not_named_stay() -> None:
    edited = CRON.with_changes({"payload": {"a": 1}})
    assert edited.payload == {"a": 1}
    assert edited.with_changes({"payload": None}) == CRON
    assert CRON.with_changes({}) == CRON
    assert WAITING.with_changes({}) == WAITING


def test_null_means_the_default() -> None:
    edited = CRON.with_changes({"timeout_seconds": None, "timezone": None, "dst": None, "starts_at": None})
    assert (edited.timeout_seconds, edited.timezone, edited.starts_at) == (300, "UTC", None)
    assert edited.cadence is not None
    assert edited.cadence.dst.gap is Gap.RUN_AFTER


def test_a_new_name_does_not_change_the_handler() -> None:
    assert CRON.with_changes({"name": "other"}).handler == "report"
    assert CRON.with_changes({"name": "other", "handler": None}).handler == "other"


def test_another_time_of_day_keeps_the_dst_policy() -> None:
    edited = CRON.with_changes({"schedule": "45 2 * * *"})
    assert edited.cadence is not None
    assert edited.cadence.dst.gap is Gap.SKIP


def test_another_kind_leaves_behind_what_means_nothing_for_it() -> None:
    interval = CRON.with_changes({"schedule": "every 5m"})
    assert interval.kind is JobKind.EVERY
    assert (interval.starts_at, interval.jitter_seconds) == (CRON.starts_at, 30)
    once = CRON.with_changes({"schedule": "2027-01-01T00:00:00Z"})
    assert (once.kind, once.starts_at, once.jitter_seconds) == (JobKind.AT, None, 30)
    waiting = CRON.with_changes({"after": ["a"]})
    assert (waiting.kind, waiting.jitter_seconds, waiting.timeout_seconds) == (JobKind.AFTER, 0, 10)
    assert waiting.schedule == ""


def test_a_schedule_takes_the_place_of_parents() -> None:
    edited = WAITING.with_changes({"schedule": "@daily"})
    assert (edited.kind, edited.after, edited.on_failure) == (JobKind.CRON, (), OnFailure.SKIP)


def test_a_phase_stays_with_another_interval_if_it_fits() -> None:
    interval = JobRequest.from_mapping({"name": "a", "schedule": "every 1h", "phase_seconds": 90})
    edited = interval.with_changes({"schedule": "every 2m"})
    assert edited.cadence is not None
    assert edited.cadence.phase == 90
    with pytest.raises(InvalidInput, match="phase_seconds: 90 is not in 0–59"):
        interval.with_changes({"schedule": "every 60s"})


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"schedule": "every 5m", "dst": {"gap": "skip"}}, "dst"),
        ({"schedule": "@daily", "after": ["a"]}, "after"),
        ({"schedule": None}, "schedule"),
        ({"schedule": "61 * * * *"}, "schedule"),
        ({"schedule": 7}, "schedule"),
        ({"after": 7}, "after"),
        ({"timeout": 5}, "timeout"),
        ({"name": None, "handler": None}, "name"),
    ],
)
def test_an_edit_obeys_the_same_rules(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        CRON.with_changes(changes)
    assert refusal.value.field == field


def test_a_job_that_waits_for_nobody_needs_a_schedule() -> None:
    with pytest.raises(InvalidInput, match="schedule: is missing"):
        WAITING.with_changes({"after": []})
