"""Receivers and handlers for the tests of this folder."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.integration.worker_builtin.receiver import Receiver


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with Receiver() as started:
        yield started


@pytest.fixture
async def neighbour(receiver: Receiver) -> AsyncIterator[Receiver]:
    """On the same port of another loopback address: what an attacker would like to reach."""
    async with Receiver("127.0.0.2", receiver.port) as started:
        yield started
