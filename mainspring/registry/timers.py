"""Timers that a change to a job makes, moves or removes.

A job of kind `at` has no cadence; its instant is a row in `timers`, due at the instant and its jitter. When
the job gets another instant the row is replaced, together with retries of the old one; what somebody asked
for by hand (a trigger, a backfill, a redrive) stays. A message that has left already runs all the same: an
edit never loses an occurrence.

Pausing leaves timers where they are, since the leader fires none of a job that is not active. Resuming
makes those that came due meanwhile due now, because time spent paused is not missed, and looks after the
one instant of an `at`: if its run was born `recalled`, because its message was under way when the job was
paused, the next attempt is made at once. That look must not come too early: whoever records a run as
recalled has to hold the job's row (FOR SHARE) and see it paused or deleted in the same transaction, so that
a resume, which locks the row first, either comes before and the run is executed, or after and finds it.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from mainspring.registry.definition import JobRequest
from mainspring.registry.edge import Connection
from mainspring.registry.job import Job
from mainspring.schedule import jitter_offset
from mainspring.schema.queries import query


def due_of(job_id: int, definition: JobRequest, run_at: datetime) -> datetime:
    """When an `at` is to start."""
    jitter = timedelta(seconds=definition.jitter_seconds)
    return run_at + jitter_offset(job_id, jitter, run_at, following=None)


async def insert_one_off(connection: Connection, job_id: int, shard: int, definition: JobRequest) -> None:
    """The timer of an `at`, with the attempt after the last if the instant had runs before; else nothing."""
    run_at = definition.run_at
    if run_at is not None:
        due_at = due_of(job_id, definition, run_at)
        await connection.execute(query("insert_one_off"), shard, due_at, job_id, run_at)


async def replace_one_off(connection: Connection, job: Job, definition: JobRequest) -> None:
    """Follow an edit of an `at`, into one or out of one: at most two statements."""
    was, becomes = job.definition.run_at, definition.run_at
    if was != becomes:
        if was is not None:
            await connection.execute(query("delete_one_off"), job.id, was)
        await insert_one_off(connection, job.id, job.shard, definition)
    elif becomes is not None and definition.jitter_seconds != job.definition.jitter_seconds:
        due_at = due_of(job.id, definition, becomes)
        await connection.execute(query("move_one_off"), job.id, becomes, due_at)


async def revive_timers(connection: Connection, job: Job) -> None:
    """What a resume does to timers: one statement, two for an `at`."""
    await connection.execute(query("refresh_timers"), job.id)
    run_at = job.definition.run_at
    if run_at is not None:
        await connection.execute(query("repeat_recalled"), job.shard, job.id, run_at)
