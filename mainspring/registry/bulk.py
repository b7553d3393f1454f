"""Many new jobs in one transaction, by COPY.

What a single create does in three statements costs here one COPY for the jobs, one for the timers of those
that have an instant, and one statement and a COPY for those that wait for others. The rest is arithmetic
in this process: ids, shards, cadences and bodies are known before the first byte leaves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from mainspring.registry.cadences import CadenceKey, Cadences
from mainspring.registry.definition import JobRequest
from mainspring.registry.dependencies import cycle_refusal, find_cycle, find_parents
from mainspring.registry.edge import Connection
from mainspring.registry.rows import COLUMNS, to_row
from mainspring.registry.timers import due_of
from mainspring.schedule import Cadence, Kind
from mainspring.schema.errors import NameTaken
from mainspring.schema.sharding import shard_of
from mainspring.schema.states import TimerCause

_TIMER_COLUMNS = ("shard", "due_at", "job_id", "scheduled_at", "cause")
_DEPENDENCY_COLUMNS = ("job_id", "parent_id")


def refuse_repeated_names(requests: Sequence[JobRequest]) -> tuple[str, ...]:
    """The names of all that have one; two jobs of one name are refused here, before Postgres would."""
    names = Counter(request.name for request in requests if request.name is not None)
    repeated = tuple(name for name, count in names.items() if count > 1)
    if repeated:
        raise NameTaken(repeated)
    return tuple(names)


class Batch:
    """New jobs on their way into Postgres: each request with its id and shard."""

    def __init__(
        self, tenant_id: int, ids: Sequence[int], shards: int, requests: Sequence[JobRequest]
    ) -> None:
        self._tenant_id = tenant_id
        self._ids = ids
        self._shards = [shard_of(job_id, shards) for job_id in ids]
        self._requests = requests

    async def write(self, connection: Connection, cadences: Cadences) -> None:
        """Write everything; raises CadenceWanted before the first statement if a cadence is not known."""
        cadence_ids = self._cadence_ids(cadences)
        edges = await self._find_parents(connection)
        await connection.copy_records_to_table(
            "jobs", records=self._job_rows(cadence_ids), columns=list(COLUMNS)
        )
        if timers := list(self._timer_rows()):
            await connection.copy_records_to_table("timers", records=timers, columns=list(_TIMER_COLUMNS))
        if edges:
            pairs = [(job_id, parent) for job_id, parents in edges.items() for parent in parents]
            await connection.copy_records_to_table(
                "dependencies", records=pairs, columns=list(_DEPENDENCY_COLUMNS)
            )

    def _cadence_ids(self, cadences: Cadences) -> list[int | None]:
        """Per job the id of its cadence. Jobs are many and cadences few: each job's is hashed only once."""
        numbers: dict[Cadence, int] = {}
        jitters: dict[tuple[int, int], int] = {}
        places: list[tuple[int, int] | None] = []
        for shard, request in zip(self._shards, self._requests, strict=True):
            place = None
            if request.cadence is not None and request.cadence.kind is not Kind.AT:
                place = shard, numbers.setdefault(request.cadence, len(numbers))
                jitters[place] = max(jitters.get(place, 0), request.jitter_seconds)
            places.append(place)
        distinct = list(numbers)
        keys = {place: CadenceKey(place[0], distinct[place[1]]) for place in jitters}
        ids = cadences.ids_of({key: jitters[place] for place, key in keys.items()})
        found = {place: ids[key] for place, key in keys.items()}
        return [None if place is None else found[place] for place in places]

    async def _find_parents(self, connection: Connection) -> dict[int, list[int]]:
        """Who waits for whom; a parent may be another job of the batch."""
        waiting = {
            job_id: request
            for job_id, request in zip(self._ids, self._requests, strict=True)
            if request.after
        }
        if not waiting:
            return {}
        wanted = tuple(dict.fromkeys(parent for request in waiting.values() for parent in request.after))
        batch = {
            request.name: job_id
            for job_id, request in zip(self._ids, self._requests, strict=True)
            if request.name
        }
        found = await find_parents(connection, self._tenant_id, wanted, batch)
        edges = {
            job_id: sorted({found[parent] for parent in request.after}) for job_id, request in waiting.items()
        }
        cycle = find_cycle(edges, edges)
        if cycle is not None:
            raise cycle_refusal(cycle, {job_id: waiting[job_id].name for job_id in cycle})
        return edges

    def _job_rows(self, cadence_ids: Sequence[int | None]) -> Iterator[tuple[Any, ...]]:
        for job_id, shard, cadence_id, request in zip(
            self._ids, self._shards, cadence_ids, self._requests, strict=True
        ):
            yield to_row(job_id, self._tenant_id, shard, cadence_id, 1, request)

    def _timer_rows(self) -> Iterator[tuple[Any, ...]]:
        for job_id, shard, request in zip(self._ids, self._shards, self._requests, strict=True):
            run_at = request.run_at
            if run_at is not None:
                yield shard, due_of(job_id, request, run_at), job_id, run_at, TimerCause.ONE_OFF
