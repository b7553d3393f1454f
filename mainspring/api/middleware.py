"""Around every request: its path kept in segments, its time taken, one event about it.

Plain ASGI, because a batch must stream through it in both directions.
"""

from __future__ import annotations

from urllib.parse import unquote

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mainspring.api.services import Services

PREFIX = "/api/v1"
QUIET = frozenset({"/healthz", "/readyz", "/metrics"})
"""Asked every few seconds by machines: their event is of level debug."""

log = structlog.get_logger()


class Segments:
    """Keeps an encoded slash inside its segment: `/jobs/team%2Freport` is one job, not a path of its own.

    Servers decode the path before anybody splits it. Here each segment is decoded by itself, and what would
    split it (and the percent sign, which says so) stays encoded; who takes a name out of a path decodes that.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raw: bytes | None = scope.get("raw_path")
        if scope["type"] == "http" and raw and b"%" in raw:
            path = raw.partition(b"?")[0].decode("ascii", "replace")
            scope = {**scope, "path": "/".join(_kept(segment) for segment in path.split("/"))}
        await self._app(scope, receive, send)


class Observation:
    """Counts and times every request, and says what was answered to whom."""

    def __init__(self, app: ASGIApp, services: Services) -> None:
        self._app = app
        self._services = services

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        clock, metrics = self._services.clock, self._services.metrics
        begun, status = clock.monotonic(), 500

        async def observe(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        scope.setdefault("state", {})
        metrics.under_way.inc()
        try:
            await self._app(scope, receive, observe)
        finally:
            metrics.under_way.dec()
            route, seconds = _route(scope), clock.monotonic() - begun
            metrics.answered(_method(scope), route, status, seconds)
            _tell(scope, route, status, seconds)


def _tell(scope: Scope, route: str, status: int, seconds: float) -> None:
    caller = scope["state"].get("caller")
    tell = log.debug if scope["path"] in QUIET else log.info
    tell(
        "request_served",
        method=_method(scope),
        route=route,
        path=scope["path"],
        status=status,
        seconds=round(seconds, 4),
        client=(scope.get("client") or ("",))[0],
        tenant=caller.tenant if caller else None,
        key=caller.name if caller else None,
    )


def _kept(segment: str) -> str:
    return unquote(segment).replace("%", "%25").replace("/", "%2F")


def _route(scope: Scope) -> str:
    """The route's pattern: a label must not have as many values as there are jobs."""
    pattern: str | None = getattr(scope.get("route"), "path", None)
    if pattern is None:
        return "unmatched"
    return pattern if pattern.startswith(PREFIX) or not scope["path"].startswith(PREFIX) else PREFIX + pattern


def _method(scope: Scope) -> str:
    """A method that HTTP knows: others are somebody's own, without end."""
    method: str = scope["method"]
    return method if method in ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS") else "other"
