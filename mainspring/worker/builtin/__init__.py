"""Handlers that need no code of the user's: `http` sends a request, `kafka` publishes a message.

docs/builtin-handlers.md is their page. A failure that another attempt cannot mend (a payload that breaks a
rule, an address that is refused, an answer that says the request itself is wrong) leaves them as
`NotRetryable`: the run is to be a dead letter at once, whatever retries the job has left.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mainspring.clock import Clock
from mainspring.worker.app import Handler
from mainspring.worker.builtin.addresses import Resolver
from mainspring.worker.builtin.failures import InvalidPayload, RequestFailed
from mainspring.worker.builtin.http import HttpHandler
from mainspring.worker.builtin.kafka import KafkaHandler, ProducerFactory, make_producer
from mainspring.worker.builtin.settings import HttpHandlerSettings
from mainspring.worker.context import Context
from mainspring.worker.signals import NotRetryable

__all__ = [
    "HttpHandlerSettings",
    "InvalidPayload",
    "NotRetryable",
    "ProducerFactory",
    "RequestFailed",
    "builtin_handlers",
    "make_producer",
]


def builtin_handlers(
    settings: HttpHandlerSettings,
    producer_factory: ProducerFactory,
    *,
    resolver: Resolver | None = None,
    clock: Clock | None = None,
) -> Mapping[str, Handler]:
    """The built-in handlers by name, for a worker process.

    `producer_factory` is called when the first message is to be sent, and again when a producer has met an
    error that it cannot outlive; see `make_producer` for what it must be.
    """
    functions: dict[str, Callable[[Context], Any]] = {
        "http": HttpHandler(settings, resolver, clock),
        "kafka": KafkaHandler(producer_factory),
    }
    return {name: Handler.of(name, function) for name, function in functions.items()}
