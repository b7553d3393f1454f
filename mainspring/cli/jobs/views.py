"""How jobs and runs are shown."""

from __future__ import annotations

import json
from typing import Any

from mainspring.cli.output import Column, View
from mainspring.cli.times import Times, milliseconds
from mainspring.client.models import Job, JobDetail, Run, RunDetail

JOBS: View[Job] = View(
    (
        Column("job", lambda job, _: job.label),
        Column("schedule", lambda job, _: when(job)),
        Column("handler", lambda job, _: job.handler),
        Column("pool", lambda job, _: job.pool),
        Column("status", lambda job, _: job.status),
        Column("next run", lambda job, times: times.short(job.next_run_at)),
    ),
    lambda job: job.label,
)
RUNS: View[Run] = View(
    (
        Column("run", lambda run, _: run.run_id),
        Column("scheduled", lambda run, times: times.short(run.scheduled_at)),
        Column("attempt", lambda run, _: run.attempt, right=True),
        Column("status", lambda run, _: run.status),
        Column("started", lambda run, times: times.short(run.started_at)),
        Column("took", lambda run, _: milliseconds(run.duration_ms), right=True),
        Column("worker", lambda run, _: run.worker),
        Column("error", lambda run, _: run.error),
    ),
    lambda run: run.run_id,
)

_SHOWN_ALWAYS = frozenset({"handler", "pool", "priority", "timezone"})
_ELSEWHERE = frozenset({"name", "schedule", "payload", "labels", "after"})
_DEFAULTS: dict[str, Any] = {
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
    "on_failure": "skip",
}


def when(job: Job) -> str:
    """Its schedule, or what it waits for."""
    if job.schedule is None:
        return f"after {', '.join(job.after)}"
    return job.schedule if job.timezone == "UTC" else f"{job.schedule} ({job.timezone})"


def job_pairs(job: JobDetail, times: Times) -> list[tuple[str, object]]:
    """A job for people: what differs from the defaults, what it did last, what comes."""
    found: list[tuple[str, object]] = [
        ("job", job.label),
        ("id", job.job_id),
        ("status", job.status),
        ("schedule", when(job)),
        *_definition(job),
        ("labels", dict(job.labels)),
        ("payload", json.dumps(job.payload, ensure_ascii=False)),
        ("version", job.version),
        ("changed", times.whole(job.updated_at)),
    ]
    if job.status == "paused":
        found += [("paused because", job.paused_reason), ("resumes", times.whole(job.resume_at))]
    found.append(("last run", _last_run(job.last_run, times)))
    found.append(("next runs", "\n".join(str(times.whole(each)) for each in job.next_runs)))
    return found


def run_pairs(run: RunDetail, times: Times) -> list[tuple[str, object]]:
    """A run for people."""
    return [
        ("run", run.run_id),
        ("job", run.job_id),
        ("scheduled", times.whole(run.scheduled_at)),
        ("attempt", run.attempt),
        ("status", run.status),
        ("worker", run.worker),
        ("claimed", times.whole(run.claimed_at)),
        ("started", times.whole(run.started_at)),
        ("finished", times.whole(run.finished_at)),
        ("took", milliseconds(run.duration_ms)),
        ("error", run.error),
        ("progress", run.progress),
        ("result", None if run.result is None else json.dumps(run.result, ensure_ascii=False)),
    ]


def _definition(job: Job) -> list[tuple[str, object]]:
    shown: list[tuple[str, object]] = []
    for name, value in job.definition().items():
        if name in _ELSEWHERE:
            continue
        if name in _SHOWN_ALWAYS or (value is not None and value != _DEFAULTS.get(name)):
            shown.append((name.replace("_", " "), value))
    return shown


def _last_run(run: Run | None, times: Times) -> str | None:
    if run is None:
        return None
    took = milliseconds(run.duration_ms)
    return f"{run.status}  {times.whole(run.scheduled_at)}  {run.run_id}" + (f"  {took}" if took else "")
