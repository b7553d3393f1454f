"""What may be done with a job as it is: pause, resume, trigger, backfill, explain."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from mainspring.api import documents, reading, shapes
from mainspring.api.access import Operator, Viewer
from mainspring.api.explain import explain
from mainspring.api.idempotency import HEADER, LONGEST_KEY, perform
from mainspring.api.routes.jobs import find, segment
from mainspring.api.shapes import Json
from mainspring.registry import Job
from mainspring.registry.audit import Actor
from mainspring.registry.registry import LONGEST_REASON
from mainspring.registry.runs import LARGEST_BACKFILL, LARGEST_PAGE
from mainspring.schema.errors import InvalidInput
from mainspring.schema.ids import RunKey, format_run_id

SHOWN = 100
"""How many instants a backfill lists; its count is whole."""

router = APIRouter(tags=["changes"])
_REASON: dict[str, Any] = {"type": ["string", "null"], "minLength": 1, "maxLength": LONGEST_REASON}
_PAUSE: dict[str, Any] = {
    "type": "object",
    "properties": {"reason": _REASON, "until": documents.maybe(documents.INSTANT)},
    "additionalProperties": False,
}
_BACKFILL: dict[str, Any] = {
    "type": "object",
    "properties": {
        "start": documents.INSTANT,
        "end": documents.INSTANT | {"description": "Exclusive."},
        "dry_run": {"type": ["boolean", "null"], "description": "Default true: nothing is written."},
        "again": {"type": ["boolean", "null"], "description": "Also what has ended; default false."},
        "limit": {"type": ["integer", "null"], "minimum": 1, "maximum": LARGEST_BACKFILL},
    },
    "required": ["start", "end"],
    "additionalProperties": False,
}


def keyed(extra: dict[str, Any] | None = None) -> dict[str, Any]:
    """An operation that honours Idempotency-Key."""
    schema = {"type": "string", "minLength": 1, "maxLength": LONGEST_KEY}
    parameter = documents.header(HEADER, "The same request with the same key happens once.", schema)
    return {**(extra or {}), "parameters": [parameter]}


@router.post(
    "/jobs/{job}/pause",
    summary="Pause a job",
    responses=documents.responses(200, "Job", 409, 413, 415),
    openapi_extra=keyed(documents.body(_PAUSE, required=False)),
)
async def pause_job(request: Request, job: str, caller: Operator) -> Response:
    body, given = await reading.read_object(request, required=False)
    reading.only(given, _PAUSE["properties"])

    async def change(by: Actor) -> Job:
        found = await find(caller, job)
        reason, until = reading.text(given, "reason", LONGEST_REASON), reading.instant(given, "until")
        return await caller.services.registry.pause(
            caller.tenant_id, found.id, reason=reason, until=until, by=by
        )

    return await perform(request, caller, body, 200, shapes.job, change)


@router.post(
    "/jobs/{job}/resume",
    summary="Resume a job",
    responses=documents.responses(200, "Job", 409, 413, 415),
    openapi_extra=keyed(),
)
async def resume_job(request: Request, job: str, caller: Operator) -> Response:
    body, given = await reading.read_object(request, required=False)
    reading.only(given, ())

    async def change(by: Actor) -> Job:
        found = await find(caller, job)
        return await caller.services.registry.resume(caller.tenant_id, found.id, by=by)

    return await perform(request, caller, body, 200, shapes.job, change)


@router.post(
    "/jobs/{job}/trigger",
    status_code=202,
    summary="Run a job once, now",
    responses=documents.responses(202, "Triggered", 409, 413, 415),
    openapi_extra=keyed(),
)
async def trigger_job(request: Request, job: str, caller: Operator) -> Response:
    body, given = await reading.read_object(request, required=False)
    reading.only(given, ())

    async def change(by: Actor) -> RunKey:
        found = await find(caller, job)
        return await caller.services.registry.trigger(caller.tenant_id, found.id, by=by)

    def shape(key: RunKey) -> dict[str, Any]:
        return {"run_id": format_run_id(key), "scheduled_at": shapes.instant(key.scheduled_at)}

    return await perform(request, caller, body, 202, shape, change)


@router.post(
    "/jobs/{job}/backfill",
    summary="Run what the schedule had in a range and never ran",
    responses=documents.responses(200, "Backfill", 409, 413, 415),
    openapi_extra=keyed(documents.body(_BACKFILL)),
)
async def backfill_job(request: Request, job: str, caller: Operator) -> Response:
    body, given = await reading.read_object(request)
    reading.only(given, _BACKFILL["properties"])
    start, end = reading.instant(given, "start"), reading.instant(given, "end")
    for name, value in (("start", start), ("end", end)):
        if value is None:
            raise InvalidInput(name, "is missing")
    assert start is not None
    assert end is not None
    dry_run, again = (
        reading.flag(given, "dry_run", default=True),
        reading.flag(given, "again", default=False),
    )
    limit = reading.number(given, "limit", 1, LARGEST_BACKFILL, LARGEST_PAGE)
    runs = caller.services.runs
    found = await find(caller, job)
    instants = await runs.preview_backfill(caller.tenant_id, found.id, start, end, limit, again=again)

    def shape(count: int) -> dict[str, Any]:
        shown = [shapes.instant(each) for each in instants[:SHOWN]]
        return {"count": count, "instants": shown, "dry_run": dry_run}

    if dry_run:
        return Json(shape(len(instants)))

    async def change(by: Actor) -> int:
        return await runs.backfill(caller.tenant_id, found.id, start, end, limit, again=again, by=by)

    return await perform(request, caller, body, 200, shape, change)


@router.get(
    "/jobs/{job}/explain",
    summary="Why a job ran, or did not run, at an instant",
    responses=documents.responses(200, "Explanation"),
)
async def explain_job(
    job: str, caller: Viewer, at: Annotated[str, Query(description="An ISO-8601 instant.")]
) -> Response:
    return Json(await explain(caller, segment(job), reading.read_instant("at", at)))
