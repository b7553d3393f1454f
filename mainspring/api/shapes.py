"""What is answered: jobs, runs and letters as JSON has them. Instants are RFC 3339 in UTC, ids are texts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
from starlette.responses import Response

from mainspring.registry import DeadLetter, Job, LogLine, Run
from mainspring.registry.keys import ApiKey
from mainspring.schema.errors import RedriveRefused, UnreadableMessage
from mainspring.schema.ids import RunKey, format_job_id, format_run_id
from mainspring.schema.messages import decode_job
from mainspring.schema.states import JobStatus

COMING = 5
"""How many coming fire times are shown."""

# What means nothing for the job's kind is null, or empty, so that every job has the same fields.
_ABSENT: dict[str, Any] = {
    "schedule": None,
    "dst": None,
    "phase_seconds": 0,
    "after": [],
    "jitter_seconds": 0,
}


class Json(Response):
    """An answer in JSON, compact, in UTF-8."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return encode(content)


def encode(content: Any) -> bytes:
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"), default=_plain).encode()


def job(job: Job) -> dict[str, Any]:
    """A job: every field of its definition, and what Mainspring adds."""
    whole = job.definition.as_mapping()
    return {
        "job_id": job.job_id,
        **{name: whole.get(name, _ABSENT.get(name)) for name in DEFINITION},
        "kind": job.kind.value,
        "status": job.status.value,
        "version": job.version,
        "valid_from": instant(job.valid_from),
        "created_at": instant(job.created_at),
        "updated_at": instant(job.updated_at),
        "paused_reason": job.paused_reason,
        "resume_at": instant(job.resume_at),
        "next_run_at": instant(job.next_run_at),
    }


DEFINITION = (
    *("name", "handler", "schedule", "timezone", "payload", "pool", "priority", "idempotency_key_template"),
    *("max_retries", "retry_backoff", "missed_window", "max_missed", "grace_seconds", "timeout_seconds"),
    *(
        "overlap",
        "jitter_seconds",
        "dst",
        "phase_seconds",
        "starts_at",
        "ends_at",
        "after",
        "on_failure",
        "labels",
    ),
)


def next_runs(job: Job) -> list[str]:
    """The coming fire times of an active job."""
    if job.status is not JobStatus.ACTIVE or job.next_run_at is None:
        return []
    if job.cadence_id is None or job.schedule is None:
        return [text_of(job.next_run_at)]
    found = [job.next_run_at]
    while len(found) < COMING and (following := job.schedule.next_after(found[-1])) is not None:
        found.append(following)
    return [text_of(each) for each in found]


def run(run: Run) -> dict[str, Any]:
    """A run; durations are the worker's own clock."""
    return {
        "run_id": run.run_id,
        "job_id": format_job_id(run.job_id),
        "scheduled_at": instant(run.scheduled_at),
        "attempt": run.attempt,
        "status": run.status,
        "worker": run.worker_id,
        "claimed_at": instant(run.claimed_at),
        "started_at": instant(run.started_at),
        "finished_at": instant(run.ended_at),
        "duration_ms": _milliseconds(run.started_at, run.ended_at),
        "error": run.error,
        "result": None if run.result is None else json.loads(run.result),
    }


def log_line(line: LogLine) -> dict[str, Any]:
    return {"line": line.line, "at": instant(line.at), "level": line.level.value, "message": line.message}


def letter(letter: DeadLetter, *, whole: bool = False) -> dict[str, Any]:
    """A dead letter; whole with its traceback and its payload."""
    body: dict[str, Any] = {
        "id": letter.id,
        "run_id": format_run_id(RunKey(letter.job_id, letter.scheduled_at, letter.attempt)),
        "job_id": format_job_id(letter.job_id),
        "scheduled_at": instant(letter.scheduled_at),
        "attempt": letter.attempt,
        "pool": letter.pool,
        "handler": letter.handler,
        "reason": letter.reason.value,
        "error": letter.error,
        "fingerprint": letter.fingerprint,
        "created_at": instant(letter.created_at),
        "redriven_at": instant(letter.redriven_at),
        "previous_id": letter.previous_id,
    }
    if whole:
        body |= {"traceback": letter.traceback, "payload": _payload(letter.body)}
    return body


def refusal(refused: RedriveRefused) -> dict[str, Any]:
    return {"id": refused.letter_id, "status": refused.status, "detail": str(refused)}


def key(key: ApiKey) -> dict[str, Any]:
    return {
        "id": key.id,
        "name": key.name,
        "role": key.role.value,
        "handlers": None if key.handlers is None else list(key.handlers),
        "created_at": instant(key.created_at),
        "revoked_at": instant(key.revoked_at),
    }


def instant(moment: datetime | None) -> str | None:
    """Exact: two triggers of one second are told apart by their microseconds."""
    return None if moment is None else text_of(moment)


def text_of(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat().removesuffix("+00:00") + "Z"


def row(record: Mapping[str, Any] | asyncpg.Record) -> dict[str, Any]:
    """A row of Postgres, its instants as texts."""
    return {name: instant(value) if isinstance(value, datetime) else value for name, value in record.items()}


def _milliseconds(start: datetime | None, end: datetime | None) -> int | None:
    return None if start is None or end is None else (end - start) // timedelta(milliseconds=1)


def _payload(body: bytes | None) -> Any:
    try:
        return None if body is None else json.loads(decode_job(body).payload_json)
    except (UnreadableMessage, ValueError):
        return None


def _plain(value: object) -> Any:
    if isinstance(value, datetime):
        return text_of(value)
    raise TypeError(f"{type(value).__name__} is not JSON")
