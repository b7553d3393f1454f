"""A job as it stands in Postgres: its definition, and what Mainspring adds to it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timedelta

import asyncpg

from mainspring.registry.definition import JobRequest
from mainspring.schedule import Cadence, DstPolicy, Gap, Kind, Repeat, Schedule, format_instant
from mainspring.schema.ids import format_job_id
from mainspring.schema.messages import decode_job
from mainspring.schema.states import (
    RECURRING,
    Backoff,
    JobKind,
    JobStatus,
    MissedPolicy,
    OnFailure,
    Overlap,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One job, as read at `read_at` by Postgres's clock."""

    id: int
    tenant_id: int
    shard: int
    status: JobStatus
    version: int
    definition: JobRequest
    cadence_id: int | None
    valid_from: datetime
    paused_reason: str | None
    resume_at: datetime | None
    closed_at: datetime | None
    created_at: datetime
    updated_at: datetime
    timer_due_at: datetime | None
    """When the first of its timers is due: a one-off, a retry, a trigger, a released dependent."""
    read_at: datetime

    @classmethod
    def from_row(cls, row: asyncpg.Record) -> Job:
        """A row of `read_job`."""
        return cls(
            id=row["id"],
            tenant_id=row["tenant_id"],
            shard=row["shard"],
            status=JobStatus(row["status"]),
            version=row["version"],
            definition=_definition(row),
            cadence_id=row["cadence_id"],
            valid_from=row["valid_from"],
            paused_reason=row["paused_reason"],
            resume_at=row["resume_at"],
            closed_at=row["closed_at"],
            created_at=row["created_at"],
            updated_at=row["updated_at"],
            timer_due_at=row["timer_due_at"],
            read_at=row["read_at"],
        )

    @property
    def job_id(self) -> str:
        """The id as people and the API see it."""
        return format_job_id(self.id)

    @property
    def name(self) -> str | None:
        return self.definition.name

    @property
    def kind(self) -> JobKind:
        return self.definition.kind

    @property
    def schedule(self) -> Schedule | None:
        """When it is due, for questions about coming times; None for a job that waits for others."""
        if self.definition.cadence is None:
            return None
        return Schedule(
            self.definition.cadence,
            valid_from=self.valid_from,
            starts_at=self.definition.starts_at,
            ends_at=self.definition.ends_at,
            jitter=timedelta(seconds=self.definition.jitter_seconds),
            missed_policy=self.definition.missed_window,
            grace=timedelta(seconds=self.definition.grace_seconds),
            max_missed=self.definition.max_missed,
        )

    @property
    def next_run_at(self) -> datetime | None:
        """When it runs next: the coming nominal instant, or what its timers say where it has no cadence.

        None while it is paused, when it has no more, and for a job that waits for its parents.
        """
        if self.status is not JobStatus.ACTIVE:
            return None
        schedule = self.schedule
        if schedule is None or self.kind not in RECURRING:
            return self.timer_due_at
        return schedule.next_after(self.read_at)


def _definition(row: asyncpg.Record) -> JobRequest:
    return JobRequest(
        handler=row["handler"],
        name=row["name"],
        schedule=row["schedule"],
        cadence=_cadence(row),
        timezone=row["timezone"],
        payload_json=decode_job(row["body"]).payload_json,
        pool=row["pool"],
        priority=row["priority"],
        idempotency_key_template=row["idempotency_key_template"],
        max_retries=row["max_retries"],
        retry_backoff=Backoff(row["retry_backoff"]),
        missed_window=MissedPolicy(row["missed_window"]),
        max_missed=row["max_missed"],
        grace_seconds=row["grace_seconds"],
        timeout_seconds=row["timeout_seconds"],
        overlap=Overlap(row["overlap"]),
        jitter_seconds=row["jitter_seconds"],
        starts_at=row["starts_at"],
        ends_at=row["ends_at"],
        after=tuple(format_job_id(parent) for parent in row["parents"]),
        on_failure=OnFailure(row["on_failure"]),
        labels=json.loads(row["labels"]),
    )


def _cadence(row: asyncpg.Record) -> Cadence | None:
    if row["run_at"] is not None:
        return Cadence(Kind.AT, format_instant(row["run_at"]))
    if row["cadence_id"] is None:
        return None
    dst = DstPolicy(Gap(row["dst_gap"]), Repeat(row["dst_repeat"]))
    return Cadence(Kind(row["kind"]), row["expression"], row["cadence_timezone"], dst, row["phase"])
