"""Fleets for the tests of this folder."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mainspring.local import LocalStack
from tests.acceptance.worker.fleet import Fleet


@pytest.fixture
async def fleet(stack: LocalStack, migrated: str, tmp_path: Path) -> AsyncIterator[Fleet]:
    """A fleet on the stack that all tests share: only its own processes may be broken."""
    async with Fleet.on(stack, migrated, tmp_path) as fleet:
        yield fleet
