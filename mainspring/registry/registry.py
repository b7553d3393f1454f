"""The registry: every change to a job, each one transaction, for the API, the command line and tests alike.

A change locks the job's row, reads it, decides, and writes. What it writes always carries a new `version`
(in the row and in the job's ready bytes), `updated_at`, and `changed`, which the database sets itself and
by which leaders and workers hear of it. `valid_from` moves only when the job was created, its schedule
became another one, or it was resumed: what came before is then not the job's, and nothing else may lose an
occurrence.

A change that changes nothing writes nothing. Cadence rows are made in a transaction of their own, before
(see `cadences`); a transaction that finds one missing ends, and begins again when it is there. So does one
that met a deadlock or lost a race which the next try will win; each try is a whole transaction.

Times are Postgres's. Every statement is scoped by the tenant: another tenant's job does not exist here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

from mainspring.registry import values
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
from mainspring.schema.errors import (
    Contended,
    InvalidInput,
    NameTaken,
    NotFound,
    VersionMismatch,
    WrongStatus,
)
from mainspring.schema.ids import JobIds, RunKey, format_job_id, parse_job_id
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

    async def create(self, tenant_id: int, request: JobRequest) -> Job:
        """A new job: two statements, three for an `at`, four for one that waits for others."""
        job_id = self._ids.take()

        async def work(connection: Connection) -> Job:
            return await self._store.insert(connection, tenant_id, job_id, request)

        return await self._change(tenant_id, work, _names(request.name))

    async def create_many(self, tenant_id: int, requests: Sequence[JobRequest]) -> list[int]:
        """New jobs, all or none: one COPY, and one more each if some are `at` or wait for others."""
        names = refuse_repeated_names(requests)
        ids = self._ids.take_many(len(requests))

        async def work(connection: Connection) -> None:
            await self._store.insert_many(connection, tenant_id, ids, requests)

        if requests:
            await self._change(tenant_id, work, names)
        return list(ids)

    async def put(self, tenant_id: int, request: JobRequest) -> tuple[Job, bool]:
        """Create the job of this name or make it what the request says; True if it was created.

        Costs what a create costs and one statement, or what an edit costs. The job keeps its id, and stays
        paused if it is.
        """
        name, job_id = request.name, self._ids.take()
        if name is None:
            raise InvalidInput("name", "is missing; a job is created or replaced by its name")

        async def work(connection: Connection) -> tuple[Job, bool]:
            await self._lock_if(connection, tenant_id, request.after)
            job = await self._store.lock_name(connection, tenant_id, name)
            if job is None:
                return await self._store.insert(connection, tenant_id, job_id, request), True
            return await self._store.replace(connection, job, request), False

        return await self._change(tenant_id, work)

    async def edit(
        self,
        tenant_id: int,
        job_id: int,
        changes: Mapping[str, Any],
        *,
        expected_version: int | None = None,
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
            return await self._store.replace(connection, job, job.definition.with_changes(given))

        return await self._change(tenant_id, work, _names(given.get("name")))

    async def pause(
        self, tenant_id: int, job_id: int, *, reason: str | None = None, until: datetime | None = None
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
            if job.status is JobStatus.COMPLETED:
                raise WrongStatus("pause", job.status, "it has run")
            if until is not None and until <= job.read_at:
                raise InvalidInput("until", "is not in the future")
            if job.status is JobStatus.PAUSED and (job.paused_reason, job.resume_at) == (reason, until):
                return job
            body = _next_body(job)
            await connection.execute(query("pause_job"), tenant_id, job_id, body, reason, until)
            return await self._store.read(connection, tenant_id, job_id)

        return await self._change(tenant_id, work)

    async def resume(self, tenant_id: int, job_id: int) -> Job:
        """Fire again, from now on; nothing for a job that is active. Five statements, six for an `at`."""

        async def work(connection: Connection) -> Job:
            job = await self._store.lock(connection, tenant_id, job_id)
            if job.status is JobStatus.COMPLETED:
                raise WrongStatus("resume", job.status, "it has run; give it another instant")
            if job.status is JobStatus.ACTIVE:
                return job
            await connection.execute(query("resume_job"), tenant_id, job_id, _next_body(job))
            await revive_timers(connection, job)
            return await self._store.read(connection, tenant_id, job_id)

        return await self._change(tenant_id, work)

    async def delete(self, tenant_id: int, job_id: int) -> None:
        """Leave a tombstone, without timers and dependencies; the name is free at once. Three statements.

        Jobs that waited for it wait for it no longer. The job is not read: one whose time zone has left the
        pinned database can still be deleted.
        """

        async def work(connection: Connection) -> None:
            if await connection.fetchval(query("delete_job"), tenant_id, job_id) is None:
                raise NotFound("job", format_job_id(job_id))
            await connection.execute(query("delete_timers_of_job"), job_id)
            await connection.execute(query("delete_dependencies"), job_id)

        await self._change(tenant_id, work)

    async def trigger(self, tenant_id: int, job_id: int) -> RunKey:
        """Run the job once, now, whatever its schedule says: two statements.

        The run's instant is the moment itself by Postgres's clock, never a whole second, and no two triggers
        of a job share one.
        """

        async def work(connection: Connection) -> RunKey:
            row = await connection.fetchrow(query("job_to_trigger"), tenant_id, job_id)
            if row is None:
                raise NotFound("job", format_job_id(job_id))
            if row["status"] != JobStatus.ACTIVE:
                raise WrongStatus("trigger", row["status"], row["paused_reason"])
            scheduled_at = await connection.fetchval(query("insert_trigger"), row["shard"], job_id)
            if scheduled_at is None:  # another trigger has this microsecond
                raise Repeat
            return RunKey(job_id, scheduled_at, attempt=1)

        return await self._change(tenant_id, work)

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

    async def _lock_if(self, connection: Connection, tenant_id: int, parents: Any) -> None:
        """Before any row is locked: a change that may add parents waits for the others that do."""
        if parents:
            await lock_dependencies(connection, tenant_id)

    async def _change(
        self,
        tenant_id: int,
        work: Callable[[Connection], Awaitable[_Result]],
        names: Sequence[str] = (),
    ) -> _Result:
        """Do the work in one transaction, again if it met what passes; `names` must be free."""
        wanted: Mapping[CadenceKey, int] = {}
        for _ in range(_ATTEMPTS):
            try:
                if wanted:
                    await self._cadences.ensure(wanted)
                    wanted = {}
                async with transaction(self._pool) as connection:
                    return await work(connection)
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


def _next_body(job: Job) -> bytes:
    """The job's ready bytes with the version that this change gives it."""
    return job.definition.body(job.id, job.tenant_id, job.version + 1)
