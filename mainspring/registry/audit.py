"""Who changes something: what they may touch, and the row that says what they did.

Every method of the registry that changes something takes `by`, an Actor. With one, the change also checks
the handlers that the actor may use and the tenant's quota, writes its audit row, and lets the actor's
*witness* write what must be durable together with the change, all in the transaction of the change. Without
one (duties that continue what somebody asked for, benchmarks, tests) it does none of this, and costs a
statement or two less.

An audit row holds what changed, not all there is: `before` and `after` of an edit are the fields that
differ. A payload that is long is kept as its length and hash; jsonb holds no NUL, so one in a text is
replaced.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from mainspring.registry.definition import JobRequest
from mainspring.registry.edge import Connection
from mainspring.schema.errors import NotAllowed, QuotaExceeded
from mainspring.schema.queries import query

LONGEST_PAYLOAD = 4096
"""Characters of JSON; a longer payload is described."""

Witness = Callable[[Connection, Any], Awaitable[None]]
"""Called with the result of a change, last in its transaction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """Somebody who changes something."""

    name: str
    reason: str | None = None
    handlers: frozenset[str] | None = None
    """Those that the actor may use; None: every one."""
    examine: Callable[[Connection, int, JobRequest], Awaitable[None]] | None = None
    """Called with a tenant and what one of its jobs is to be, before that is written; may refuse it."""
    witness: Witness | None = None

    def permit(self, *handlers: str | None) -> None:
        """Refuse a job whose handler the actor may not use."""
        if self.handlers is not None:
            for handler in handlers:
                if handler not in self.handlers:
                    raise NotAllowed(f"this key may not use the handler {handler!r}")

    async def testify(self, connection: Connection, result: Any) -> None:
        if self.witness is not None:
            await self.witness(connection, result)


def permit(by: Actor | None, *handlers: str | None) -> None:
    """The same for a change that may have no actor."""
    if by is not None:
        by.permit(*handlers)


async def record(
    connection: Connection,
    tenant_id: int,
    by: Actor | None,
    action: str,
    subject: str,
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
) -> None:
    """Write the audit row of a change: one statement, none without an actor."""
    if by is not None:
        await connection.execute(
            query("insert_audit"),
            tenant_id,
            by.name,
            action,
            subject,
            _jsonb(before),
            _jsonb(after),
            by.reason,
        )


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The fields that are not the same on both sides."""
    names = [
        name
        for name in dict.fromkeys([*before, *after])
        if name not in before or name not in after or before[name] != after[name]
    ]
    return (
        {name: before[name] for name in names if name in before},
        {name: after[name] for name in names if name in after},
    )


async def take_room(connection: Connection, tenant_id: int, by: Actor | None, wanted: int) -> None:
    """Refuse jobs beyond the tenant's quota: one statement, two for a tenant that has one.

    The lock on the tenant's row lets those who create jobs in it count one after the other.
    """
    if by is None or not wanted:
        return
    maximum = await connection.fetchval(query("lock_quota"), tenant_id)
    if maximum is not None:
        room = maximum - await connection.fetchval(query("count_jobs_up_to"), tenant_id, maximum)
        if wanted > room:
            raise QuotaExceeded(maximum=maximum, room=room)


def _jsonb(value: Mapping[str, Any] | None) -> str | None:
    if value is None:
        return None
    text = json.dumps({name: _short(name, part) for name, part in value.items()}, ensure_ascii=False)
    return _without_nul(text) if "\\u0000" in text else text


def _short(name: str, value: Any) -> Any:
    if name != "payload":
        return value
    text = json.dumps(value, ensure_ascii=False)
    if len(text) <= LONGEST_PAYLOAD:
        return value
    content = text.encode("utf-8", "surrogatepass")
    return {"length": len(text), "sha256": sha256(content).hexdigest()}


def _without_nul(text: str) -> str:
    """A backslash that is itself escaped does not begin a NUL."""
    parts = text.split("\\\\")
    return "\\\\".join(part.replace("\\u0000", "\N{REPLACEMENT CHARACTER}") for part in parts)
