"""The handlers that the worker of these tests executes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from mainspring.worker import Context, Mainspring

app = Mainspring()


@app.handler("greet")
async def greet(context: Context) -> dict[str, Any]:
    """Says hello, and answers with what it was given."""
    context.log(f"hello {context.payload['name']}")
    return {"greeted": context.payload["name"]}


@app.handler("charge")
async def charge(context: Context) -> None:
    """Fails until its file is there."""
    if not Path(context.payload["file"]).exists():  # noqa: ASYNC240
        raise RuntimeError("the card was declined")


@app.handler("crunch")
async def crunch(context: Context) -> None:
    """Goes on until it is stopped."""
    context.log("crunching")
    await asyncio.Event().wait()
