"""Runs for the built-in handlers, and the code blocks of their page."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import mainspring
from mainspring.clock import Clock, SystemClock
from mainspring.schema.messages import JobDefinition, Message
from mainspring.worker.context import Context, ContextServices

PAGE = Path(mainspring.__file__).parent.parent / "docs" / "builtin-handlers.md"
SCHEDULED_AT = 1_767_225_600_000_000  # 2026-01-01T00:00:00Z
JOB_ID = 7


def run_of(
    payload: Any, *, attempt: int = 1, seconds: float = 60, key: str = "", clock: Clock | None = None
) -> Context:
    """One run as a worker would hand it over; `key` is the job's template for the idempotency key."""
    clock = clock or SystemClock()
    job = JobDefinition(
        JOB_ID, 1, 1, "http", payload_json=json.dumps(payload).encode(), idempotency_key_template=key
    )
    second = SCHEDULED_AT // 1_000_000
    message = Message(attempt, attempt - 1, 0, 0, second, SCHEDULED_AT, 0, 1, 1, None, job)
    return Context(message, clock.monotonic() + seconds, ContextServices(clock))


def python_of_the_page() -> dict[str, Any]:
    """What the page's one block of Python defines."""
    [block] = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    defined: dict[str, Any] = {}
    exec(compile(block, PAGE.name, "exec"), defined)
    return defined
