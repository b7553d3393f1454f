"""The two transports: send once, wait as the core says, send again. Everything else is in core.py."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any, TypeVar

import httpx

from mainspring.client.core import CONNECT_SECONDS, Answer, Attempts, Broken, Call, Patience, Request
from mainspring.client.settings import ClientSettings

T = TypeVar("T")

_UNSENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)


class Transport:
    """Over httpx.Client; safe to share between threads."""

    def __init__(self, settings: ClientSettings, timeout: float, patience: Patience) -> None:
        self._address = settings.url
        self._patience = patience
        self._http = httpx.Client(**_arguments(settings, timeout))

    def send(self, call: Call[T]) -> T:
        attempts = Attempts(call.request, self._patience, time.monotonic, random.random)
        while True:
            outcome = self._once(call.request)
            wait = attempts.wait_after(outcome, whole=_is_whole(call, outcome))
            if wait is None:
                return attempts.conclude(call, outcome, self._address)
            self.sleep(wait)

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def close(self) -> None:
        self._http.close()

    def _once(self, request: Request) -> Answer | Broken:
        try:
            return _answer(self._http.request(**_sent(self._address, request)))
        except httpx.RequestError as error:
            return _broken(error)


class AsyncTransport:
    """Over httpx.AsyncClient, in one event loop."""

    def __init__(self, settings: ClientSettings, timeout: float, patience: Patience) -> None:
        self._address = settings.url
        self._patience = patience
        self._http = httpx.AsyncClient(**_arguments(settings, timeout))

    async def send(self, call: Call[T]) -> T:
        attempts = Attempts(call.request, self._patience, time.monotonic, random.random)
        while True:
            outcome = await self._once(call.request)
            wait = attempts.wait_after(outcome, whole=_is_whole(call, outcome))
            if wait is None:
                return attempts.conclude(call, outcome, self._address)
            await self.sleep(wait)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def close(self) -> None:
        await self._http.aclose()

    async def _once(self, request: Request) -> Answer | Broken:
        try:
            return _answer(await self._http.request(**_sent(self._address, request)))
        except httpx.RequestError as error:
            return _broken(error)


def _arguments(settings: ClientSettings, timeout: float) -> dict[str, Any]:
    headers = {"User-Agent": f"mainspring/{version('mainspring')}", "Accept": "application/json"}
    if settings.api_key is not None:
        headers["Authorization"] = f"Bearer {settings.api_key}"
    return {
        "headers": headers,
        "verify": settings.verify(),
        "timeout": httpx.Timeout(timeout, connect=min(timeout, CONNECT_SECONDS)),
    }


def _sent(address: str, request: Request) -> dict[str, Any]:
    return {
        "method": request.method,
        "url": address + request.path,
        "params": request.query or None,
        "headers": _utf8(request.headers),
        "content": request.content,
    }


def _utf8(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    """A reason may be in any language, and httpx would take ASCII alone."""
    return [(name.encode(), value.encode()) for name, value in headers.items()]


def _answer(response: httpx.Response) -> Answer:
    return Answer(response.status_code, response.content, dict(response.headers))


def _broken(error: httpx.RequestError) -> Broken:
    return Broken(str(error) or type(error).__name__, sent=not isinstance(error, _UNSENT))


def _is_whole(call: Call[Any], outcome: Answer | Broken) -> bool:
    if isinstance(outcome, Broken) or not 200 <= outcome.status < 300:
        return True
    return call.is_whole(outcome)
