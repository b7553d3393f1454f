"""Run a program in the foreground until Ctrl-C or SIGTERM, both of which mean: stop in an orderly way."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from typing import Any


def run_until_signalled(
    program: Coroutine[Any, Any, None], interrupt: Callable[[], bool] = lambda: False
) -> signal.Signals | None:
    """Run `program` and cancel it on SIGINT, SIGTERM or SIGHUP; its clean-up is awaited.

    Returns the signal that ended it, or None when it returned by itself. A signal after that one changes
    nothing: the stop that is under way has a bound of its own. `interrupt` is asked first; True means that
    the program has heard of it and will end by itself.
    """
    received: list[signal.Signals] = []

    async def supervise() -> None:
        loop = asyncio.get_running_loop()
        task = asyncio.create_task(program, name="mainspring-foreground")

        def cancel(number: signal.Signals) -> None:
            if not received and not interrupt():
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
