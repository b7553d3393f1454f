"""The handlers of these runs; each writes into the journal what it was given and how it ended."""

from __future__ import annotations

import asyncio
from typing import Any

from mainspring.worker import Context, Mainspring
from tests.acceptance.worker.journal import write

app = Mainspring()


@app.handler("work")
async def work(context: Context) -> None:
    """Takes `seconds`; its first `fails` attempts fail."""
    payload = context.payload
    await _during(context, payload)
    write(context, "end")


@app.handler("effect")
async def effect(context: Context) -> None:
    """The same, and leaves a row behind in a transaction of its own before it fails or ends."""
    write(context, f"start {context.payload['mark']}")
    async with context.transaction() as connection:
        await connection.execute(
            "INSERT INTO done (job_id, scheduled_at, attempt) VALUES ($1, $2, $3)",
            context.job_id,
            context.scheduled_at,
            context.attempt,
        )
        await asyncio.sleep(context.payload["seconds"])
    write(context, "end")


async def _during(context: Context, payload: dict[str, Any]) -> None:
    write(context, f"start {payload['mark']}")
    try:
        await asyncio.sleep(payload["seconds"])
    except asyncio.CancelledError:
        write(context, "stopped")
        raise
    if context.attempt <= payload["fails"]:
        write(context, "raised")
        raise RuntimeError(f"attempt {context.attempt} was to fail")
