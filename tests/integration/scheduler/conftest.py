"""Each test finds an empty database on its own clock, and has topics of its own: simulated.py, stage.py."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, MutableMapping
from typing import Any

import asyncpg
import pytest
from structlog.testing import capture_logs

from mainspring.local import LocalStack
from mainspring.settings import KafkaSettings
from tests.integration.scheduler.simulated import create, drop, reset
from tests.integration.scheduler.stage import Stage


@pytest.fixture(scope="session")
def simulated(stack: LocalStack) -> Iterator[str]:
    server = stack.environment()["MAINSPRING_POSTGRES_DSN"]
    dsn = asyncio.run(create(server))
    yield dsn
    asyncio.run(drop(server, dsn))


@pytest.fixture
async def stage(stack: LocalStack, simulated: str) -> AsyncIterator[Stage]:
    await reset(simulated)
    async with asyncpg.create_pool(simulated, min_size=1, max_size=6) as pool:
        made = Stage(simulated, pool, KafkaSettings.from_environment(stack.environment()))
        yield made
        await made.close()


@pytest.fixture(autouse=True)
def events() -> Iterator[list[MutableMapping[str, Any]]]:
    """What was logged, in place of a log."""
    with capture_logs() as captured:
        yield captured
