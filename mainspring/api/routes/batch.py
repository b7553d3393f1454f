"""Many jobs in one request."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from mainspring.api import documents, reading
from mainspring.api.access import Operator
from mainspring.api.batch import MEDIA_TYPE, MEDIA_TYPES, Batch, BatchResponse
from mainspring.api.idempotency import HEADER, check_key
from mainspring.api.routes.changes import keyed

router = APIRouter(tags=["jobs"])
_LINES = {"description": "A job (JobRequest) on each line; no schema can say so of text."}
_ANSWERS = {
    "type": "string",
    "description": 'For each line `{"line":1,"job_id":"j_…"}` or `{"line":2,"problem":{…}}`, and in the end '
    '`{"summary":{"created":1,"refused":1}}`.',
}


@router.post(
    "/jobs:batch",
    summary="Create many jobs from NDJSON",
    response_class=Response,
    responses=documents.responses(200, None, 409, 413, 415)
    | {200: {"description": "An answer for each line", "content": {MEDIA_TYPE: {"schema": _ANSWERS}}}},
    openapi_extra=keyed(documents.body(_LINES, media_type=MEDIA_TYPE)),
)
async def create_jobs(
    request: Request,
    caller: Operator,
    mode: Annotated[
        Literal["partial", "atomic"], Query(description="partial: line by line; atomic: all or none.")
    ] = "partial",
) -> Response:
    given = request.headers.get(HEADER)
    key = None if given is None else f"{check_key(given)}"
    reading.check_media_type(request, MEDIA_TYPES)
    batch = Batch(caller, key, line_bytes=caller.services.settings.body_bytes)
    run = batch.run_atomic if mode == "atomic" else batch.run
    return BatchResponse(lambda: run(request.stream()))
