"""Refusals: which error becomes which status, decided in one table, answered as problem+json (RFC 9457).

    {"type": "urn:mainspring:invalid-input", "title": "Invalid input", "status": 422,
     "detail": "max_retries: -1 is not in 0–1000", "field": "max_retries", "rule": "-1 is not in 0–1000"}

The first class in the table that fits decides, so a more special one stands before its parent. What is not
in the table is a defect: 500, logged with its traceback, and answered without it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, NamedTuple

from starlette.responses import Response

from mainspring.schema import errors

MEDIA_TYPE = "application/problem+json"
RETRY_SECONDS = 1
"""What a client is told to wait when the database is away."""


class BadRequest(errors.InvalidInput):
    """A request that cannot be read: no JSON, a header that means nothing."""


class TooLarge(errors.InvalidInput):
    """A body or a line beyond the limit."""


class WrongMediaType(errors.InvalidInput):
    """A body that says it is something else than what is read here."""


class Unauthenticated(errors.MainspringError):
    """No key, or none that is valid."""


class RateLimited(errors.MainspringError):
    """The tenant has made more requests than it may in this time."""

    def __init__(self, retry_after: int) -> None:
        super().__init__(f"this tenant has made too many requests; try again in {retry_after} s")
        self.retry_after = retry_after


class KeyReused(errors.InvalidInput):
    """An Idempotency-Key that came with another request before."""

    def __init__(self) -> None:
        super().__init__("Idempotency-Key", "came with another request before; take a new one")


class Kind(NamedTuple):
    """What an error is to whoever asked."""

    status: HTTPStatus
    slug: str
    title: str


TABLE: tuple[tuple[type[Exception], Kind], ...] = (
    (BadRequest, Kind(HTTPStatus.BAD_REQUEST, "unreadable", "Unreadable request")),
    (TooLarge, Kind(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too-large", "Too large")),
    (WrongMediaType, Kind(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "wrong-media-type", "Wrong media type")),
    (KeyReused, Kind(HTTPStatus.UNPROCESSABLE_ENTITY, "key-reused", "Idempotency key reused")),
    (errors.InvalidInput, Kind(HTTPStatus.UNPROCESSABLE_ENTITY, "invalid-input", "Invalid input")),
    (errors.NotFound, Kind(HTTPStatus.NOT_FOUND, "not-found", "Not found")),
    (errors.NotAllowed, Kind(HTTPStatus.FORBIDDEN, "not-allowed", "Not allowed")),
    (Unauthenticated, Kind(HTTPStatus.UNAUTHORIZED, "unauthenticated", "Not authenticated")),
    (errors.QuotaExceeded, Kind(HTTPStatus.TOO_MANY_REQUESTS, "quota-exceeded", "Quota exceeded")),
    (RateLimited, Kind(HTTPStatus.TOO_MANY_REQUESTS, "rate-limited", "Too many requests")),
    (errors.NameTaken, Kind(HTTPStatus.CONFLICT, "name-taken", "Name taken")),
    (errors.VersionMismatch, Kind(HTTPStatus.PRECONDITION_FAILED, "version-mismatch", "Version mismatch")),
    (errors.RunEnded, Kind(HTTPStatus.CONFLICT, "run-ended", "Run ended")),
    (errors.RedriveRefused, Kind(HTTPStatus.CONFLICT, "redrive-refused", "Redrive refused")),
    (errors.WrongStatus, Kind(HTTPStatus.CONFLICT, "wrong-status", "Wrong status")),
    (errors.Contended, Kind(HTTPStatus.CONFLICT, "contended", "Contended")),
    (errors.PartitionBusy, Kind(HTTPStatus.SERVICE_UNAVAILABLE, "unavailable", "Unavailable")),
    (errors.DatabaseUnavailable, Kind(HTTPStatus.SERVICE_UNAVAILABLE, "unavailable", "Unavailable")),
)
DEFECT = Kind(HTTPStatus.INTERNAL_SERVER_ERROR, "defect", "Internal error")
QUOTA_RETRY_SECONDS = 60
"""A quota does not pass by waiting; jobs that are deleted or collected make room."""


def kind_of(error: Exception) -> Kind | None:
    """Its row of the table; None for a defect."""
    return next((kind for known, kind in TABLE if isinstance(error, known)), None)


def describe(error: Exception) -> dict[str, Any]:
    """The body of the answer, or a part of one: a line of a batch."""
    kind = kind_of(error)
    if kind is None:
        return problem(DEFECT, "this is a defect of Mainspring; the log has it")
    if isinstance(error, errors.DatabaseUnavailable):  # where it is, and why, is not for strangers
        return problem(kind, "the database cannot be reached; whether a change has happened is not known")
    body = problem(kind, str(error))
    if isinstance(error, errors.InvalidInput):
        body |= {"field": error.field, "rule": error.rule}
    elif isinstance(error, errors.NotAllowed):
        body["rule"] = error.rule
    elif isinstance(error, errors.QuotaExceeded):
        body |= {"field": "maximum_jobs", "rule": str(error)}
    elif isinstance(error, errors.NameTaken):
        body |= {"field": "name", "rule": "is taken", "names": list(error.names[:100])}
    elif isinstance(error, errors.VersionMismatch):
        body |= {"field": "If-Match", "rule": str(error), "version": error.actual}
    return body


def problem(kind: Kind, detail: str) -> dict[str, Any]:
    return {
        "type": f"urn:mainspring:{kind.slug}",
        "title": kind.title,
        "status": kind.status.value,
        "detail": detail,
    }


def answer(error: Exception) -> Response:
    """The whole answer, with the headers that its status wants."""
    body = describe(error)
    return respond(body, _headers(error))


def respond(body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> Response:
    content = json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
    return Response(content, body["status"], headers=dict(headers or {}), media_type=MEDIA_TYPE)


def _headers(error: Exception) -> dict[str, str]:
    if isinstance(error, Unauthenticated):
        return {"WWW-Authenticate": 'Bearer realm="mainspring"'}
    if isinstance(error, RateLimited):
        return {"Retry-After": str(error.retry_after)}
    if isinstance(error, errors.QuotaExceeded):
        return {"Retry-After": str(QUOTA_RETRY_SECONDS)}
    if isinstance(error, errors.DatabaseUnavailable | errors.PartitionBusy):
        return {"Retry-After": str(RETRY_SECONDS)}
    return {}
