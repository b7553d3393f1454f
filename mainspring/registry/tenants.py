"""Tenants and their limits: how many jobs, how many running at once, how many requests a second; None is no
limit.

No key may change them, because a key belongs to a tenant: it is done on the database, with an audit row in
the tenant's own audit.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime

import asyncpg

from mainspring.registry.audit import Actor, differences, record
from mainspring.registry.edge import Pool, connected, transaction
from mainspring.schema.errors import InvalidInput, NameTaken, NotFound
from mainspring.schema.queries import query

LARGEST_LIMIT = 2**31 - 1

_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)
_LOWEST = {"maximum_jobs": 0, "maximum_running": 1, "requests_per_second": 1}
LIMITS = tuple(_LOWEST)


@dataclass(frozen=True, slots=True)
class Tenant:
    """A tenant and its limits."""

    id: int
    name: str
    maximum_jobs: int | None
    maximum_running: int | None
    requests_per_second: int | None
    created_at: datetime

    @property
    def limits(self) -> dict[str, int | None]:
        whole = asdict(self)
        return {name: whole[name] for name in LIMITS}


class Tenants:
    """What may be done with tenants."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def list(self) -> list[Tenant]:
        """All of them by name: one statement."""
        async with connected(self._pool) as connection:
            rows = await connection.fetch(query("list_tenants"))
        return [Tenant(*row) for row in rows]

    async def create(self, name: str, limits: Mapping[str, int | None], *, by: Actor) -> Tenant:
        """A new tenant without keys: one statement, and the audit row."""
        if not _NAME.fullmatch(name):
            rule = (
                "is not 1–63 lower-case letters, digits or hyphens that start and end with a letter or digit"
            )
            raise InvalidInput("name", f"{name!r} {rule}")
        given = _check({name: limits.get(name) for name in LIMITS})
        try:
            async with transaction(self._pool) as connection:
                row = await connection.fetchrow(query("insert_tenant"), name, *given.values())
                assert row is not None
                tenant = Tenant(*row)
                await record(connection, tenant.id, by, "create_tenant", f"tenant:{name}", after=given)
        except asyncpg.UniqueViolationError as error:
            raise NameTaken((name,), "a tenant") from error
        return tenant

    async def limit(self, name: str, changes: Mapping[str, int | None], *, by: Actor) -> Tenant:
        """Other limits from now on, those that are given: two statements, and the audit row."""
        async with transaction(self._pool) as connection:
            row = await connection.fetchrow(query("lock_tenant"), name)
            if row is None:
                raise NotFound("tenant", name)
            before = Tenant(*row)
            limits = before.limits | _check(changes)
            changed = await connection.fetchrow(query("update_tenant"), before.id, *limits.values())
            assert changed is not None
            old, new = differences(before.limits, limits)
            if new:
                await record(connection, before.id, by, "limit_tenant", f"tenant:{name}", old, new)
        return Tenant(*changed)


def _check(limits: Mapping[str, int | None]) -> dict[str, int | None]:
    for name, value in limits.items():
        if value is not None and not _LOWEST[name] <= value <= LARGEST_LIMIT:
            raise InvalidInput(name, f"{value} is not in {_LOWEST[name]}–{LARGEST_LIMIT}")
    return dict(limits)
