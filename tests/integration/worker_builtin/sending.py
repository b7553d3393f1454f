"""Calls the handlers as a worker does."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Producer

from mainspring.clock import Clock
from mainspring.worker.builtin import HttpHandlerSettings, builtin_handlers
from mainspring.worker.builtin.addresses import Resolver
from mainspring.worker.context import Context
from tests.unit.worker_builtin.runs import run_of

SECRET = "a secret of some length"


def http_handler(
    allow: str = "127.0.0.1", resolver: Resolver | None = None, clock: Clock | None = None, **variables: str
) -> Any:
    """The handler's function, with the settings that an operator would give."""
    given = {"MAINSPRING_HTTP_ALLOW_PRIVATE": allow}
    given |= {f"MAINSPRING_HTTP_{name}": value for name, value in variables.items()}
    settings = HttpHandlerSettings.from_environment(given)
    handler = builtin_handlers(settings, no_producer, resolver=resolver, clock=clock)["http"]
    assert handler.is_async
    return handler.function


async def send(
    url: str, handler: Any = None, *, context: Context | None = None, **payload: Any
) -> dict[str, Any]:
    """Send one request: its result."""
    result = await (handler or http_handler())(context or run_of({"url": url, **payload}))
    assert isinstance(result, dict)
    return result


def no_producer() -> Producer:
    raise AssertionError("nobody asked for a message")
