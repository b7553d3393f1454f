"""Handlers for the tests of this folder."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from mainspring.worker import Context, Mainspring


def app_of(work: Callable[[Context], Any], **limits: Any) -> Mainspring:
    """An app whose only handler is `work`."""
    app = Mainspring()
    app.handler("work", **limits)(work)
    return app


async def nothing(context: Context) -> None:
    return None


async def fail(context: Context) -> None:
    raise ValueError(f"attempt {context.attempt} of order {context.payload} failed")


class Recorder:
    """Remembers which runs were executed, and with what."""

    def __init__(self) -> None:
        self.runs: list[str] = []
        self.payloads: list[Any] = []
        self.app = app_of(self._work)

    async def _work(self, context: Context) -> None:
        self.runs.append(context.run_id)
        self.payloads.append(context.payload)


class Gate:
    """A handler that waits until it is let go on, or is asked to stop."""

    def __init__(self, **limits: Any) -> None:
        self.open = asyncio.Event()
        self.entered: list[str] = []
        self.stopped: list[str] = []
        self.inside = self.most = 0
        self.app = app_of(self._work, **limits)

    async def _work(self, context: Context) -> None:
        self.entered.append(context.run_id)
        self.inside += 1
        self.most = max(self.most, self.inside)
        try:
            await self.open.wait()
        except asyncio.CancelledError:
            self.stopped.append(context.run_id)
            raise
        finally:
            self.inside -= 1
