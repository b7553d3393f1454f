"""Duties: singleton background work, elected among the schedulers like a shard.

A duty is an object with `async run_once()`, repeated every `pause` while this process holds it. Two
processes may do the same duty for a moment around a change of hands, so each is written to be harmless
then. A round that fails is logged and tried again; it ends neither the duty nor the process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from datetime import timedelta
from typing import Protocol, TypeAlias

import asyncpg
import structlog

from mainspring.schema.errors import MainspringError

log = structlog.get_logger()


class Duty(Protocol):
    """One kind of background work."""

    pause: timedelta

    async def run_once(self) -> object:
        """Do what there is to do now; the result is logged."""


Observer: TypeAlias = Callable[[str, object | None], None]
"""Told of every round: the duty's name, and its result; None for a round that failed."""


class Duties:
    """Starts the duties that this process holds and stops those it does not."""

    def __init__(self, duties: Mapping[str, Duty], tasks: asyncio.TaskGroup, observe: Observer) -> None:
        self._duties = duties
        self._tasks = tasks
        self._observe = observe
        self._running: dict[str, asyncio.Task[None]] = {}

    @property
    def names(self) -> Collection[str]:
        return self._duties.keys()

    async def attend(self, mine: Collection[str]) -> None:
        """Do exactly these from now on."""
        for name in [name for name in self._running if name not in mine]:
            await self._end(name)
        for name in mine:
            if name in self._duties and name not in self._running:
                log.info("duty_began", duty=name)
                self._running[name] = self._tasks.create_task(self._repeat(name), name=f"duty-{name}")

    async def stop(self) -> None:
        """Do none any more."""
        await self.attend(())

    async def _end(self, name: str) -> None:
        task = self._running.pop(name)
        task.cancel()
        await asyncio.wait([task])
        log.info("duty_ended", duty=name)

    async def _repeat(self, name: str) -> None:
        duty = self._duties[name]
        while True:
            try:
                result = await duty.run_once()
            except (MainspringError, asyncpg.PostgresError) as error:
                log.warning("duty_failed", duty=name, reason=str(error))
                self._observe(name, None)
            except Exception:  # a defect of one duty must not end what this process leads
                log.exception("duty_fault", duty=name)
                self._observe(name, None)
            else:
                log.debug("duty_done", duty=name, result=result)
                self._observe(name, result)
            await asyncio.sleep(duty.pause.total_seconds())
