"""Runs as their owners see them: what happened, what to stop, what to make up for.

**Cancelling** is a request: a row in `cancellations` that makes two requests one. The worker that has the
run stops it, and one that claims it later records it as `cancelled` without executing it; so a run that
still waits as a timer is made due at once. Whoever ends the run first wins: a run may succeed although its
cancellation was accepted a moment before.

A run that has left for Kafka and that no worker has claimed has no row anywhere. It is taken to be queued
if the job can have it: an occurrence of its schedule on a day that runs are kept of, the attempt after one
that failed, a released dependent, a trigger.

**Backfill** makes up for occurrences that have neither run nor timer. Made again, it finds its own timers
and runs and does nothing.

Every call is scoped by the tenant. Nothing here is done by halves: each change is one transaction, after
the days it needs have been made.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from typing import TypeVar, cast

import asyncpg

from mainspring.registry import values
from mainspring.registry.audit import Actor, permit, record
from mainspring.registry.edge import Connection, Pool, Repeat, connected, transaction
from mainspring.registry.job import Job
from mainspring.schedule import format_instant
from mainspring.schema.errors import Contended, InvalidInput, NotFound, RunEnded, WrongStatus
from mainspring.schema.ids import RunKey, format_job_id, format_run_id
from mainspring.schema.partitions import ensure_days, list_days
from mainspring.schema.queries import query
from mainspring.schema.sharding import check_shards, shard_of
from mainspring.schema.states import RECURRING, JobKind, JobStatus, LogLevel, State

LONGEST_REASON = 500
LARGEST_PAGE = 1000
LARGEST_BACKFILL = 10_000

_ATTEMPTS = 10
_TICK = timedelta(microseconds=1)
_RUNNING = "running"
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class Run:
    """One attempt at an occurrence, as `run_history` has it."""

    job_id: int
    scheduled_at: datetime
    attempt: int
    status: str
    worker_id: str
    claimed_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    error: str | None
    result: str | None
    """What the handler returned, as JSON."""

    @property
    def key(self) -> RunKey:
        return RunKey(self.job_id, self.scheduled_at, self.attempt)

    @property
    def run_id(self) -> str:
        """The id as people and the API see it."""
        return format_run_id(self.key)


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line that a run logged."""

    line: int
    at: datetime
    level: LogLevel
    message: str


@dataclass(frozen=True, slots=True)
class Cancellation:
    """A request to cancel a run, and where the run was when it was made."""

    key: RunKey
    state: State
    reason: str | None
    requested_at: datetime


