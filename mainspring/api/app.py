"""The application: routes, what goes around them, how errors are answered, the document that describes it."""

from __future__ import annotations

import re
from http import HTTPStatus
from importlib.metadata import version
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException
from starlette.responses import Response

from mainspring.api import documents, problems
from mainspring.api.middleware import PREFIX, Observation, Segments
from mainspring.api.routes import access, batch, changes, cluster, health, jobs, letters, runs
from mainspring.api.services import Services
from mainspring.registry.edge import Repeat
from mainspring.schema.errors import InvalidInput, MainspringError

_OPEN = ("/healthz", "/readyz", "/metrics")

log = structlog.get_logger()


def make_app(services: Services) -> FastAPI:
    """Everything but the server that serves it."""
    # No pages of documentation: they load their scripts from elsewhere. The document itself is there.
    app = FastAPI(
        title="Mainspring",
        version=version("mainspring"),
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.services = services
    for routes in (batch, jobs, changes, runs, letters, cluster, access):
        app.include_router(routes.router, prefix=PREFIX)
    app.include_router(health.router)
    app.add_exception_handler(MainspringError, _refuse)
    app.add_exception_handler(RequestValidationError, _refuse_parameter)
    app.add_exception_handler(HTTPException, _refuse_route)
    app.add_exception_handler(Repeat, _refuse_conflict)
    app.add_exception_handler(Exception, _admit)
    app.add_middleware(Segments)
    app.add_middleware(Observation, services=services)
    document = _document(app)
    app.openapi = lambda: document  # type: ignore[method-assign]
    return app


async def _refuse(_: Request, error: Exception) -> Response:
    return problems.answer(error)


async def _refuse_parameter(_: Request, error: Exception) -> Response:
    """A query parameter that breaks its rule; the first of them."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    return problems.answer(InvalidInput(str(first["loc"][-1]), str(first["msg"])[:300]))


async def _refuse_route(request: Request, error: Exception) -> Response:
    """No such path, or not with this method."""
    assert isinstance(error, HTTPException)
    status, headers = HTTPStatus(error.status_code), dict(error.headers or {})
    if status is HTTPStatus.METHOD_NOT_ALLOWED:
        headers["Allow"] = ", ".join(_methods(request.app.openapi(), request.scope["path"]))
    kind = problems.Kind(status, status.phrase.lower().replace(" ", "-"), status.phrase)
    return problems.respond(problems.problem(kind, status.description or status.phrase), headers)


def _methods(document: dict[str, Any], path: str) -> list[str]:
    """What a path can be asked with: the router knows only the first of the routes that fit it."""
    found: set[str] = set()
    for template, operations in document["paths"].items():
        if re.fullmatch(re.sub(r"\\{[a-z_]+\\}", "[^/]+", re.escape(template)), path):
            found.update(method.upper() for method in operations)
    return sorted(found)


async def _refuse_conflict(_: Request, error: Exception) -> Response:  # noqa: ARG001
    kind = problems.Kind(HTTPStatus.CONFLICT, "contended", "Contended")
    return problems.respond(problems.problem(kind, "others were changing the same thing; try again"))


async def _admit(_: Request, error: Exception) -> Response:
    """A defect: the traceback is in the log, and not in the answer."""
    log.error("request_failed", exc_info=error)
    return problems.answer(error)


def _document(app: FastAPI) -> dict[str, Any]:
    """OpenAPI 3.1, with the schemas that the routes refer to and the key they ask for."""
    document = get_openapi(
        title=app.title,
        version=app.version,
        openapi_version="3.1.0",
        description="Cron at scale. Names in paths are one percent-encoded segment.",
        routes=app.routes,
    )
    document["components"] = {
        "schemas": documents.COMPONENTS,
        "securitySchemes": {"key": {"type": "http", "scheme": "bearer", "description": "An API key: ms_…"}},
    }
    reason = documents.header("X-Reason", "Why: kept in the audit.", {"type": "string", "maxLength": 500})
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            if path not in _OPEN:
                operation["security"] = [{"key": []}]
                if method != "get":
                    operation.setdefault("parameters", []).append(reason)
    return document
