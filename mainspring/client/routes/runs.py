"""Runs, and the dead letters of those that have no attempt left."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from mainspring.client.core import Call, Listing, as_model, change, parameters, path, without_none
from mainspring.client.core import get as _get
from mainspring.client.models import (
    Cancellation,
    DeadLetter,
    DeadLetterDetail,
    DeadLetterKind,
    LogLine,
    Redrive,
    Redriven,
    RunDetail,
)


def get(run_id: str) -> Call[RunDetail]:
    """One run with its log and its progress; NotFound until a worker has taken it."""
    return _get(RunDetail, path("runs", run_id))


def log(run_id: str) -> Listing[LogLine]:
    """What a run's handler said."""
    return Listing(LogLine, path("runs", run_id, "log"), ())


def cancel(run_id: str, *, reason: str | None = None) -> Call[Cancellation]:
    """Ask for a run to be stopped, or not to be started; RunEnded if it has ended."""
    body = without_none(reason=reason)
    return change("POST", path("runs", run_id, "cancel"), as_model(Cancellation), body, reason=reason)


def get_letter(letter: int) -> Call[DeadLetterDetail]:
    """One dead letter with its traceback and payload."""
    return _get(DeadLetterDetail, path("dead-letters", letter))


def find_letters(
    *,
    fingerprint: str | None = None,
    handler: str | None = None,
    job: str | None = None,
    since: datetime | str | None = None,
    redriven: bool | None = None,
) -> Listing[DeadLetter]:
    """Dead letters that fit all of what is given, oldest first."""
    where = {"fingerprint": fingerprint, "handler": handler, "job": job, "since": since, "redriven": redriven}
    return Listing(DeadLetter, path("dead-letters"), parameters(where))


def summary() -> Listing[DeadLetterKind]:
    """Dead letters by fingerprint, the most frequent first."""
    return Listing(DeadLetterKind, path("dead-letters:summary"), ())


def redrive(letter: int, *, reason: str | None = None) -> Call[Redriven]:
    """Give a dead letter's run its next attempt, with a fresh budget of retries."""
    return change("POST", path("dead-letters", letter, "redrive"), as_model(Redriven), reason=reason)


def redrive_many(
    *,
    ids: Sequence[int] | None = None,
    fingerprint: str | None = None,
    handler: str | None = None,
    job: str | None = None,
    since: datetime | str | None = None,
    dry_run: bool = True,
    limit: int | None = None,
    reason: str | None = None,
) -> Call[Redrive]:
    """The same for some ids, or for what fits a filter; a dry run unless told otherwise."""
    body = without_none(
        ids=None if ids is None else list(ids),
        fingerprint=fingerprint,
        handler=handler,
        job=job,
        since=since,
        dry_run=dry_run,
        limit=limit,
    )
    return change("POST", path("dead-letters:redrive"), as_model(Redrive), body, reason=reason)
