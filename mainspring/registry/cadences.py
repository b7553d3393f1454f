"""Cadence rows: one per shard, kind, expression, time zone, DST policy and phase, shared by its members.

A row is made, and its `max_jitter` raised, in a short transaction of its own that ends before the job's
begins. Two reasons. Whoever else needs the same row waits for whoever is making it, so that must take a
moment, not as long as a bulk load. And the leader moves `next_at` by `max_jitter`: it must have been raised
before a job with that jitter can be seen.

Ids are remembered per process. The janitor removes a cadence without members, so an id may be gone when it
is used; the foreign key then refuses the job, everything remembered is forgotten, and the change is tried
again. Ids are never used twice, and `max_jitter` only grows: what is remembered is gone, or true, or too
low.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from mainspring.registry.edge import Pool, Repeat, transaction
from mainspring.schedule import Cadence
from mainspring.schema.queries import query

MEMORY = 100_000


class CadenceKey(NamedTuple):
    """What a shard's cadence is found by."""

    shard: int
    cadence: Cadence


class CadenceWanted(Repeat):
    """A change needs cadence rows that are not known to exist: make them, then try again."""

    def __init__(self, jitters: Mapping[CadenceKey, int]) -> None:
        super().__init__()
        self.jitters = jitters


class _Known(NamedTuple):
    id: int
    max_jitter: int


class Cadences:
    """Finds and makes cadence rows, and remembers their ids."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._known: dict[CadenceKey, _Known] = {}

    def id_of(self, key: CadenceKey, jitter: int) -> int:
        """The id of a cadence whose `max_jitter` is at least this; costs nothing, or raises CadenceWanted."""
        return self.ids_of({key: jitter})[key]

    def ids_of(self, jitters: Mapping[CadenceKey, int]) -> dict[CadenceKey, int]:
        """The same for several: all, or CadenceWanted with those that are not known."""
        wanted = {
            key: jitter
            for key, jitter in jitters.items()
            if self._known.get(key, _NOTHING).max_jitter < jitter
        }
        if wanted:
            raise CadenceWanted(wanted)
        return {key: self._known[key].id for key in jitters}

    def forget(self) -> None:
        """One id was gone, so others may be."""
        self._known.clear()

    async def ensure(self, jitters: Mapping[CadenceKey, int]) -> None:
        """Make what is missing and raise what is too low: one to four statements in one short transaction.

        A row that is removed at this very moment may still be missing afterwards: the caller asks again.
        """
        keys = list(jitters)
        async with transaction(self._pool) as connection:
            columns = _columns(keys)
            found = await connection.fetch(query("find_cadences"), *columns)
            if len(found) < len(keys):
                await connection.execute(query("insert_cadences"), *columns)
                found = await connection.fetch(query("find_cadences"), *columns)
            known = {keys[row["position"] - 1]: _Known(row["id"], row["max_jitter"]) for row in found}
            low = {key: each.id for key, each in known.items() if each.max_jitter < jitters[key]}
            if low:
                raised = [jitters[key] for key in low]
                await connection.execute(query("raise_max_jitter"), list(low.values()), raised)
        self._remember(
            {key: _Known(each.id, max(each.max_jitter, jitters[key])) for key, each in known.items()}
        )

    def _remember(self, known: Mapping[CadenceKey, _Known]) -> None:
        if len(self._known) + len(known) > MEMORY:
            self._known.clear()
        self._known.update(known)


_NOTHING = _Known(0, -1)


def _columns(
    keys: Sequence[CadenceKey],
) -> tuple[list[int], list[str], list[str], list[str], list[str], list[str], list[int]]:
    cadences = [key.cadence for key in keys]
    return (
        [key.shard for key in keys],
        [cadence.kind for cadence in cadences],
        [cadence.expression for cadence in cadences],
        [cadence.timezone for cadence in cadences],
        [cadence.dst.gap for cadence in cadences],
        [cadence.dst.repeat for cadence in cadences],
        [cadence.phase for cadence in cadences],
    )
