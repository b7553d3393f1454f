"""The registry: every change to a job, each one transaction, for the API, the command line and tests alike.

A change locks the job's row, reads it, decides, and writes. What it writes always carries a new `version`
(in the row and in the job's ready bytes), `updated_at`, and `changed`, which the database sets itself and
by which leaders and workers hear of it. `valid_from` moves only when the job was created, its schedule
became another one, or it was resumed: what came before is then not the job's, and nothing else may lose an
occurrence.

A change that changes nothing writes nothing. Cadence rows are made in a transaction of their own, before
(see `cadences`); a transaction that finds one missing ends, and begins again when it is there. So does one
that met a deadlock or lost a race which the next try will win; each try is a whole transaction.

A change made `by` somebody is one that he may make, is within the tenant's quota, and leaves an audit row,
in the same transaction (see `audit`): one or two statements more than the methods say.

Times are Postgres's. Every statement is scoped by the tenant: another tenant's job does not exist here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

from mainspring.registry import values
from mainspring.registry.audit import Actor, differences, permit, record, take_room
from mainspring.registry.bulk import refuse_repeated_names
from mainspring.registry.cadences import CadenceKey, Cadences, CadenceWanted
from mainspring.registry.definition import JobRequest
from mainspring.registry.dependencies import lock_dependencies
from mainspring.registry.edge import (
    CadenceGone,
    Connection,
    NameExists,
    Pool,
    Repeat,
    connected,
    transaction,
)
from mainspring.registry.job import Job
from mainspring.registry.store import JobStore
from mainspring.registry.timers import revive_timers
from mainspring.schedule import format_instant
from mainspring.schema.errors import (
    Contended,
    InvalidInput,
    NameTaken,
    NotFound,
    VersionMismatch,
    WrongStatus,
)
from mainspring.schema.ids import JobIds, RunKey, format_job_id, format_run_id, parse_job_id
from mainspring.schema.queries import query
from mainspring.schema.states import JobStatus

LONGEST_REASON = 500

_ATTEMPTS = 10
_Result = TypeVar("_Result")


class Registry:
    """What may be done to jobs."""

    def __init__(self, pool: Pool, *, shards: int) -> None:
        self._pool = pool
        self._ids = JobIds()
        self._cadences = Cadences(pool)
        self._store = JobStore(self._cadences, shards)

    async def create(self, tenant_id: int, request: JobRequest, *, by: Actor | None = None) -> Job:
        """A new job: two statements, three for an `at`, four for one that waits for others."""
        permit(by, request.handler)
        job_id = self._ids.take()

        async def work(connection: Connection) -> Job:
            return await self._insert(connection, tenant_id, job_id, request, by)

        return await self._change(tenant_id, work, _names(request.name), by)

    async def create_many(
        self, tenant_id: int, requests: Sequence[JobRequest], *, by: Actor | None = None
    ) -> list[int]:
        """New jobs, all or none: one COPY, and one more each if some are `at` or wait for others.

        Their ids are consecutive, in the order of the requests; the batch leaves one audit row.
        """
        permit(by, *{request.handler for request in requests})
        names = refuse_repeated_names(requests)
        ids = self._ids.take_many(len(requests))

        async def work(connection: Connection) -> range:
            await take_room(connection, tenant_id, by, len(ids))
            await self._store.insert_many(connection, tenant_id, ids, requests)
            batch = {"count": len(ids), "first": format_job_id(ids[0]), "last": format_job_id(ids[-1])}
            await record(connection, tenant_id, by, "create_many", format_job_id(ids[0]), after=batch)
            return ids

        if requests:
            await self._change(tenant_id, work, names, by)
        return list(ids)

    async def put(self, tenant_id: int, request: JobRequest, *, by: Actor | None = None) -> tuple[Job, bool]:
        """Create the job of this name or make it what the request says; True if it was created.

        Costs what a create costs and one statement, or what an edit costs. The job keeps its id, and stays
        paused if it is.
        """
        permit(by, request.handler)
        name, job_id = request.name, self._ids.take()
        if name is None:
            raise InvalidInput("name", "is missing; a job is created or replaced by its name")

        async def work(connection: Connection) -> tuple[Job, bool]:
            await self._lock_if(connection, tenant_id, request.after)
            job = await self._store.lock_name(connection, tenant_id, name)
            if job is None:
                return await self._insert(connection, tenant_id, job_id, request, by), True
            return await self._replace(connection, job, request, "replace", by), False

        return await self._change(tenant_id, work, by=by)

    async def edit(
        self,
        tenant_id: int,
        job_id: int,
        changes: Mapping[str, Any],
        *,
        expected_version: int | None = None,
        by: Actor | None = None,
    ) -> Job:
        """Change some fields; `null` means the default. Refused if the job is not at `expected_version`.

        Four statements, two when nothing changes; an `at` up to two more, another set of parents five more.
        """
        given = values.read_object("changes", changes)

        async def work(connection: Connection) -> Job:
            await self._lock_if(connection, tenant_id, given.get("after"))
            job = await self._store.lock(connection, tenant_id, job_id)
            if expected_version is not None and expected_version != job.version:
                raise VersionMismatch(expected=expected_version, actual=job.version)
            return await self._replace(connection, job, job.definition.with_changes(given), "edit", by)

        return await self._change(tenant_id, work, _names(given.get("name")), by)

    async def pause(
        self,
        tenant_id: int,
        job_id: int,
        *,
        reason: str | None = None,
        until: datetime | None = None,
        by: Actor | None = None,
    ) -> Job:
        """Stop firing until resumed, or until an instant; again with other words changes only those.

        Four statements. Timers stay as they are.
        """
        if reason is not None:
            values.check_text("reason", reason, LONGEST_REASON)
        if until is not None and until.utcoffset() is None:
            raise InvalidInput("until", "needs an offset or Z")

        async def work(connection: Connection) -> Job:
            job = await self._store.lock(connection, tenant_id, job_id)
            permit(by, job.definition.handler)
            if job.status is JobStatus.COMPLETED:
                raise WrongStatus("pause", job.status, "it has run")
            if until is not None and until <= job.read_at:
                raise InvalidInput("until", "is not in the future")
            if job.status is JobStatus.PAUSED and (job.paused_reason, job.resume_at) == (reason, until):
                return job
            body = _next_body(job)
            await connection.execute(query("pause_job"), tenant_id, job_id, body, reason, until)
            paused = await self._store.read(connection, tenant_id, job_id)
            await record(connection, tenant_id, by, "pause", job.job_id, _pause(job), _pause(paused))
            return paused

        return await self._change(tenant_id, work, by=by)

    async def resume(self, tenant_id: int, job_id: int, *, by: Actor | None = None) -> Job:
        """Fire again, from now on; nothing for a job that is active. Five statements, six for an `at`."""

        async def work(connection: Connection) -> Job:
            job = await self._store.lock(connection, tenant_id, job_id)
            permit(by, job.definition.handler)
            if job.status is JobStatus.COMPLETED:
                raise WrongStatus("resume", job.status, "it has run; give it another instant")
            if job.status is JobStatus.ACTIVE:
                return job
            await connection.execute(query("resume_job"), tenant_id, job_id, _next_body(job))
            await revive_timers(connection, job)
            resumed = await self._store.read(connection, tenant_id, job_id)
            await record(connection, tenant_id, by, "resume", job.job_id, _pause(job), _pause(resumed))
            return resumed

        return await self._change(tenant_id, work, by=by)

    async def delete(self, tenant_id: int, job_id: int, *, by: Actor | None = None) -> None:
        """Leave a tombstone, without timers and dependencies; the name is free at once. Three statements.

        Jobs that waited for it wait for it no longer. The job is not read: one whose time zone has left the
        pinned database can still be deleted.
        """

        async def work(connection: Connection) -> None:
            deleted = await connection.fetchrow(query("delete_job"), tenant_id, job_id)
            if deleted is None:
                raise NotFound("job", format_job_id(job_id))
            permit(by, deleted["handler"])
            await connection.execute(query("delete_timers_of_job"), job_id)
            await connection.execute(query("delete_dependencies"), job_id)
            await record(connection, tenant_id, by, "delete", format_job_id(job_id), dict(deleted))

        await self._change(tenant_id, work, by=by)

    async def trigger(self, tenant_id: int, job_id: int, *, by: Actor | None = None) -> RunKey:
        """Run the job once, now, whatever its schedule says: two statements.

        The run's instant is the moment itself by Postgres's clock, never a whole second, and no two triggers
        of a job share one.
        """

        async def work(connection: Connection) -> RunKey:
            row = await connection.fetchrow(query("job_to_trigger"), tenant_id, job_id)
            if row is None:
                raise NotFound("job", format_job_id(job_id))
            permit(by, row["handler"])
            if row["status"] != JobStatus.ACTIVE:
                raise WrongStatus("trigger", row["status"], row["paused_reason"])
            scheduled_at = await connection.fetchval(query("insert_trigger"), row["shard"], job_id)
            if scheduled_at is None:  # another trigger has this microsecond
                raise Repeat
            key = RunKey(job_id, scheduled_at, attempt=1)
            after = {"run_id": format_run_id(key)}
            await record(connection, tenant_id, by, "trigger", format_job_id(job_id), after=after)
            return key

        return await self._change(tenant_id, work, by=by)

    async def get(self, tenant_id: int, job_id: int) -> Job:
        """The job of this id: one statement."""
        async with connected(self._pool) as connection:
            return await self._store.read(connection, tenant_id, job_id)

    async def get_by_name(self, tenant_id: int, name: str) -> Job:
        """The job of this name: one statement, none for a name that no job can have."""
        if not values.is_name(name):
            raise NotFound("job", ascii(name))
        async with connected(self._pool) as connection:
            return await self._store.read(connection, tenant_id, name=name)

    async def find(self, tenant_id: int, id_or_name: str) -> Job:
        """The job of this id in its text form, or of this name: one statement."""
        if values.is_job_id(id_or_name):
            return await self.get(tenant_id, parse_job_id(id_or_name))
        return await self.get_by_name(tenant_id, id_or_name)

    async def _insert(
        self, connection: Connection, tenant_id: int, job_id: int, request: JobRequest, by: Actor | None
    ) -> Job:
        await take_room(connection, tenant_id, by, 1)
        if by is not None and by.examine is not None:
            await by.examine(connection, tenant_id, request)
        job = await self._store.insert(connection, tenant_id, job_id, request)
        if by is not None:
            await record(connection, tenant_id, by, "create", job.job_id, after=job.definition.as_mapping())
        return job

    async def _replace(
        self, connection: Connection, job: Job, request: JobRequest, action: str, by: Actor | None
    ) -> Job:
        permit(by, job.definition.handler, request.handler)
        if by is not None and by.examine is not None and _runs_another(job.definition, request):
            await by.examine(connection, job.tenant_id, request)
        replaced = await self._store.replace(connection, job, request)
        if by is not None and replaced.version != job.version:
            before, after = differences(job.definition.as_mapping(), replaced.definition.as_mapping())
            await record(connection, job.tenant_id, by, action, job.job_id, before, after)
        return replaced

    async def _lock_if(self, connection: Connection, tenant_id: int, parents: Any) -> None:
        """Before any row is locked: a change that may add parents waits for the others that do."""
        if parents:
            await lock_dependencies(connection, tenant_id)

    async def _change(
        self,
        tenant_id: int,
        work: Callable[[Connection], Awaitable[_Result]],
        names: Sequence[str] = (),
        by: Actor | None = None,
    ) -> _Result:
        """Do the work in one transaction, again if it met what passes; `names` must be free."""
        wanted: Mapping[CadenceKey, int] = {}
        for _ in range(_ATTEMPTS):
            try:
                if wanted:
                    await self._cadences.ensure(wanted)
                    wanted = {}
                async with transaction(self._pool) as connection:
                    result = await work(connection)
                    if by is not None:
                        await by.testify(connection, result)
                    return result
            except CadenceWanted as missing:
                wanted = missing.jitters
            except CadenceGone:
                self._cadences.forget()
            except NameExists as clash:
                await self._refuse_taken(tenant_id, names, clash)
            except Repeat:
                pass
        raise Contended("this job")

    async def _refuse_taken(self, tenant_id: int, names: Sequence[str], clash: NameExists) -> None:
        if names:
            async with connected(self._pool) as connection:
                rows = await connection.fetch(query("existing_names"), tenant_id, names)
            if rows:
                raise NameTaken(tuple(row["name"] for row in rows)) from clash


def _names(name: Any) -> tuple[str, ...]:
    return (name,) if isinstance(name, str) else ()


def _runs_another(before: JobRequest, after: JobRequest) -> bool:
    return (before.handler, before.payload_json) != (after.handler, after.payload_json)


def _pause(job: Job) -> dict[str, Any]:
    """What a pause or a resume changes, for the audit."""
    until = None if job.resume_at is None else format_instant(job.resume_at)
    return {"status": job.status.value, "paused_reason": job.paused_reason, "resume_at": until}


def _next_body(job: Job) -> bytes:
    """The job's ready bytes with the version that this change gives it."""
    return job.definition.body(job.id, job.tenant_id, job.version + 1)
