"""When a job runs next, as its reader sees it."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from mainspring.registry import Job, JobRequest
from mainspring.schedule import parse_instant
from mainspring.schema.states import JobStatus

NOON = parse_instant("2026-11-18T12:00:00Z")


def job(timer_due_at: datetime | None = None, **body: Any) -> Job:
    return Job(
        id=1,
        tenant_id=1,
        shard=0,
        status=JobStatus.ACTIVE,
        version=1,
        definition=JobRequest.from_mapping({"name": "a", **body}),
        cadence_id=1,
        valid_from=NOON,
        paused_reason=None,
        resume_at=None,
        closed_at=None,
        created_at=NOON,
        updated_at=NOON,
        timer_due_at=timer_due_at,
        read_at=NOON,
    )


def test_a_recurring_job_runs_at_the_next_instant_of_its_own() -> None:
    hourly = job(schedule="0 * * * *")
    assert hourly.next_run_at == parse_instant("2026-11-18T13:00:00Z")
    assert replace(hourly, valid_from=NOON + timedelta(hours=2)).next_run_at == parse_instant(
        "2026-11-18T15:00:00Z"
    )
    assert job(schedule="0 * * * *", ends_at="2026-11-18T13:00:00Z").next_run_at is None
    assert job(schedule="0 * * * *", starts_at="2026-11-20T00:00:00Z").next_run_at == parse_instant(
        "2026-11-20T00:00:00Z"
    )


def test_a_job_without_a_cadence_runs_when_its_timer_is_due() -> None:
    due = NOON - timedelta(seconds=5)
    once = job(due, schedule="2026-11-18T11:00:00Z")
    assert once.next_run_at == due
    assert replace(once, timer_due_at=None).next_run_at is None
    assert job(None, after=["b"]).next_run_at is None
    assert job(due, after=["b"]).next_run_at == due


def test_a_job_that_does_not_fire_has_no_next_run() -> None:
    for status in (JobStatus.PAUSED, JobStatus.COMPLETED):
        assert replace(job(NOON, schedule="@daily"), status=status).next_run_at is None


def test_ids_are_readable() -> None:
    assert job(schedule="@daily").job_id == "j_0000000000001"
