"""Jobs: each may be given by its id or its name."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Unpack

from mainspring.client.core import Call, Listing, as_model, as_nothing, change, parameters, path, without_none
from mainspring.client.core import get as _get
from mainspring.client.models import (
    Backfill,
    Explanation,
    Job,
    JobDetail,
    JobFields,
    Run,
    Triggered,
    Validated,
)


def create(
    job: Mapping[str, Any] | None = None, /, *, reason: str | None = None, **fields: Unpack[JobFields]
) -> Call[Job]:
    """Create a job; NameTaken if the name is."""
    return change("POST", path("jobs"), as_model(Job), _merged(job, fields), reason=reason)


def put(
    name: str,
    job: Mapping[str, Any] | None = None,
    /,
    *,
    reason: str | None = None,
    **fields: Unpack[JobFields],
) -> Call[Job]:
    """Create the job of this name, or make it what is given: every field that is not has its default."""
    return change("PUT", path("jobs", name), as_model(Job), _merged(job, fields), reason=reason)


def validate(job: Mapping[str, Any] | None = None, /, **fields: Unpack[JobFields]) -> Call[Validated]:
    """Check a job without creating it: its schedule in words and the coming fire times."""
    return change("POST", path("jobs:validate"), as_model(Validated), _merged(job, fields))


def get(job: str) -> Call[JobDetail]:
    """A job with its last run and its coming fire times."""
    return _get(JobDetail, path("jobs", job))


def find(
    *,
    status: str | None = None,
    handler: str | None = None,
    pool: str | None = None,
    labels: Mapping[str, str] | None = None,
    name_prefix: str | None = None,
) -> Listing[Job]:
    """Jobs that fit all of what is given, in order of id."""
    wanted = tuple(("label", f"{key}:{value}") for key, value in (labels or {}).items())
    where = {"status": status, "handler": handler, "pool": pool, "name_prefix": name_prefix}
    return Listing(Job, path("jobs"), parameters(where) + wanted)


def edit(
    job: str,
    changes: Mapping[str, Any] | None = None,
    /,
    *,
    version: int | None = None,
    reason: str | None = None,
    **fields: Unpack[JobFields],
) -> Call[Job]:
    """Change some fields, None means the default; with a version, only if the job is still at that one."""
    return change(
        "PATCH", path("jobs", job), as_model(Job), _merged(changes, fields), reason=reason, version=version
    )


def delete(job: str, *, reason: str | None = None) -> Call[None]:
    """Delete a job; its name is free at once."""
    return change("DELETE", path("jobs", job), as_nothing, reason=reason)


def pause(job: str, *, reason: str | None = None, until: datetime | str | None = None) -> Call[Job]:
    """Stop firing, until resumed or until an instant."""
    body = without_none(reason=reason, until=until)
    return change("POST", path("jobs", job, "pause"), as_model(Job), body, reason=reason)


def resume(job: str, *, reason: str | None = None) -> Call[Job]:
    """Fire again from now on."""
    return change("POST", path("jobs", job, "resume"), as_model(Job), reason=reason)


def trigger(job: str, *, reason: str | None = None) -> Call[Triggered]:
    """Run a job once, now."""
    return change("POST", path("jobs", job, "trigger"), as_model(Triggered), reason=reason)


def backfill(
    job: str,
    start: datetime | str,
    end: datetime | str,
    *,
    dry_run: bool = True,
    again: bool = False,
    limit: int | None = None,
    reason: str | None = None,
) -> Call[Backfill]:
    """Run what the schedule had from `start` to before `end` and never ran; by default a dry run."""
    body = without_none(start=start, end=end, dry_run=dry_run, again=again, limit=limit)
    return change("POST", path("jobs", job, "backfill"), as_model(Backfill), body, reason=reason)


def explain(job: str, at: datetime | str) -> Call[Explanation]:
    """Why a job ran, or did not run, at an instant."""
    return _get(Explanation, path("jobs", job, "explain"), at=at)


def runs(job: str) -> Listing[Run]:
    """Runs of a job, newest first."""
    return Listing(Run, path("jobs", job, "runs"), ())


def _merged(given: Mapping[str, Any] | None, fields: Mapping[str, Any]) -> dict[str, Any]:
    return {**(given or {}), **fields}
