"""Structured logs: readable on a terminal, one JSON object a line otherwise.

Events are constant names with their data beside them: `log.info("bucket_published", shard=7, runs=812)`.
They go to stderr, because stdout belongs to data. What libraries say through `logging` takes the same road.
"""

from __future__ import annotations

import logging
import sys
from typing import TextIO

import structlog
from structlog.typing import Processor

from mainspring.settings import LogSettings

# What these say below a warning, several lines a second at `debug`, is not about Mainspring.
_CHATTY = ("asyncio", "grpc", "uvicorn")


def configure(settings: LogSettings, stream: TextIO | None = None) -> None:
    """Set up logging for this process; calling it again replaces the earlier set-up."""
    stream = stream or sys.stderr
    level = logging.getLevelNamesMapping()[settings.level.upper()]
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *_renderers(settings.format, stream),
            ],
        )
    )
    for library in _CHATTY:
        logging.getLogger(library).setLevel(max(level, logging.WARNING))
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level)


def _renderers(chosen: str, stream: TextIO) -> list[Processor]:
    if chosen == "console" or (chosen == "auto" and stream.isatty()):
        return [structlog.dev.ConsoleRenderer(colors=stream.isatty())]
    return [structlog.processors.dict_tracebacks, structlog.processors.JSONRenderer()]
