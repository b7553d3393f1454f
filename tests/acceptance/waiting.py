"""Waiting for facts. Only a fact that never comes costs the whole deadline."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

GENEROUS_SECONDS = 120.0
"""No test expects anything to take this long: a busy machine must not look like a fault."""

_PAUSE_SECONDS = 0.05


async def until(
    fact: Callable[[], bool | Awaitable[bool]], what: str, *, pause: float = _PAUSE_SECONDS
) -> None:
    """Return when the fact holds; a fact that never comes fails by its name."""
    try:
        async with asyncio.timeout(GENEROUS_SECONDS):
            while True:
                answer = fact()
                if await answer if isinstance(answer, Awaitable) else answer:
                    return
                await asyncio.sleep(pause)
    except TimeoutError:
        raise AssertionError(f"within {GENEROUS_SECONDS:g} s it never came true that {what}") from None


async def turn_of_a_second(phase: float) -> float:
    """Return that many seconds after a whole one, when the bucket of that second is under way: the time."""
    await asyncio.sleep(1 - time.time() % 1 + phase)
    return time.time()
