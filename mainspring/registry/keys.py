"""API keys: `ms_` and 32 characters of base32, 160 random bits, shown once and stored as their SHA-256.

There is nothing to guess in 160 bits, so a fast hash is enough, and a look-up by it is one index probe. The
prefix lets secret scanners find a key in a place where it should not be. A revoked key stays as a row,
because the audit names it, and its name is not given again.
"""

from __future__ import annotations

import base64
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from hashlib import sha256

import asyncpg

from mainspring.registry import values
from mainspring.registry.audit import Actor, record
from mainspring.registry.edge import Pool, connected, transaction
from mainspring.schema.errors import InvalidInput, NameTaken, NotFound
from mainspring.schema.queries import query

PREFIX = "ms_"
LONGEST_NAME = 100
MOST_HANDLERS = 1000

_RANDOM_BYTES = 20
_SECRET = re.compile(r"ms_[a-z2-7]{32}", re.ASCII)
_NAME_IS_UNIQUE = "api_keys_tenant_id_name_key"


class Role(StrEnum):
    """What a key may do: each role may do what those before it may."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"

    def covers(self, needed: Role) -> bool:
        ranks = list(Role)
        return ranks.index(self) >= ranks.index(needed)


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key as it stands; its secret is not in it, nor anywhere."""

    id: int
    tenant_id: int
    name: str
    role: Role
    handlers: tuple[str, ...] | None
    created_at: datetime
    revoked_at: datetime | None

    @classmethod
    def from_row(cls, row: asyncpg.Record) -> ApiKey:
        handlers = None if row["handlers"] is None else tuple(row["handlers"])
        return cls(**{**row, "role": Role(row["role"]), "handlers": handlers})


def new_secret() -> str:
    """A key that nobody has had before."""
    return PREFIX + base64.b32encode(secrets.token_bytes(_RANDOM_BYTES)).decode("ascii").lower()


def is_secret(text: str) -> bool:
    """Whether a text can be a key: others need not be looked up."""
    return _SECRET.fullmatch(text) is not None


def hash_secret(secret: str) -> bytes:
    """What is stored of a key."""
    return sha256(secret.encode("utf-8")).digest()


class Keys:
    """What may be done with a tenant's keys."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def create(
        self,
        tenant_id: int,
        name: str,
        role: str,
        handlers: Sequence[str] | None = None,
        *,
        by: Actor | None = None,
    ) -> tuple[ApiKey, str]:
        """A new key and its secret, which cannot be had again: one statement, and the audit row."""
        values.check_text("name", name, LONGEST_NAME)
        chosen = values.one_of("role", Role)(role)
        allowed = None if handlers is None else read_handlers(handlers)
        secret = new_secret()
        try:
            async with transaction(self._pool) as connection:
                row = await connection.fetchrow(
                    query("insert_key"), tenant_id, name, chosen, allowed, hash_secret(secret)
                )
                assert row is not None
                key = ApiKey.from_row(row)
                after = {"name": name, "role": chosen.value, "handlers": allowed}
                await record(connection, tenant_id, by, "create_key", _subject(key.id), after=after)
                if by is not None:
                    await by.testify(connection, (key, secret))
        except asyncpg.UniqueViolationError as error:
            if error.constraint_name != _NAME_IS_UNIQUE:
                raise
            raise NameTaken((name,), "a key") from error
        return key, secret

    async def list(self, tenant_id: int, limit: int = 100, after_id: int = 0) -> list[ApiKey]:
        """Keys in order of id, revoked ones too: one statement."""
        async with connected(self._pool) as connection:
            rows = await connection.fetch(query("list_keys"), tenant_id, after_id, limit)
        return [ApiKey.from_row(row) for row in rows]

    async def revoke(self, tenant_id: int, key_id: int, *, by: Actor | None = None) -> None:
        """Refuse the key from now on: one statement, and the audit row."""
        async with transaction(self._pool) as connection:
            row = await connection.fetchrow(query("revoke_key"), tenant_id, key_id)
            if row is None:
                raise NotFound("key that is not revoked", key_id)
            before = {"name": row["name"], "role": row["role"]}
            await record(connection, tenant_id, by, "revoke_key", _subject(key_id), before=before)


def read_handlers(value: object) -> tuple[str, ...]:
    """The handlers that a key may use, each once."""
    if not isinstance(value, list | tuple):
        raise InvalidInput("handlers", "is not a list of handlers")
    if not 1 <= len(value) <= MOST_HANDLERS:
        raise InvalidInput("handlers", f"names {len(value)}, not 1–{MOST_HANDLERS}; null means every handler")
    return tuple(dict.fromkeys(values.check_text("handlers", each, values.LONGEST_NAME) for each in value))


def _subject(key_id: int) -> str:
    return f"key:{key_id}"
