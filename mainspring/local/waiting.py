"""Ways to wait: to the end whatever happens, for a thread that may be left behind, for all or one of many."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from threading import Thread
from typing import Any, TypeVar

Value = TypeVar("Value")


async def to_the_end(work: Coroutine[Any, Any, Value]) -> Value:
    """Await `work` to its end, also when the waiter is cancelled meanwhile; it is cancelled afterwards."""
    task = asyncio.create_task(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            cancelled = error
    value = await task
    if cancelled is not None:
        raise cancelled
    return value


async def in_thread(work: Callable[[], Value]) -> Value:
    """Run blocking work in a daemon thread that a cancelled wait leaves behind.

    `asyncio.to_thread` would hold the process at its exit until the work is done: a stalled download
    must not delay Ctrl-C. Whatever runs here is safe to abandon at any point.
    """
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[Value] = loop.create_future()

    def deliver(set_outcome: Callable[[Any], None], value: object) -> None:
        if not outcome.done():
            set_outcome(value)

    def report(set_outcome: Callable[[Any], None], value: object) -> None:
        with suppress(RuntimeError):  # the loop has closed: nobody waits any more
            loop.call_soon_threadsafe(deliver, set_outcome, value)

    def body() -> None:
        try:
            value = work()
        except BaseException as error:  # noqa: BLE001
            report(outcome.set_exception, error)
        else:
            report(outcome.set_result, value)

    Thread(target=body, name="mainspring-blocking", daemon=True).start()
    return await outcome


async def together(*jobs: Coroutine[Any, Any, object]) -> None:
    """Run all jobs at once; the first failure cancels the rest and is raised without a group around it."""
    try:
        async with asyncio.TaskGroup() as group:
            for job in jobs:
                group.create_task(job, name=f"mainspring-local:{job}")
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from failures


async def beside(work: Coroutine[Any, Any, Value], *others: Coroutine[Any, Any, None]) -> Value:
    """Await `work` while the others run, which never return; whoever fails first ends all of it."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(other, name="mainspring-beside") for other in others]
            value = await work
            for task in tasks:
                task.cancel()
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from failures
    return value
