"""What the process says of itself: outside /api/v1, without a key."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter, Request
from prometheus_client.exposition import choose_encoder
from starlette.responses import Response

from mainspring.api import documents
from mainspring.api.shapes import Json
from mainspring.registry.edge import connected
from mainspring.schema.errors import DatabaseUnavailable, NotAllowed
from mainspring.schema.queries import query

READY_SECONDS = 2.0

router = APIRouter(tags=["process"])


def _answers(status: int, *, unready: bool = False) -> dict[int | str, Any]:
    content = {"application/json": {"schema": documents.named("Health")}}
    answers: dict[int | str, Any] = {status: {"description": "Yes", "content": content}}
    if unready:
        answers[503] = {"description": "No, and why", "content": content}
    return answers


@router.get("/healthz", summary="Whether the process lives", responses=_answers(200))
async def healthz() -> Response:
    return _health(ready=True)


@router.get("/readyz", summary="Whether it can serve", responses=_answers(200, unready=True))
async def readyz(request: Request) -> Response:
    try:
        async with asyncio.timeout(READY_SECONDS), connected(request.app.state.services.pool) as connection:
            await connection.fetchval(query("database_now"))
    except (DatabaseUnavailable, TimeoutError):
        return _health(ready=False)
    return _health(ready=True)


@router.get(
    "/metrics",
    summary="Prometheus metrics",
    response_class=Response,
    responses={
        200: {
            "description": "Prometheus text, or OpenMetrics where it is asked for",
            "content": {
                "text/plain": {"schema": documents.TEXT},
                "application/openmetrics-text": {"schema": documents.TEXT},
            },
        },
        403: documents.refusal(403),
    },
)
async def metrics(request: Request) -> Response:
    services = request.app.state.services
    if services.settings.metrics != "open" and not services.settings.is_loopback:
        raise NotAllowed("metrics are served on loopback only, or with MAINSPRING_API_METRICS=open")
    encode, content_type = choose_encoder(request.headers.get("accept", ""))
    return Response(encode(services.metrics.registry), headers={"Content-Type": content_type})


def _health(*, ready: bool) -> Response:
    reasons = [] if ready else ["postgres does not answer"]
    return Json({"alive": True, "ready": ready, "reasons": reasons}, 200 if ready else 503)
