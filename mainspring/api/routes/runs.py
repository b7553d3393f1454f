"""Runs: of a job, one with its log, cancel."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from mainspring.api import documents, paging, reading, shapes
from mainspring.api.access import Operator, Viewer
from mainspring.api.idempotency import perform
from mainspring.api.routes.changes import _REASON, keyed
from mainspring.api.routes.jobs import id_of, segment
from mainspring.api.shapes import Json
from mainspring.registry import Cancellation, LogLine
from mainspring.registry.audit import Actor
from mainspring.registry.runs import LARGEST_PAGE, LONGEST_REASON
from mainspring.schema.errors import InvalidInput
from mainspring.schema.ids import format_run_id, parse_run_id
from mainspring.schema.states import LogLevel

router = APIRouter(tags=["runs"])
_CANCEL = {"type": "object", "properties": {"reason": _REASON}, "additionalProperties": False}


@router.get(
    "/jobs/{job}/runs", summary="Runs of a job, newest first", responses=documents.responses(200, "Runs")
)
async def runs_of_job(
    job: str, caller: Viewer, limit: paging.Limit = paging.DEFAULT_PAGE, cursor: paging.Cursor = None
) -> Response:
    job_id = await id_of(caller, segment(job))
    before = None
    if cursor is not None:
        try:
            before = parse_run_id(paging.decode("runs", cursor))
        except InvalidInput:
            raise InvalidInput("cursor", "is not a cursor of this list") from None
    # One more would exceed what the registry gives at once, so the largest page is one less.
    size = min(limit, LARGEST_PAGE - 1)
    found, last = paging.cut(
        await caller.services.runs.list(caller.tenant_id, job_id, size + 1, before), size
    )
    following = None if last is None else paging.encode("runs", last.run_id)
    return Json(paging.page([shapes.run(run) for run in found], following))


@router.get(
    "/runs/{run_id}", summary="One run, with its log", responses=documents.responses(200, "RunDetail")
)
async def get_run(run_id: str, caller: Viewer) -> Response:
    key, runs = reading.run_key(run_id), caller.services.runs
    run = await runs.get(caller.tenant_id, *key)
    lines, last = paging.cut(await runs.logs(caller.tenant_id, *key), LARGEST_PAGE - 1)
    progress = [line.message for line in lines if line.level is LogLevel.PROGRESS]
    return Json(
        shapes.run(run)
        | {
            "progress": progress[-1] if progress else None,
            "log": [shapes.log_line(line) for line in lines],
            "log_next_cursor": None if last is None else paging.encode("log", last.line),
        }
    )


@router.get("/runs/{run_id}/log", summary="What a run logged", responses=documents.responses(200, "Log"))
async def log_of_run(
    run_id: str, caller: Viewer, limit: paging.Limit = paging.DEFAULT_PAGE, cursor: paging.Cursor = None
) -> Response:
    key, runs = reading.run_key(run_id), caller.services.runs
    await runs.get(caller.tenant_id, *key)
    after, size = paging.decode_serial("log", cursor, start=-1), min(limit, LARGEST_PAGE - 1)
    if after > 2**31 - 1:
        raise InvalidInput("cursor", "is not a cursor of this list")
    found: tuple[LogLine, ...] = await runs.logs(caller.tenant_id, *key, size + 1, after)
    lines, last = paging.cut(found, size)
    following = None if last is None else paging.encode("log", last.line)
    return Json(paging.page([shapes.log_line(line) for line in lines], following))


@router.post(
    "/runs/{run_id}/cancel",
    status_code=202,
    summary="Ask for a run to be stopped, or not to be started",
    responses=documents.responses(202, "Cancellation", 409, 413, 415),
    openapi_extra=keyed(documents.body(_CANCEL, required=False)),
)
async def cancel_run(request: Request, run_id: str, caller: Operator) -> Response:
    body, given = await reading.read_object(request, required=False)
    reading.only(given, ("reason",))

    async def change(by: Actor) -> Cancellation:
        reason = reading.text(given, "reason", LONGEST_REASON)
        key = reading.run_key(run_id)
        return await caller.services.runs.cancel(caller.tenant_id, *key, reason=reason, by=by)

    def shape(done: Cancellation) -> dict[str, str | None]:
        return {
            "run_id": format_run_id(done.key),
            "state": done.state.value,
            "reason": done.reason,
            "requested_at": shapes.instant(done.requested_at),
        }

    return await perform(request, caller, body, 202, shape, change)
