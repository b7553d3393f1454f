"""A job's definition as columns: parameters of `insert_job` and `update_job`, and records of a COPY."""

from __future__ import annotations

import json
from typing import Any

from mainspring.registry.definition import JobRequest

COLUMNS = (
    "id",
    "tenant_id",
    "shard",
    "name",
    "kind",
    "schedule",
    "timezone",
    "cadence_id",
    "run_at",
    "starts_at",
    "ends_at",
    "jitter_seconds",
    "handler",
    "pool",
    "priority",
    "missed_window",
    "max_missed",
    "grace_seconds",
    "overlap",
    "max_retries",
    "retry_backoff",
    "timeout_seconds",
    "idempotency_key_template",
    "on_failure",
    "labels",
    "body",
)


def to_row(
    job_id: int, tenant_id: int, shard: int, cadence_id: int | None, version: int, job: JobRequest
) -> tuple[Any, ...]:
    """The values of COLUMNS; status, times and `changed` are the database's to set."""
    return (
        job_id,
        tenant_id,
        shard,
        job.name,
        job.kind,
        job.schedule,
        job.timezone,
        cadence_id,
        job.run_at,
        job.starts_at,
        job.ends_at,
        job.jitter_seconds,
        job.handler,
        job.pool,
        job.priority,
        job.missed_window,
        job.max_missed,
        job.grace_seconds,
        job.overlap,
        job.max_retries,
        job.retry_backoff,
        job.timeout_seconds,
        job.idempotency_key_template,
        job.on_failure,
        json.dumps(job.labels) if job.labels else "{}",
        job.body(job_id, tenant_id, version),
    )
