"""Idempotency-Key: the same request sent again gets the answer of the first, and happens once.

The answer is written in the transaction of the change itself, so there is no moment at which the change is
durable and the key is not: a client that heard nothing sends the same again, whatever broke. Two at once
both do the work; the second one's key meets the first one's, its transaction is undone, and it answers what
the first one did.

A key is the tenant's, is kept for 24 hours, and belongs to one method, path and body. A refusal is not
kept: it changed nothing, so asking again is harmless.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, NamedTuple, TypeVar

import asyncpg
from fastapi import Request
from starlette.responses import Response

from mainspring.api.access import Caller
from mainspring.api.problems import BadRequest, KeyReused
from mainspring.api.shapes import Json, encode
from mainspring.registry import values
from mainspring.registry.audit import Actor
from mainspring.registry.edge import Connection, connected
from mainspring.schema.errors import Contended, InvalidInput
from mainspring.schema.queries import query

HEADER = "Idempotency-Key"
REPLAYED = "Idempotent-Replayed"
LONGEST_KEY = 200

_ATTEMPTS = 3
_KEY_EXISTS = "idempotency_keys_pkey"
_Result = TypeVar("_Result")


class KeyTaken(Exception):
    """Another request with this key was faster: its answer is there now."""


class Stored(NamedTuple):
    """What a key's first request was answered."""

    status: int
    answer: bytes


@dataclass(frozen=True, slots=True)
class Key:
    """One request's key, or one chunk's of a batch."""

    tenant_id: int
    key: str
    request_hash: bytes
    chunk: int = 0

    async def find(self, connection: Connection) -> Stored | None:
        """What it was answered before: one statement."""
        row = await connection.fetchrow(query("read_idempotency_key"), self.tenant_id, self.key, self.chunk)
        if row is None:
            return None
        if row["request_hash"] != self.request_hash:
            raise KeyReused
        return Stored(row["status"], row["answer"])

    async def keep(self, connection: Connection, stored: Stored) -> None:
        """Inside the transaction of the change: two statements."""
        row = (self.tenant_id, self.key, self.chunk)
        await connection.execute(query("forget_idempotency_key"), *row)
        try:
            await connection.execute(
                query("insert_idempotency_key"), *row, self.request_hash, stored.status, stored.answer
            )
        except asyncpg.UniqueViolationError as error:
            if error.constraint_name != _KEY_EXISTS:
                raise
            raise KeyTaken from error


def key_of(request: Request, caller: Caller, body: bytes) -> Key | None:
    """The key of a request, if it has one."""
    given = request.headers.get(HEADER)
    if given is None:
        return None
    url = f"{request.url.path}?{request.url.query}"
    return Key(
        caller.tenant_id, check_key(given), sha256(f"{request.method}\n{url}\n".encode() + body).digest()
    )


def check_key(given: str) -> str:
    try:
        return values.check_text(HEADER, given, LONGEST_KEY)
    except InvalidInput as refusal:
        raise BadRequest(refusal.field, refusal.rule) from None


async def perform(
    request: Request,
    caller: Caller,
    body: bytes,
    status: int,
    shape: Callable[[_Result], Any],
    change: Callable[[Actor], Awaitable[_Result]],
) -> Response:
    """Make a change once, and answer what it made; with a key, three statements more."""
    key = key_of(request, caller, body)
    if key is None:
        return Json(shape(await change(caller.actor())), status)

    async def witness(connection: Connection, result: _Result) -> None:
        await key.keep(connection, Stored(status, encode(shape(result))))

    for _ in range(_ATTEMPTS):
        async with connected(caller.services.pool) as connection:
            stored = await key.find(connection)
        if stored is not None:
            headers = {REPLAYED: "true"}
            return Response(stored.answer, stored.status, headers, media_type=Json.media_type)
        try:
            return Json(shape(await change(caller.actor(witness))), status)
        except KeyTaken:
            continue
    raise Contended("what this key was used for")
