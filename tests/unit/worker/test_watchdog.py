"""Who holds the event loop, told once per standstill."""

from __future__ import annotations

import asyncio
import threading
import time
from datetime import timedelta
from typing import Any

from structlog.testing import capture_logs

from mainspring.clock import ManualClock, SystemClock
from mainspring.worker.watchdog import STILL_SECONDS, Watchdog
from tests.unit.worker.runs import NOON

BOUND_SECONDS = 60.0


class World:
    """A watchdog whose time passes by hand; its thread is not started, `tick` is the loop's."""

    def __init__(self) -> None:
        self.clock = ManualClock(NOON)
        self.handlers: dict[asyncio.Task[Any] | None, str] = {}
        self.blocked: list[str] = []
        self.dog = Watchdog(self.clock, self.handlers.get, self.blocked.append)

    def wait(self, seconds: float) -> None:
        self.clock.advance(timedelta(seconds=seconds))


async def test_a_loop_that_moves_is_held_by_nobody() -> None:
    world = World()
    world.wait(STILL_SECONDS - 0.1)
    assert world.dog.look() is None
    assert world.blocked == []


async def test_the_handler_that_holds_the_loop_is_named_once() -> None:
    world = World()
    world.handlers[asyncio.current_task()] = "greedy"
    world.wait(STILL_SECONDS)
    with capture_logs() as logs:
        assert world.dog.look() == "greedy"
        world.wait(10)
        assert world.dog.look() is None
    assert world.blocked == ["greedy"]
    [event] = logs
    assert (event["event"], event["handler"], event["log_level"]) == ("loop_blocked", "greedy", "error")
    assert "test_the_handler_that_holds_the_loop_is_named_once" in event["stack"]


async def test_a_standstill_without_a_handler_is_the_workers_own() -> None:
    world = World()
    world.wait(STILL_SECONDS)
    assert world.dog.look() == "none: the worker itself"


async def test_a_real_standstill_is_seen_from_the_other_thread_and_the_next_one_again() -> None:
    """The handler holds the loop until it has been named, twice; in between the loop moves."""
    told = threading.Semaphore(0)
    task = asyncio.current_task()

    def block(name: str) -> None:
        if name == "greedy":  # a machine that stands still is nobody's fault
            told.release()

    dog = Watchdog(SystemClock(), lambda each: "greedy" if each is task else None, block)
    dog.start()
    try:
        for _ in range(2):
            assert told.acquire(timeout=BOUND_SECONDS)
            await moved(dog)
    finally:
        dog.stop()


async def moved(dog: Watchdog) -> None:
    """Until the loop has ticked again."""
    before, end = dog._ticked, time.monotonic() + BOUND_SECONDS
    while dog._ticked == before:
        assert time.monotonic() < end
        await asyncio.sleep(0.01)
