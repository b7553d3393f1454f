"""Keys, schemas of payloads, the audit, and the tenant itself."""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from mainspring.api import documents, paging, reading, shapes
from mainspring.api.access import Admin, Caller, Viewer
from mainspring.api.idempotency import HEADER
from mainspring.api.problems import BadRequest
from mainspring.api.routes.jobs import EXACT, segment
from mainspring.api.shapes import Json
from mainspring.registry import values
from mainspring.registry.edge import connected
from mainspring.registry.keys import LONGEST_NAME, MOST_HANDLERS, Role, read_handlers
from mainspring.schema.errors import InvalidInput, NotAllowed
from mainspring.schema.queries import query

router = APIRouter(tags=["access"])
_KEY: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": LONGEST_NAME},
        "role": {"enum": [role.value for role in Role]},
        "handlers": {
            "type": ["array", "null"],
            "description": "The handlers that the key may use; null: every one.",
            "items": {"type": "string", "minLength": 1, "maxLength": values.LONGEST_NAME},
            "minItems": 1,
            "maxItems": MOST_HANDLERS,
        },
    },
    "required": ["name", "role"],
    "additionalProperties": False,
}
_SCHEMA: dict[str, Any] = {"type": ["object", "boolean"], "description": "JSON Schema 2020-12."}


@router.get("/keys", summary="API keys, without their secrets", responses=documents.responses(200, "Keys"))
async def list_keys(
    caller: Admin, limit: paging.Limit = paging.DEFAULT_PAGE, cursor: paging.Cursor = None
) -> Response:
    after = paging.decode_serial("keys", cursor)
    keys = await caller.services.keys.list(caller.tenant_id, limit + 1, after)
    found, last = paging.cut(keys, limit)
    following = None if last is None else paging.encode("keys", last.id)
    return Json(paging.page([shapes.key(key) for key in found], following))


@router.post(
    "/keys",
    status_code=201,
    summary="Make an API key; its secret is shown this once",
    responses=documents.responses(201, "NewKey", 409, 413, 415),
    openapi_extra=documents.body(_KEY),
)
async def create_key(request: Request, caller: Admin) -> Response:
    if HEADER.lower() in request.headers:
        raise BadRequest(HEADER, "is not possible here: to answer it twice, the secret would have to be kept")
    _, given = await reading.read_object(request)
    reading.only(given, _KEY["properties"])
    handlers = None if given.get("handlers") is None else read_handlers(given["handlers"])
    _refuse_more(caller, handlers)
    for name in ("name", "role"):
        if name not in given:
            raise InvalidInput(name, "is missing")
    key, secret = await caller.services.keys.create(
        caller.tenant_id, given["name"], given["role"], handlers, by=caller.actor()
    )
    return Json(shapes.key(key) | {"secret": secret}, 201, {"Cache-Control": "no-store"})


@router.delete(
    "/keys/{key_id}",
    status_code=204,
    summary="Revoke an API key, at once and for ever",
    responses=documents.responses(204, None),
    response_class=Response,
)
async def revoke_key(key_id: str, caller: Admin) -> Response:
    number = reading.serial("key", key_id)
    await caller.services.keys.revoke(caller.tenant_id, number, by=caller.actor())
    return Response(status_code=204)


@router.get(
    "/schemas", summary="JSON Schemas of payloads", responses=documents.responses(200, "PayloadSchemas")
)
async def list_schemas(
    caller: Viewer, limit: paging.Limit = paging.DEFAULT_PAGE, cursor: paging.Cursor = None
) -> Response:
    after = "" if cursor is None else paging.decode("schemas", cursor)
    found, last = paging.cut(await caller.services.schemas.list(caller.tenant_id, limit + 1, after), limit)
    following = None if last is None else paging.encode("schemas", last["handler"])
    return Json(paging.page([shapes.row(each) for each in found], following))


