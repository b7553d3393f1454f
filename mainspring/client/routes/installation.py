"""The installation and its users: shards, workers, pools, what is to come; schemas, keys, audit, tenant."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from mainspring.client.core import Call, Listing, as_model, as_nothing, change, parameters, path
from mainspring.client.core import get as _get
from mainspring.client.models import (
    AuditRow,
    Forecast,
    Key,
    NewKey,
    PayloadSchema,
    Pool,
    Shard,
    Tenant,
    Worker,
)


def shards() -> Listing[Shard]:
    """Every shard, its leader and mark."""
    return Listing(Shard, path("shards"), ())


def workers() -> Listing[Worker]:
    """Workers, also those that ended lately."""
    return Listing(Worker, path("workers"), ())


def pools() -> Listing[Pool]:
    """Pools that have jobs or workers."""
    return Listing(Pool, path("pools"), ())


def forecast(start: datetime | str | None = None, seconds: int = 60) -> Call[Forecast]:
    """How many of the tenant's jobs are expected, second by second."""
    return _get(Forecast, path("forecast"), **{"from": start, "seconds": seconds})


def tenant() -> Call[Tenant]:
    """The tenant of this key and its limits."""
    return _get(Tenant, path("tenant"))


def audit(
    *,
    subject: str | None = None,
    actor: str | None = None,
    action: str | None = None,
    since: datetime | str | None = None,
) -> Listing[AuditRow]:
    """Who changed what, newest first."""
    where = {"subject": subject, "actor": actor, "action": action, "since": since}
    return Listing(AuditRow, path("audit"), parameters(where))


def list_schemas() -> Listing[PayloadSchema]:
    """The JSON Schemas of payloads."""
    return Listing(PayloadSchema, path("schemas"), ())


def get_schema(handler: str) -> Call[PayloadSchema]:
    """The JSON Schema of a handler's payloads."""
    return _get(PayloadSchema, path("schemas", handler))


def put_schema(handler: str, schema: Any, *, reason: str | None = None) -> Call[PayloadSchema]:
    """Check the payloads of a handler from now on."""
    return change("PUT", path("schemas", handler), as_model(PayloadSchema), schema, reason=reason)


def delete_schema(handler: str, *, reason: str | None = None) -> Call[None]:
    """Check the payloads of a handler no longer."""
    return change("DELETE", path("schemas", handler), as_nothing, reason=reason)


def list_keys() -> Listing[Key]:
    """API keys, revoked ones too, without their secrets."""
    return Listing(Key, path("keys"), ())


def create_key(
    name: str, role: str, *, handlers: Sequence[str] | None = None, reason: str | None = None
) -> Call[NewKey]:
    """Make a key; its secret cannot be had again."""
    body = {"name": name, "role": role, "handlers": None if handlers is None else list(handlers)}
    return change("POST", path("keys"), as_model(NewKey), body, reason=reason, keyed=False)


def revoke_key(key_id: int, *, reason: str | None = None) -> Call[None]:
    """Refuse a key from now on."""
    return change("DELETE", path("keys", key_id), as_nothing, reason=reason)
