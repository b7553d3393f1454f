"""Clusters for the tests of this folder."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mainspring.local import LocalStack
from tests.acceptance.scheduler.cluster import Cluster


@pytest.fixture
async def cluster(stack: LocalStack, migrated: str, tmp_path: Path) -> AsyncIterator[Cluster]:
    """A cluster on the stack that all tests share: only its schedulers may be broken."""
    async with Cluster.on(stack, migrated, tmp_path) as cluster:
        yield cluster