@router.get(
    "/schemas/{handler}",
    summary="The JSON Schema of a handler's payloads",
    responses=documents.responses(200, "PayloadSchema"),
)
async def get_schema(handler: str, caller: Viewer) -> Response:
    name = values.check_text("handler", segment(handler), values.LONGEST_NAME)
    return Json(shapes.row(await caller.services.schemas.get(caller.tenant_id, name)))


@router.put(
    "/schemas/{handler}",
    summary="Check the payloads of a handler from now on",
    responses=documents.responses(200, "PayloadSchema", 413, 415)
    | {201: documents.responses(201, "PayloadSchema")[201]},
    openapi_extra=documents.body(_SCHEMA),
)
async def put_schema(request: Request, handler: str, caller: Admin) -> Response:
    body = await reading.read_body(request, caller.services.settings.body_bytes)
    reading.check_media_type(request, ("application/json", "application/schema+json"))
    name = values.check_text("handler", segment(handler), values.LONGEST_NAME)
    schemas = caller.services.schemas
    created = await schemas.put(caller.tenant_id, name, reading.parse_json(body), caller.actor())
    stored = await schemas.get(caller.tenant_id, name)
    return Json(shapes.row(stored), 201 if created else 200)


@router.delete(
    "/schemas/{handler}",
    status_code=204,
    summary="Check the payloads of a handler no longer",
    responses=documents.responses(204, None),
    response_class=Response,
)
async def delete_schema(handler: str, caller: Admin) -> Response:
    name = values.check_text("handler", segment(handler), values.LONGEST_NAME)
    await caller.services.schemas.delete(caller.tenant_id, name, caller.actor())
    return Response(status_code=204)


@router.get(
    "/audit", summary="Who changed what, newest first", responses=documents.responses(200, "AuditRows")
)
async def list_audit(
    caller: Admin,
    subject: Annotated[str | None, Query(description="A job's id, a run's id, key:…")] = None,
    actor: Annotated[str | None, Query(description="A key's name.")] = None,
    action: Annotated[str | None, Query()] = None,
    since: Annotated[str | None, Query(description="An ISO-8601 instant.")] = None,
    limit: paging.Limit = paging.DEFAULT_PAGE,
    cursor: paging.Cursor = None,
) -> Response:
    given = {"subject": subject, "actor": actor, "action": action}
    before = None if cursor is None else paging.decode_serial("audit", cursor)
    async with connected(caller.services.pool) as connection:
        rows = await connection.fetch(
            query("list_audit"),
            caller.tenant_id,
            *(reading.text(given, name, 300) for name in given),
            None if since is None else reading.read_instant("since", since),
            before,
            limit + 1,
        )
    found, last = paging.cut(rows, limit)
    following = None if last is None else paging.encode("audit", last["id"])
    return Json(paging.page([_audit(row) for row in found], following))


@router.get(
    "/tenant", summary="The tenant, its limits, and this key", responses=documents.responses(200, "Tenant")
)
async def get_tenant(caller: Viewer) -> Response:
    async with connected(caller.services.pool) as connection:
        row = await connection.fetchrow(query("tenant_in_numbers"), caller.tenant_id)
    assert row is not None
    return Json(
        {
            "tenant": row["name"],
            "maximum_jobs": row["maximum_jobs"],
            "maximum_running": row["maximum_running"],
            "requests_per_second": row["requests_per_second"],
            "jobs": min(row["jobs"], EXACT),
            "jobs_is_exact": row["jobs"] <= EXACT,
            "key": caller.name,
            "role": caller.role.value,
        }
    )


def _refuse_more(caller: Caller, handlers: tuple[str, ...] | None) -> None:
    """A key that may use some handlers makes no key that may use others."""
    if caller.handlers is None:
        return
    if handlers is None:
        raise NotAllowed("a key that may use some handlers cannot make one that may use every handler")
    caller.actor().permit(*handlers)


def _audit(row: Any) -> dict[str, Any]:
    change = {name: None if row[name] is None else json.loads(row[name]) for name in ("before", "after")}
    return shapes.row(row) | change
