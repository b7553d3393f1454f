"""The handlers that the workers of these tests execute; each writes into the journal what it did."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from mainspring.worker import Context, Mainspring
from tests.acceptance.worker.journal import write

app = Mainspring()


@app.handler("work")
async def work(context: Context) -> None:
    """Takes `seconds`, or `again` when it is not the first attempt; says so when it is stopped before.
    A stubborn one ends well all the same.
    """
    payload = context.payload
    write(context, "start")
    try:
        await asyncio.sleep(payload["seconds"] if context.attempt == 1 else payload.get("again", 0.1))
    except asyncio.CancelledError:
        if not payload.get("stubborn"):
            write(context, "stopped")
            raise
    if context.attempt == payload.get("fails"):
        raise RuntimeError(f"attempt {context.attempt} was to fail")
    write(context, "end")


@app.handler("kill")
async def kill(context: Context) -> None:
    """Ends its worker, once the others of its batch have begun."""
    write(context, "start")
    await asyncio.sleep(context.payload["seconds"])
    os._exit(17)


@app.handler("block")
async def block(context: Context) -> None:
    """Holds the event loop."""
    write(context, "start")
    time.sleep(context.payload["seconds"])  # noqa: ASYNC251  (that is what it is for)
    write(context, "end")


@app.handler("effect")
async def effect(context: Context) -> None:
    """Writes a row in its transaction; its first attempt waits where it is told to, to be killed there."""
    write(context, "start")
    async with context.transaction() as connection:
        await connection.execute("INSERT INTO done VALUES ($1)", context.job_id)
        if context.payload["wait"] == "before" and context.attempt == 1:
            await _wait_for_the_end(context)
    if context.payload["wait"] == "after" and context.attempt == 1:
        await _wait_for_the_end(context)
    write(context, "end")


@app.handler("fail-until")
async def fail_until(context: Context) -> None:
    """Fails until the file is there."""
    write(context, "start")
    if not Path(context.payload["file"]).exists():  # noqa: ASYNC240
        raise RuntimeError("the file is not there")
    write(context, "end")


async def _wait_for_the_end(context: Context) -> None:
    write(context, "here")
    await asyncio.Event().wait()
