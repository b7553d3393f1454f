"""JSON Schemas of payloads: one per handler where its owner registered one, checked inside the change.

JSON Schema 2020-12. A schema refers to nothing outside itself: a process that fetched what a tenant's
schema names would be a way into its network. A payload that is refused says where in it, and what the
schema wants there. A schema binds what is written after it; jobs that exist already stay as they are until
their next edit.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import jsonschema
from jsonschema.exceptions import SchemaError, ValidationError, best_match
from jsonschema.protocols import Validator
from referencing import Registry as References
from referencing.exceptions import Unresolvable

from mainspring.registry import JobRequest, values
from mainspring.registry.audit import Actor, record
from mainspring.registry.edge import Connection, Pool, connected, transaction
from mainspring.schema.errors import InvalidInput, NotFound
from mainspring.schema.queries import query

LONGEST_SCHEMA = 100_000
LONGEST_MESSAGE = 300


class PayloadSchemas:
    """Registers schemas and holds payloads against them."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def put(self, tenant_id: int, handler: str, schema: Any, by: Actor) -> bool:
        """Register or replace: three statements; True if there was none."""
        text = check_schema(schema)
        values.check_text("handler", handler, values.LONGEST_NAME)
        by.permit(handler)
        async with transaction(self._pool) as connection:
            before = await connection.fetchval(query("lock_payload_schema"), tenant_id, handler)
            await connection.execute(query("put_payload_schema"), tenant_id, handler, text)
            await record(
                connection,
                tenant_id,
                by,
                "put_schema",
                f"schema:{handler}",
                None if before is None else {"schema": json.loads(before)},
                {"schema": schema},
            )
        return before is None

    async def delete(self, tenant_id: int, handler: str, by: Actor) -> None:
        """Two statements."""
        by.permit(handler)
        async with transaction(self._pool) as connection:
            before = await connection.fetchval(query("delete_payload_schema"), tenant_id, handler)
            if before is None:
                raise NotFound("schema of the handler", repr(handler))
            subject = f"schema:{handler}"
            await record(connection, tenant_id, by, "delete_schema", subject, {"schema": json.loads(before)})

    async def list(self, tenant_id: int, limit: int, after: str = "") -> list[dict[str, Any]]:
        """By handler: one statement."""
        async with connected(self._pool) as connection:
            rows = await connection.fetch(query("list_payload_schemas"), tenant_id, after, limit)
        return [{**row, "schema": json.loads(row["schema"])} for row in rows]

    async def get(self, tenant_id: int, handler: str) -> dict[str, Any]:
        """One statement."""
        async with connected(self._pool) as connection:
            row = await connection.fetchrow(query("payload_schemas_of"), tenant_id, [handler])
        if row is None:
            raise NotFound("schema of the handler", repr(handler))
        return {**row, "schema": json.loads(row["schema"])}

    async def examine(self, connection: Connection, tenant_id: int, request: JobRequest) -> None:
        """Hold one job's payload against its handler's schema: one statement."""
        validators = await self.validators(connection, tenant_id, [request.handler])
        if validators:
            check_payload(validators[request.handler], request)

    async def validators(
        self, connection: Connection, tenant_id: int, handlers: Sequence[str]
    ) -> dict[str, Validator]:
        """Those of the handlers that have a schema: one statement."""
        rows = await connection.fetch(query("payload_schemas_of"), tenant_id, handlers)
        return {row["handler"]: _validator(row["schema"]) for row in rows}


def check_schema(schema: Any) -> str:
    """The schema as text; refused if it is none, refers to what is outside, has a pattern that is none."""
    if not isinstance(schema, dict | bool):
        raise InvalidInput("schema", "is neither an object nor a boolean")
    text = values.write_payload(schema).decode()
    if len(text) > LONGEST_SCHEMA or len(text.encode()) > LONGEST_SCHEMA:
        raise InvalidInput("schema", f"is longer than {LONGEST_SCHEMA} bytes")
    for name, value in _entries(schema):
        if name in ("$ref", "$dynamicRef") and not str(value).startswith("#"):
            raise InvalidInput("schema", f"{name} {str(value)[:100]!r} is not a place in the schema itself")
        if name == "pattern" and isinstance(value, str):
            _check_pattern(value)
        if name == "patternProperties" and isinstance(value, dict):
            for pattern in value:
                _check_pattern(pattern)
    try:
        jsonschema.Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        raise InvalidInput("schema", f"{error.json_path}: {error.message[:LONGEST_MESSAGE]}") from None
    return text


def check_payload(validator: Validator, request: JobRequest) -> None:
    """Refuse a payload that is not what the handler's schema says."""
    try:
        error = best_match(validator.iter_errors(request.payload))
    except (RecursionError, Unresolvable, re.error) as fault:
        raise InvalidInput(
            "payload", f"the schema of {request.handler!r} cannot be applied: {fault}"
        ) from None
    if error is not None:
        raise InvalidInput(_place(error), error.message[:LONGEST_MESSAGE])


def _place(error: ValidationError) -> str:
    return "payload" + error.json_path.removeprefix("$")


def _check_pattern(pattern: str) -> None:
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise InvalidInput("schema", f"the pattern {pattern[:100]!r} is none: {error}") from None


def _entries(schema: Any) -> Iterator[tuple[str, Any]]:
    """Every name and value in it; its depth is bounded already."""
    if isinstance(schema, dict):
        yield from schema.items()
        for value in schema.values():
            yield from _entries(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from _entries(value)


@lru_cache(maxsize=256)
def _validator(text: str) -> Validator:
    validator: Validator = jsonschema.Draft202012Validator(json.loads(text), registry=References())
    return validator