class Runs:
    """What may be asked of runs."""

    def __init__(self, pool: Pool, shards: int) -> None:
        self._pool = pool
        self._shards = check_shards(shards)

    async def get(self, tenant_id: int, job_id: int, scheduled_at: datetime, attempt: int) -> Run:
        """One run that a worker has claimed: one statement."""
        key, run_id = _key(job_id, scheduled_at, attempt)
        async with connected(self._pool) as connection:
            row = await connection.fetchrow(query("run_by_key"), tenant_id, *key)
        if row is None:
            raise NotFound("run", run_id)
        return Run(*row)

    async def list(
        self, tenant_id: int, job_id: int, limit: int = 100, before: RunKey | None = None
    ) -> tuple[Run, ...]:
        """The job's runs, newest first, from before the last one of the page before: two statements."""
        check_limit(limit, LARGEST_PAGE)
        bounds = (None, None) if before is None else (before.scheduled_at, before.attempt)
        async with connected(self._pool) as connection:
            await _find_job(connection, tenant_id, job_id)
            rows = await connection.fetch(query("runs_of_job"), job_id, *bounds, limit)
        return tuple(Run(*row) for row in rows)

    async def logs(
        self,
        tenant_id: int,
        job_id: int,
        scheduled_at: datetime,
        attempt: int,
        limit: int = LARGEST_PAGE,
        after_line: int = -1,
    ) -> tuple[LogLine, ...]:
        """What the run logged, in order, after the last line of the page before: two statements."""
        check_limit(limit, LARGEST_PAGE)
        key, _ = _key(job_id, scheduled_at, attempt)
        async with connected(self._pool) as connection:
            await _find_job(connection, tenant_id, job_id)
            rows = await connection.fetch(query("lines_of_run"), *key, after_line, limit)
        return tuple(LogLine(line, at, LogLevel(level), message) for line, at, level, message in rows)

    async def cancel(
        self,
        tenant_id: int,
        job_id: int,
        scheduled_at: datetime,
        attempt: int,
        reason: str | None = None,
        *,
        by: Actor | None = None,
    ) -> Cancellation:
        """Ask for a run to be stopped, or not to be started; again, and it is still one request.

        Three statements, four for one that waits as a timer, five for one that is known only by its schedule.
        """
        key, run_id = _key(job_id, scheduled_at, attempt)
        if reason is not None:
            values.check_text("reason", reason, LONGEST_REASON)

        async def work(connection: Connection) -> Cancellation:
            row = await connection.fetchrow(query("run_to_cancel"), tenant_id, *key)
            state = None if row is None else await _state(connection, tenant_id, key, row)
            if state is None:
                raise NotFound("run", run_id)
            if by is not None:
                by.permit(await connection.fetchval(query("handler_of_job"), tenant_id, job_id))
            await connection.execute(query("request_cancellation"), *key, reason)
            if row is not None and row["due_at"] is not None:
                await connection.execute(query("make_due"), [job_id], [scheduled_at], [attempt])
            written = await connection.fetchrow(query("read_cancellation"), *key)
            if written is None:  # collected in this very moment
                raise Repeat
            after = {"state": state.value, "reason": reason}
            await record(connection, tenant_id, by, "cancel", run_id, after=after)
            return Cancellation(key, state, *written)

        return await change(self._pool, "this run", work, by)

    async def preview_backfill(
        self,
        tenant_id: int,
        job_id: int,
        start: datetime,
        end: datetime,
        limit: int = LARGEST_PAGE,
        *,
        again: bool = False,
    ) -> Sequence[datetime]:
        """What a backfill would run now: two statements."""
        check_limit(limit, LARGEST_BACKFILL)
        async with connected(self._pool) as connection:
            job = await _read_job(connection, tenant_id, job_id)
            if job.status is not JobStatus.ACTIVE:
                raise WrongStatus("backfill", job.status, job.paused_reason)
            instants = _occurrences(job, start, end, limit)
            rows = await connection.fetch(query("missing_occurrences"), job_id, instants, again)
        return [row["instant"] for row in rows]

    async def backfill(
        self,
        tenant_id: int,
        job_id: int,
        start: datetime,
        end: datetime,
        limit: int = LARGEST_PAGE,
        *,
        again: bool = False,
        by: Actor | None = None,
    ) -> int:
        """Run what the schedule has in [start, end) and what never ran; how many timers were made.

        `valid_from` does not bind: the owner asks for what was before. Four statements, and the making of
        days that are missing. Refused if there are more occurrences than `limit`, or `end` is in the future.
        `again` also repeats, as the next attempt, what has ended; never what is under way.
        """
        check_limit(limit, LARGEST_BACKFILL)
        async with connected(self._pool) as connection:
            instants = _occurrences(await _read_job(connection, tenant_id, job_id), start, end, limit)
            await make_days(connection, {instant.date() for instant in instants})

        async def work(connection: Connection) -> int:
            job = await connection.fetchrow(query("job_to_trigger"), tenant_id, job_id)
            if job is None:
                raise NotFound("job", format_job_id(job_id))
            permit(by, job["handler"])
            if job["status"] != JobStatus.ACTIVE:
                raise WrongStatus("backfill", job["status"], job["paused_reason"])
            shard = shard_of(job_id, self._shards)
            done = await connection.execute(query("insert_backfill"), shard, job_id, instants, again)
            count = int(done.rpartition(" ")[2])
            after = {
                "start": format_instant(start),
                "end": format_instant(end),
                "again": again,
                "runs": count,
            }
            await record(connection, tenant_id, by, "backfill", format_job_id(job_id), after=after)
            return count

        return await change(self._pool, "this job", work, by)


async def change(
    pool: Pool, what: str, work: Callable[[Connection], Awaitable[_Result]], by: Actor | None = None
) -> _Result:
    """Do the work in one transaction, again if it met what passes."""
    for _ in range(_ATTEMPTS):
        try:
            async with transaction(pool) as connection:
                result = await work(connection)
                if by is not None:
                    await by.testify(connection, result)
                return result
        except Repeat:
            pass
    raise Contended(what)


