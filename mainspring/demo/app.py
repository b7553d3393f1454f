"""The handlers of the demo, as anybody's would look: `mainspring worker --app mainspring.demo.app:app`."""

from __future__ import annotations

import asyncio
import os

from mainspring.settings import PREFIX
from mainspring.worker import Context, Mainspring

JOURNAL = f"{PREFIX}DEMO_JOURNAL"
"""The file in which every call is a line; without it none is written."""

app = Mainspring()


@app.handler("demo.greet")
async def greet(context: Context) -> str:
    _write_down(context)
    return f"{context.payload['greeting']}, due at {context.scheduled_at:%H:%M:%S}"


@app.handler("demo.fail")
async def fail(context: Context) -> None:
    _write_down(context)
    context.log("about to fail", attempt=context.attempt)
    raise RuntimeError("this one always fails; see its dead letter")


@app.handler("demo.march")
async def march(context: Context) -> dict[str, int]:
    _write_down(context)
    seconds = context.payload["seconds"]
    for second in range(1, seconds + 1):
        await asyncio.sleep(1)
        context.progress(second / seconds)
        context.log("a step", second=second)
    return {"steps": seconds}


def _write_down(context: Context) -> None:
    """One write to a file opened for appending: whole lines, whoever else writes."""
    journal = os.environ.get(JOURNAL)
    if not journal:
        return
    file = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, f"{context.name} {context.scheduled_at.isoformat()} {context.attempt}\n".encode())
    finally:
        os.close(file)
