"""Run a program in the foreground until Ctrl-C or SIGTERM, both of which mean: stop in an orderly way."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any


def run_until_signalled(program: Coroutine[Any, Any, None]) -> signal.Signals | None:
    """Run `program` and cancel it on SIGINT, SIGTERM or SIGHUP; its clean-up is awaited.

    Returns the signal that ended it, or None when it returned by itself. A second signal changes nothing:
    the stop that is under way has a bound of its own.
    """
    received: list[signal.Signals] = []

    async def supervise() -> None:
        loop = asyncio.get_running_loop()
        task = asyncio.create_task(program, name="mainspring-foreground")

        def cancel(number: signal.Signals) -> None:
            if not received:
                received.append(number)
                task.cancel()

        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, cancel, number)
        try:
            await task
        except asyncio.CancelledError:
            if not received:
                raise

    asyncio.run(supervise())
    return received[0] if received else None
