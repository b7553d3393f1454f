"""Why a job ran, or did not run, at an instant: one verdict, a sentence, the times, and the runs there were.

Asked in this order; the first answer that is known is the verdict:

    a run           its status, and of a failed one when the next attempt is due
    a timer         `scheduled` before it is due, `queued` after
    parents         of a job that waits for others: `waiting`, `skipped`, or `queued` once released
    the job         `deleted`, `completed`
    the schedule    `not_due`: it has no occurrence there; `before_start`, `after_end`
    ownership       `before_valid_from`: the job did not exist, was another one, or was resumed later
    a gap           `missed`: nobody led the shard, and the policy gave it up
    the mark        `scheduled`: its second has not been published yet
    a pause         `paused`
    the books       `queued`: of that second more was published than workers have taken
    nothing         `unknown`: no trace is left. Runs are kept for thirty days

An instant on a whole second means that second: triggers have instants inside it, and are found too.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, NamedTuple

import asyncpg

from mainspring.api import shapes
from mainspring.api.access import Caller
from mainspring.registry import Job, Run, values
from mainspring.registry.edge import Connection, connected
from mainspring.schema.errors import NotFound
from mainspring.schema.ids import parse_job_id
from mainspring.schema.queries import query
from mainspring.schema.states import JobKind, JobStatus

_TICK = timedelta(microseconds=1)
_SECOND = timedelta(seconds=1)
_SENTENCES = {
    "running": "it is running",
    "succeeded": "it ran and succeeded",
    "failed": "it ran and failed; another attempt follows",
    "dead": "it failed, and no attempt is left: see its dead letter",
    "cancelled": "it was cancelled",
    "lost": "its worker died; another attempt follows",
    "skipped": "it was skipped: another run of the job was under way",
    "recalled": "it was recalled: the job was paused or deleted when a worker took it",
    "missed": "it was missed: too late by the job's missed-window policy",
}


class Verdict(NamedTuple):
    """What is answered, without the runs."""

    word: str
    text: str
    facts: dict[str, Any]


class _Evidence(NamedTuple):
    """What the database knows of the instant."""

    runs: list[Run]
    timers: list[asyncpg.Record]
    traces: asyncpg.Record


async def explain(caller: Caller, id_or_name: str, at: datetime) -> dict[str, Any]:
    """At most five statements."""
    registry = caller.services.registry
    try:
        job = await registry.find(caller.tenant_id, id_or_name)
    except NotFound:
        return await _explain_gone(caller, id_or_name, at)
    async with connected(caller.services.pool) as connection:
        due = at if job.schedule is None else job.schedule.due(job.id, at)
        evidence = await _gather(connection, job, at, due)
    return _answer(job.job_id, at, judge(job, at, due, evidence), evidence.runs)


async def _gather(connection: Connection, job: Job, at: datetime, due: datetime) -> _Evidence:
    runs = await connection.fetch(query("runs_at"), job.id, at, _end(at))
    timers = await connection.fetch(query("timers_at"), job.id, at, _end(at))
    traces = await connection.fetchrow(query("traces_at"), job.id, job.shard, at, due, job.cadence_id)
    assert traces is not None
    return _Evidence([Run(*row) for row in runs], list(timers), traces)


async def _explain_gone(caller: Caller, id_or_name: str, at: datetime) -> dict[str, Any]:
    """A deleted job is found by its id, and its history with it."""
    if not values.is_job_id(id_or_name):
        raise NotFound("job", ascii(id_or_name[:200]))
    job_id = parse_job_id(id_or_name)
    async with connected(caller.services.pool) as connection:
        row = await connection.fetchrow(query("gone_job"), caller.tenant_id, job_id)
        if row is None:
            raise NotFound("job", id_or_name)
        runs = [Run(*each) for each in await connection.fetch(query("runs_at"), job_id, at, _end(at))]
    facts = {"closed_at": shapes.instant(row["closed_at"])}
    verdict = Verdict("deleted", f"the job is deleted, since {facts['closed_at']}", facts)
    return _answer(id_or_name, at, _of_run(runs[-1], None, facts) if runs else verdict, runs)


def judge(job: Job, at: datetime, due: datetime, evidence: _Evidence) -> Verdict:
    """The first rule that has an answer."""
    traces = evidence.traces
    facts = {
        "due_at": shapes.text_of(due),
        "valid_from": shapes.text_of(job.valid_from),
        "shard": job.shard,
        "mark": shapes.text_of(traces["fired_through"]),
        "now": shapes.text_of(traces["now"]),
        "cancel_requested_at": shapes.instant(traces["cancelled_at"]),
        "dead_letter": traces["letter"],
    }
    if evidence.runs:
        timer = evidence.timers[-1] if evidence.timers else None
        return _of_run(evidence.runs[-1], timer, facts)
    if evidence.timers:
        return _of_timer(evidence.timers[-1], traces["now"], facts)
    if job.kind is JobKind.AFTER:
        return _of_parents(job, traces, facts)
    return _of_schedule(job, at, facts) or _of_shard(job, due, traces, facts)


def _of_run(run: Run, timer: asyncpg.Record | None, facts: dict[str, Any]) -> Verdict:
    facts = facts | {
        "claimed_at": shapes.instant(run.claimed_at),
        "started_at": shapes.instant(run.started_at),
        "finished_at": shapes.instant(run.ended_at),
        "attempt": run.attempt,
        "next_attempt_at": None if timer is None else shapes.instant(timer["due_at"]),
    }
    text = _SENTENCES.get(run.status, f"it is {run.status}")
    return Verdict(run.status, text + (f" ({run.error[:200]})" if run.error else ""), facts)


def _of_timer(timer: asyncpg.Record, now: datetime, facts: dict[str, Any]) -> Verdict:
    facts = facts | {"due_at": shapes.text_of(timer["due_at"]), "cause": timer["cause"]}
    if timer["due_at"] > now:
        return Verdict("scheduled", f"it is due at {facts['due_at']} ({timer['cause']})", facts)
    return Verdict("queued", f"it was due at {facts['due_at']} and is on its way ({timer['cause']})", facts)


def _of_parents(job: Job, traces: asyncpg.Record, facts: dict[str, Any]) -> Verdict:
    arrived = len(traces["arrived"] or ())
    facts = facts | {"released_at": shapes.instant(traces["released_at"]), "parents_ended": arrived}
    if traces["released_at"] is None:
        word = "waiting" if arrived else "not_due"
        known = (
            f"{arrived} of its {len(job.definition.after)} parents have ended" if arrived else "no parent has"
        )
        return Verdict(word, f"it waits for its parents: {known} for that instant", facts)
    if traces["dependent_skipped"]:
        return Verdict("skipped", "a parent did not succeed, and its policy is to be skipped then", facts)
    return Verdict("queued", "its parents have released it, and it is on its way", facts)


def _of_schedule(job: Job, at: datetime, facts: dict[str, Any]) -> Verdict | None:
    """Why the schedule alone says no; None if it says yes."""
    schedule, definition = job.schedule, job.definition
    assert schedule is not None
    if schedule.cadence.next_after(at - _TICK) != at:
        following = schedule.cadence.next_after(at)
        next_at = shapes.instant(following)
        text = "its schedule has no occurrence there" + (f"; the next one is {next_at}" if next_at else "")
        return Verdict("not_due", text, facts | {"next_at": next_at})
    if definition.starts_at is not None and at < definition.starts_at:
        starts_at = shapes.text_of(definition.starts_at)
        return Verdict("before_start", f"the job starts at {starts_at}", facts | {"starts_at": starts_at})
    if definition.ends_at is not None and at >= definition.ends_at:
        ends_at = shapes.text_of(definition.ends_at)
        return Verdict("after_end", f"the job ended at {ends_at}", facts | {"ends_at": ends_at})
    if at <= job.valid_from and job.kind is not JobKind.AT:
        text = f"the job was created, rescheduled or resumed at {facts['valid_from']}, and owns what is after"
        return Verdict("before_valid_from", text, facts)
    if job.status is JobStatus.COMPLETED:
        return Verdict("completed", "the job has run and is completed", facts)
    return None


def _of_shard(job: Job, due: datetime, traces: asyncpg.Record, facts: dict[str, Any]) -> Verdict:
    """The schedule says yes: what the shard made of it."""
    if traces["gap_from"] is not None:
        gap_from = shapes.instant(traces["gap_from"])
        text = f"nobody fired its shard from {gap_from} on, and the missed-window policy gave it up"
        return Verdict("missed", text, facts | {"gap_from": gap_from})
    if job.status is JobStatus.PAUSED:
        paused = facts | {
            "paused_at": shapes.instant(job.updated_at),
            "paused_reason": job.paused_reason,
            "resume_at": shapes.instant(job.resume_at),
        }
        return Verdict("paused", f"the job is paused ({job.paused_reason or 'no reason given'})", paused)
    if due > traces["fired_through"]:
        behind = "" if due > traces["now"] else f"; its shard has only fired through {facts['mark']}"
        return Verdict("scheduled", f"it is due at {facts['due_at']}{behind}", facts)
    if traces["is_short"]:
        return Verdict("queued", "it was published, and no worker has taken it yet", facts)
    return Verdict("unknown", "there is no trace of it: runs are kept for thirty days", facts)


def _answer(job_id: str, at: datetime, verdict: Verdict, runs: list[Run]) -> dict[str, Any]:
    return {
        "job_id": job_id,
        "at": shapes.text_of(at),
        "verdict": verdict.word,
        "text": verdict.text,
        "facts": verdict.facts,
        "runs": [shapes.run(run) for run in runs],
    }


def _end(at: datetime) -> datetime:
    return at + (_TICK if at.microsecond else _SECOND)
