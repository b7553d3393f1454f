"""Waiting for what a line between a worker and Postgres does not tell."""

from __future__ import annotations

import asyncio

from tests.integration.scheduler.line import Line
from tests.integration.worker.bench import PATIENCE


async def mend_when_cut(line: Line) -> None:
    """Wait until somebody has come in vain."""
    async with asyncio.timeout(PATIENCE):
        while not line.refused:  # noqa: ASYNC110  (the line sets no event)
            await asyncio.sleep(0.01)
    line.mend()
