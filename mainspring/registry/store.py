"""The rows of a job, read and written inside a transaction that somebody else began."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mainspring.registry.bulk import Batch
from mainspring.registry.cadences import CadenceKey, Cadences
from mainspring.registry.definition import JobRequest
from mainspring.registry.dependencies import add_parents, find_parents, refuse_cycle, replace_parents
from mainspring.registry.edge import Connection
from mainspring.registry.job import Job
from mainspring.registry.rows import to_row
from mainspring.registry.timers import insert_one_off, replace_one_off
from mainspring.schema.errors import NotFound
from mainspring.schema.ids import format_job_id
from mainspring.schema.queries import query
from mainspring.schema.sharding import check_shards, shard_of
from mainspring.schema.states import RECURRING


class JobStore:
    """Reads and writes whole jobs: the row, its timer, its parents."""

    def __init__(self, cadences: Cadences, shards: int) -> None:
        self._cadences = cadences
        self._shards = check_shards(shards)

    async def read(
        self, connection: Connection, tenant_id: int, job_id: int | None = None, name: str | None = None
    ) -> Job:
        """The job of this id or name, unless it is deleted: one statement."""
        row = await connection.fetchrow(query("read_job"), tenant_id, job_id, name)
        if row is None:
            raise NotFound("job", repr(name) if job_id is None else format_job_id(job_id))
        return Job.from_row(row)

    async def lock(self, connection: Connection, tenant_id: int, job_id: int) -> Job:
        """The same, with the row locked until the transaction ends: two statements."""
        await connection.fetchval(query("lock_job"), tenant_id, job_id, None)
        return await self.read(connection, tenant_id, job_id)

    async def lock_name(self, connection: Connection, tenant_id: int, name: str) -> Job | None:
        """The job of this name with its row locked, or None: two statements."""
        job_id = await connection.fetchval(query("lock_job"), tenant_id, None, name)
        return None if job_id is None else await self.read(connection, tenant_id, job_id)

    async def insert(self, connection: Connection, tenant_id: int, job_id: int, request: JobRequest) -> Job:
        """A new job: two statements, three for an `at`, four for one that waits for others."""
        shard = shard_of(job_id, self._shards)
        cadence_id = self._cadence_id(shard, request)
        parents = await self._find_parents(connection, tenant_id, request)
        await connection.execute(
            query("insert_job"), *to_row(job_id, tenant_id, shard, cadence_id, 1, request)
        )
        await insert_one_off(connection, job_id, shard, request)
        await add_parents(connection, job_id, parents)
        return await self.read(connection, tenant_id, job_id)

    async def insert_many(
        self, connection: Connection, tenant_id: int, ids: Sequence[int], requests: Sequence[JobRequest]
    ) -> None:
        """New jobs by COPY."""
        await Batch(tenant_id, ids, self._shards, requests).write(connection, self._cadences)

    async def replace(self, connection: Connection, job: Job, request: JobRequest) -> Job:
        """Make a locked job what the request says; a request that says what it is writes nothing.

        Two statements, up to two more for an `at`, up to five more for another set of parents.
        """
        before, parents = job.definition, None
        if request.after != before.after:
            parents = await self._find_parents(connection, job.tenant_id, request)
            request = replace(request, after=tuple(format_job_id(parent) for parent in parents))
        if request == before:
            return job
        if parents:
            await refuse_cycle(connection, job.tenant_id, job.id, parents)
        cadence_id = self._cadence_id(job.shard, request, job)
        row = to_row(job.id, job.tenant_id, job.shard, cadence_id, job.version + 1, request)
        rescheduled = request.cadence != before.cadence
        await connection.execute(query("update_job"), *row, rescheduled)
        await replace_one_off(connection, job, request)
        if parents is not None:
            await replace_parents(connection, job.id, parents)
        return await self.read(connection, job.tenant_id, job.id)

    async def _find_parents(self, connection: Connection, tenant_id: int, request: JobRequest) -> list[int]:
        found = await find_parents(connection, tenant_id, request.after)
        return sorted(set(found.values()))

    def _cadence_id(self, shard: int, request: JobRequest, job: Job | None = None) -> int | None:
        """The id of the request's cadence, or CadenceWanted; a job that stays in its own has it already."""
        if request.cadence is None or request.kind not in RECURRING:
            return None
        if job is not None and _stays(job.definition, request):
            return job.cadence_id
        return self._cadences.id_of(CadenceKey(shard, request.cadence), request.jitter_seconds)


def _stays(before: JobRequest, after: JobRequest) -> bool:
    """The cadence is the same, and its `max_jitter` covers the new jitter because it covered the old."""
    return before.cadence == after.cadence and after.jitter_seconds <= before.jitter_seconds
