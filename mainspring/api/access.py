"""Who asks: the key, its tenant and role, and the limits that hold for it, before anything else is looked at.

The order is fixed, because what is answered must not tell a stranger anything: no valid key, 401; too many
requests, 429; a role that is not enough, 403; only then the request itself is read.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from mainspring.api.problems import BadRequest, Unauthenticated
from mainspring.api.services import Services
from mainspring.registry import values
from mainspring.registry.audit import Actor, Witness
from mainspring.registry.edge import connected
from mainspring.registry.keys import Role, hash_secret, is_secret
from mainspring.schema.errors import DatabaseUnavailable, InvalidInput, NotAllowed
from mainspring.schema.queries import query

DEVELOPER = "development"
DEVELOPMENT_TENANT = "default"
LONGEST_REASON = 500

_LOCAL = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Whoever made a request."""

    services: Services
    tenant_id: int
    tenant: str
    name: str
    role: Role
    handlers: frozenset[str] | None
    reason: str | None

    def actor(self, witness: Witness | None = None) -> Actor:
        """As the registry wants to know it."""
        return Actor(
            name=self.name,
            reason=self.reason,
            handlers=self.handlers,
            examine=self.services.schemas.examine,
            witness=witness,
        )


async def authenticate(request: Request) -> Caller:
    """Find the caller behind a request: one statement."""
    services: Services = request.app.state.services
    if services.settings.auth == "off":
        caller, per_second = await _developer(services, request)
    else:
        caller, per_second = await _key_holder(services, request)
    request.state.caller = caller
    services.limits.take(caller.tenant_id, per_second)
    return caller


def needs(role: Role) -> Callable[[Caller], Awaitable[Caller]]:
    """A dependency that lets through who has this role or a higher one."""

    async def check(caller: Annotated[Caller, Depends(authenticate)]) -> Caller:
        if not caller.role.covers(role):
            raise NotAllowed(f"this needs the role {role}, and this key is a {caller.role}")
        return caller

    return check


Viewer = Annotated[Caller, Depends(needs(Role.VIEWER))]
Operator = Annotated[Caller, Depends(needs(Role.OPERATOR))]
Admin = Annotated[Caller, Depends(needs(Role.ADMIN))]


async def _key_holder(services: Services, request: Request) -> tuple[Caller, int | None]:
    scheme, _, secret = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not is_secret(secret.strip()):
        raise Unauthenticated("a key is needed: Authorization: Bearer ms_…")
    async with connected(services.pool) as connection:
        row = await connection.fetchrow(query("caller_of_key"), hash_secret(secret.strip()))
    if row is None:
        raise Unauthenticated("this key is not known, or it was revoked")
    caller = Caller(
        services=services,
        tenant_id=row["tenant_id"],
        tenant=row["tenant"],
        name=row["name"],
        role=Role(row["role"]),
        handlers=None if row["handlers"] is None else frozenset(row["handlers"]),
        reason=_reason(request),
    )
    return caller, row["requests_per_second"]


async def _developer(services: Services, request: Request) -> tuple[Caller, int | None]:
    _refuse_strangers(request)
    async with connected(services.pool) as connection:
        row = await connection.fetchrow(query("tenant_by_name"), DEVELOPMENT_TENANT)
    if row is None:
        raise DatabaseUnavailable(f"there is no tenant {DEVELOPMENT_TENANT}")
    caller = Caller(
        services=services,
        tenant_id=row["id"],
        tenant=row["name"],
        name=DEVELOPER,
        role=Role.ADMIN,
        handlers=None,
        reason=_reason(request),
    )
    return caller, row["requests_per_second"]


def _refuse_strangers(request: Request) -> None:
    """Without keys, a page open in a browser here must not pass for whoever sits in front of it."""
    host, origin = request.headers.get("host", ""), request.headers.get("origin")
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    if name.strip("[]") not in _LOCAL:
        raise NotAllowed(f"without keys only {', '.join(_LOCAL)} may be the host of a request")
    if origin is not None and origin.partition("://")[2] != host:
        raise NotAllowed("without keys no page of another origin may ask")


def _reason(request: Request) -> str | None:
    """X-Reason, for the audit; UTF-8, which headers do not say of themselves."""
    given = request.headers.get("x-reason")
    if not given:
        return None
    try:
        text = given.encode("latin-1").decode("utf-8")
    except UnicodeDecodeError:
        text = given
    try:
        return values.check_text("X-Reason", text, LONGEST_REASON)
    except InvalidInput as refusal:
        raise BadRequest(refusal.field, refusal.rule) from None