async def make_days(connection: Connection, days: Collection[date]) -> None:
    """Make the days that are missing; not inside a transaction, and before the one that needs them."""
    await ensure_days(_direct(connection), days)


def check_limit(limit: int, largest: int) -> None:
    """Nobody asks for everything at once."""
    if not 1 <= limit <= largest:
        raise InvalidInput("limit", f"{limit} is not in 1–{largest}")


def _direct(connection: Connection) -> asyncpg.Connection[asyncpg.Record]:
    """A pool's connection can do all that one of our own can; only the driver's types do not say so."""
    return cast("asyncpg.Connection[asyncpg.Record]", connection)


async def _read_job(connection: Connection, tenant_id: int, job_id: int) -> Job:
    row = await connection.fetchrow(query("read_job"), tenant_id, job_id, None)
    if row is None:
        raise NotFound("job", format_job_id(job_id))
    return Job.from_row(row)


async def _find_job(connection: Connection, tenant_id: int, job_id: int) -> None:
    if await connection.fetchval(query("job_of_tenant"), tenant_id, job_id) is None:
        raise NotFound("job", format_job_id(job_id))


async def _state(connection: Connection, tenant_id: int, key: RunKey, known: asyncpg.Record) -> State | None:
    """Where a run is that may be cancelled; None if there is no such run, RunEnded if there was."""
    if known["outcome"] is not None:
        if known["outcome"] != _RUNNING:
            raise RunEnded("cancel", known["outcome"])
        return State.RUNNING
    if known["due_at"] is not None:
        return State.SCHEDULED
    if key.attempt > 1:
        return State.QUEUED if known["is_next"] else None
    if known["arrival"] is not None:
        return {"waiting": State.WAITING, "released": State.QUEUED}.get(known["arrival"])
    row = await connection.fetchrow(query("read_job"), tenant_id, key.job_id, None)
    if row is None or key.scheduled_at.date() not in await list_days(_direct(connection)):
        return None
    return _expected(Job.from_row(row), key.scheduled_at)


def _expected(job: Job, scheduled_at: datetime) -> State | None:
    """Where a first attempt that has left no trace must be; None if the job cannot have it."""
    if scheduled_at.microsecond:  # a trigger
        return State.QUEUED if job.created_at < scheduled_at <= job.read_at else None
    if job.schedule is None or job.status is JobStatus.COMPLETED:
        return None
    if job.kind is JobKind.AT:
        return State.QUEUED if scheduled_at == job.definition.run_at else None
    schedule = replace(job.schedule, valid_from=None)
    if schedule.between(scheduled_at - _TICK, scheduled_at, 1) != [scheduled_at]:
        return None
    return State.QUEUED if schedule.due(job.id, scheduled_at) <= job.read_at else State.SCHEDULED


def _occurrences(job: Job, start: datetime, end: datetime, limit: int) -> list[datetime]:
    """What the job's schedule has in [start, end), whatever its `valid_from`."""
    for name, instant in (("start", start), ("end", end)):
        if instant.utcoffset() is None:
            raise InvalidInput(name, "needs an offset or Z")
    if end <= start:
        raise InvalidInput("end", "is not after start")
    if end > job.read_at:
        raise InvalidInput("end", "is in the future: what is still to come runs by itself")
    if job.schedule is None or job.kind not in RECURRING:
        raise InvalidInput(
            "job_id", f"only a recurring schedule can be backfilled, and this job is `{job.kind}`"
        )
    instants = replace(job.schedule, valid_from=None).between(start - _TICK, end - _TICK, limit + 1)
    if len(instants) > limit:
        raise InvalidInput("end", f"there are more than {limit} occurrences before it; take a shorter range")
    return instants


def _key(job_id: int, scheduled_at: datetime, attempt: int) -> tuple[RunKey, str]:
    """The key and its text, which exists only for a key that a run can have."""
    if scheduled_at.utcoffset() is None:
        raise InvalidInput("scheduled_at", "needs an offset or Z")
    key = RunKey(job_id, scheduled_at.astimezone(UTC), attempt)
    return key, format_run_id(key)
