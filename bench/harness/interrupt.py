"""Ctrl-C ends the waiting, not the run: what has been measured by then is counted and printed.

Before there is anything to measure it ends the run, and so does a second one.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Coroutine
from typing import Any

from bench.harness.cluster import progress

EXIT_CODE = 130


def run_whole(run: Coroutine[Any, Any, dict[str, Any]]) -> dict[str, Any]:
    """What a scenario found; one that was ended before it found anything says so and exits."""
    try:
        return asyncio.run(run)
    except asyncio.CancelledError:
        progress("stopped before anything was measured")
        sys.exit(EXIT_CODE)


class Interrupt:
    """Made inside the loop; the first SIGINT cancels what `unless` runs, or else the run itself."""

    def __init__(self) -> None:
        run = asyncio.current_task()
        assert run is not None
        self._run: asyncio.Task[Any] = run
        self._waiting: asyncio.Task[Any] | None = None
        self.came = False
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, self._interrupt)

    async def unless(self, waiting: Coroutine[Any, Any, Any]) -> None:
        """Wait for this, but not beyond Ctrl-C."""
        if self.came:
            waiting.close()
            return
        self._waiting = asyncio.create_task(waiting)
        try:
            await self._waiting
        except asyncio.CancelledError:
            if not self._is_why():
                raise
        finally:
            self._waiting = None

    def _is_why(self) -> bool:
        """Whether a cancellation came from here, and not from whoever cancels the whole run."""
        return self.came and not self._run.cancelling()

    def _interrupt(self) -> None:
        again, self.came = self.came, True
        progress("stopping; a second Ctrl-C ends at once" if not again else "ending")
        (self._run if again or self._waiting is None else self._waiting).cancel()
