"""Which jobs a job waits for.

Parents are named by id or name, belong to the same tenant, and are not deleted. They are locked (FOR SHARE)
from the look-up to the commit, so that a delete of a parent comes before, and the parent is not found, or
after, and finds the new row and removes it.

Nobody may wait for himself through others. Two changes at once could each find no cycle and make one
together, so changes that add parents to a job take a lock per tenant first. First means before any row:
whoever holds a job's row and then waits for this lock would wait for one who waits for that row. A new job
needs no lock, since nobody can be waiting for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from mainspring.registry.edge import Connection
from mainspring.registry.values import is_job_id
from mainspring.schema.errors import InvalidInput
from mainspring.schema.ids import format_job_id, parse_job_id
from mainspring.schema.queries import query

Edges = Mapping[int, Sequence[int]]
"""Who waits for whom: job → parents."""


class WrongParents(InvalidInput):
    """Jobs that cannot be waited for, by the texts that name them; who waits for one is refused."""

    def __init__(self, rule: str, parents: Iterable[str]) -> None:
        super().__init__("after", rule)
        self.parents = frozenset(parents)


_LOCK = 0x6D73_6470  # "msdp"; the tenant's id is the second half of the key


async def lock_dependencies(connection: Connection, tenant_id: int) -> None:
    """Let nobody else of this tenant add parents until this transaction ends: one statement."""
    await connection.execute(query("lock_dependencies"), _LOCK, tenant_id)


async def find_parents(
    connection: Connection, tenant_id: int, wanted: Sequence[str], known: Mapping[str, int] | None = None
) -> dict[str, int]:
    """The ids behind ids and names, locked against deletion; one statement.

    `known` are jobs of the same transaction, by name, which take precedence.
    """
    found = {text: known[text] for text in wanted if text in known} if known else {}
    missing = [text for text in wanted if text not in found]
    if not missing:
        return found
    ids = [parse_job_id(text) for text in missing if is_job_id(text)]
    names = [text for text in missing if not is_job_id(text)]
    for row in await connection.fetch(query("find_parents"), tenant_id, ids, names):
        found[format_job_id(row["id"])] = row["id"]
        if row["name"] is not None:
            found[row["name"]] = row["id"]
    strangers = [text for text in missing if text not in found]
    if strangers:
        raise WrongParents(f"{strangers[0]!r} is not a job of this tenant", strangers)
    return {text: found[text] for text in wanted}


async def refuse_cycle(connection: Connection, tenant_id: int, job_id: int, parents: Sequence[int]) -> None:
    """Refuse parents that wait for the job themselves: one statement, and one more to name the culprits."""
    rows = await connection.fetch(query("ancestor_edges"), parents)
    edges: dict[int, list[int]] = {}
    for row in rows:
        edges.setdefault(row["job_id"], []).append(row["parent_id"])
    edges[job_id] = list(parents)
    cycle = find_cycle(edges, [job_id])
    if cycle is not None:
        names = {
            row["id"]: row["name"] for row in await connection.fetch(query("job_names"), tenant_id, cycle)
        }
        raise cycle_refusal(cycle, names)


def find_cycle(edges: Edges, starts: Iterable[int]) -> list[int] | None:
    """A way that leads back to its beginning, from any of the starts; the first and last of it are the same.

    Depth first, without recursion: a chain of ten thousand jobs is no reason to fail.
    """
    finished: set[int] = set()
    for start in starts:
        if start in finished:
            continue
        path, on_path = [start], {start}
        waiting = [iter(edges.get(start, ()))]
        while waiting:
            following = next(waiting[-1], None)
            if following is None:
                waiting.pop()
                on_path.discard(path[-1])
                finished.add(path.pop())
            elif following in on_path:
                return [*path[path.index(following) :], following]
            elif following not in finished:
                path.append(following)
                on_path.add(following)
                waiting.append(iter(edges.get(following, ())))
    return None


def cycle_refusal(cycle: Sequence[int], names: Mapping[int, str | None]) -> InvalidInput:
    """“a waits for b, b for a”, by name where there is one."""
    shown = [names.get(job_id) or format_job_id(job_id) for job_id in cycle]
    return WrongParents(f"a job cannot wait for itself: {' → '.join(shown)}", shown)


async def add_parents(connection: Connection, job_id: int, parents: Sequence[int]) -> None:
    """Let the job wait for these too: one statement, none if there are none."""
    if parents:
        await connection.execute(query("insert_dependencies"), job_id, parents)


async def replace_parents(connection: Connection, job_id: int, parents: Sequence[int]) -> None:
    """Let the job wait for exactly these: one or two statements."""
    await connection.execute(query("delete_parents"), job_id, parents)
    await add_parents(connection, job_id, parents)
