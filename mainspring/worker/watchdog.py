"""The watchdog: a thread that notices when the event loop stands still, and says which handler holds it.

An asynchronous handler that computes for seconds, or calls something that blocks, holds up every other
run of its worker, the heartbeat included. It cannot be stopped from outside; it can be named.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import traceback
from collections.abc import Callable

import structlog

from mainspring.clock import Clock

STILL_SECONDS = 1.0
_TICK_SECONDS = 0.1
_LOOK_SECONDS = 0.25
_SHOWN_FRAMES = 6

log = structlog.get_logger()


class Watchdog:
    """Watches the loop in whose thread it is made."""

    def __init__(
        self,
        clock: Clock,
        handler_of: Callable[[asyncio.Task[object] | None], str | None],
        on_block: Callable[[str], None],
    ) -> None:
        self._clock = clock
        self._handler_of = handler_of
        self._on_block = on_block
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._ticked = clock.monotonic()
        self._told = False
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="mainspring-watchdog", daemon=True)

    def start(self) -> None:
        self._tick()
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()

    def look(self) -> str | None:
        """Who holds the loop, once per standstill: a handler's name; None while the loop moves."""
        if self._told or self._clock.monotonic() - self._ticked < STILL_SECONDS:
            return None
        self._told = True
        name = self._handler_of(asyncio.current_task(self._loop)) or "none: the worker itself"
        frame = sys._current_frames().get(self._loop_thread)
        stack = "".join(traceback.format_stack(frame)[-_SHOWN_FRAMES:]) if frame is not None else ""
        log.error("loop_blocked", handler=name, seconds=STILL_SECONDS, stack=stack)
        self._on_block(name)
        return name

    def _tick(self) -> None:
        self._ticked = self._clock.monotonic()
        self._told = False
        if not self._stopping.is_set():
            self._loop.call_later(_TICK_SECONDS, self._tick)

    def _watch(self) -> None:
        while not self._stopping.wait(_LOOK_SECONDS):
            self.look()
