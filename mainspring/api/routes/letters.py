"""Dead letters: list, look at one, count by kind, redrive."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from mainspring.api import documents, paging, reading, shapes
from mainspring.api.access import Caller, Operator, Viewer
from mainspring.api.idempotency import perform
from mainspring.api.routes.changes import keyed
from mainspring.api.routes.jobs import id_of
from mainspring.api.shapes import Json
from mainspring.registry import LetterFilter, Redriven, values
from mainspring.registry.audit import Actor
from mainspring.registry.edge import connected
from mainspring.registry.letters import LARGEST_PAGE, LARGEST_REDRIVE
from mainspring.schema.errors import InvalidInput
from mainspring.schema.ids import MAXIMUM_ID, RunKey, format_run_id
from mainspring.schema.queries import query

MOST_KINDS = 1000

router = APIRouter(tags=["dead letters"])
_REDRIVE: dict[str, Any] = {
    "type": "object",
    "description": "Which letters: `ids`, or a filter of at least one field.",
    "properties": {
        "ids": {
            "type": ["array", "null"],
            "items": {"type": "integer", "minimum": 1, "maximum": MAXIMUM_ID},
            "minItems": 1,
            "maxItems": LARGEST_REDRIVE,
        },
        "fingerprint": {"type": ["string", "null"], "minLength": 1, "maxLength": values.LONGEST_NAME},
        "handler": {"type": ["string", "null"], "minLength": 1, "maxLength": values.LONGEST_NAME},
        "job": {"type": ["string", "null"], "minLength": 1, "maxLength": values.LONGEST_NAME},
        "since": documents.maybe(documents.INSTANT),
        "dry_run": {"type": ["boolean", "null"], "description": "Default true: nothing is written."},
        "limit": {"type": ["integer", "null"], "minimum": 1, "maximum": LARGEST_REDRIVE},
    },
    "additionalProperties": False,
}


@router.get("/dead-letters", summary="List dead letters", responses=documents.responses(200, "DeadLetters"))
async def list_letters(
    caller: Viewer,
    fingerprint: Annotated[str | None, Query()] = None,
    handler: Annotated[str | None, Query()] = None,
    job: Annotated[str | None, Query(description="An id or a name.")] = None,
    since: Annotated[str | None, Query(description="An ISO-8601 instant.")] = None,
    redriven: Annotated[bool | None, Query()] = None,
    limit: paging.Limit = paging.DEFAULT_PAGE,
    cursor: paging.Cursor = None,
) -> Response:
    given = {"fingerprint": fingerprint, "handler": handler, "job": job, "since": since}
    where = await _filter(caller, given)
    where["redriven"] = redriven
    size, letters = min(limit, LARGEST_PAGE - 1), caller.services.letters
    after = paging.decode_serial("letters", cursor)
    rows = await letters.find(caller.tenant_id, limit=size + 1, after_id=after, **where)
    total = await letters.count(caller.tenant_id, **where)
    found, last = paging.cut(rows, size)
    following = None if last is None else paging.encode("letters", last.id)
    items = [shapes.letter(letter) for letter in found]
    return Json(paging.page(items, following, total=total, total_is_exact=True))


@router.get(
    "/dead-letters:summary",
    summary="Dead letters by fingerprint, the most frequent first",
    responses=documents.responses(200, "DeadLettersSummary"),
)
async def summarize_letters(caller: Viewer) -> Response:
    async with connected(caller.services.pool) as connection:
        rows = await connection.fetch(query("letters_summary"), caller.tenant_id, MOST_KINDS)
    return Json(paging.page([shapes.row(row) for row in rows], None))


@router.get(
    "/dead-letters/{letter_id}",
    summary="One dead letter, with its traceback and payload",
    responses=documents.responses(200, "DeadLetterDetail"),
)
async def get_letter(letter_id: str, caller: Viewer) -> Response:
    number = reading.serial("dead letter", letter_id)
    return Json(shapes.letter(await caller.services.letters.get(caller.tenant_id, number), whole=True))


@router.post(
    "/dead-letters/{letter_id}/redrive",
    status_code=202,
    summary="Give a dead letter's run its next attempt",
    responses=documents.responses(202, "Redriven", 409, 413, 415),
    openapi_extra=keyed(),
)
async def redrive_letter(request: Request, letter_id: str, caller: Operator) -> Response:
    body, given = await reading.read_object(request, required=False)
    reading.only(given, ())
    number = reading.serial("dead letter", letter_id)

    async def change(by: Actor) -> list[RunKey]:
        return await caller.services.letters.redrive(caller.tenant_id, [number], by=by)

    return await perform(request, caller, body, 202, _one, change)


@router.post(
    "/dead-letters:redrive",
    summary="Redrive many dead letters; a dry run unless told otherwise",
    responses=documents.responses(200, "Redrive", 409, 413, 415),
    openapi_extra=keyed(documents.body(_REDRIVE)),
)
async def redrive_letters(request: Request, caller: Operator) -> Response:
    body, given = await reading.read_object(request)
    reading.only(given, _REDRIVE["properties"])
    ids, where = _ids(given), await _filter(caller, given)
    if ids is not None and any(value is not None for value in where.values()):
        raise InvalidInput("ids", "come without a filter")
    if ids is None and all(value is None for value in where.values()):
        raise InvalidInput("ids", "are missing; or give fingerprint, handler, job or since")
    limit = reading.number(given, "limit", 1, LARGEST_REDRIVE, 1000)
    letters = caller.services.letters
    if reading.flag(given, "dry_run", default=True):
        chosen, refused = await letters.preview_redrive(caller.tenant_id, ids, limit=limit, **where)
        items = [shapes.refusal(each) for each in refused]
        return Json({"count": len(chosen), "runs": [], "refused": items, "dry_run": True})

    async def change(by: Actor) -> Redriven:
        if ids is not None:
            return Redriven(tuple(await letters.redrive(caller.tenant_id, ids, by=by)), ())
        return await letters.redrive_matching(caller.tenant_id, where, limit, by=by)

    return await perform(request, caller, body, 200, _many, change)


def _one(result: list[RunKey] | Redriven) -> dict[str, Any]:
    """Inside the transaction the registry still has it with its refusals."""
    runs = result.runs if isinstance(result, Redriven) else result
    return {"run_id": format_run_id(runs[0])}


def _many(done: Redriven) -> dict[str, Any]:
    return {
        "count": len(done.runs),
        "runs": [format_run_id(key) for key in done.runs],
        "refused": [shapes.refusal(each) for each in done.refused],
        "dry_run": False,
    }


def _ids(given: dict[str, Any]) -> list[int] | None:
    ids = given.get("ids")
    if ids is None:
        return None
    if not isinstance(ids, list) or not 1 <= len(ids) <= LARGEST_REDRIVE:
        raise InvalidInput("ids", f"is not a list of 1–{LARGEST_REDRIVE} numbers")
    return [values.whole_number("ids", 1, MAXIMUM_ID)(each) for each in ids]


async def _filter(caller: Caller, given: dict[str, Any]) -> LetterFilter:
    job = reading.text(given, "job", values.LONGEST_NAME)
    return {
        "fingerprint": reading.text(given, "fingerprint", values.LONGEST_NAME),
        "handler": reading.text(given, "handler", values.LONGEST_NAME),
        "job_id": None if job is None else await id_of(caller, job),
        "since": reading.instant(given, "since"),
    }
