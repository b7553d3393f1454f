"""The installation that the tests of this folder share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mainspring.local import LocalStack
from tests.acceptance.cli.installation import Installation


@pytest.fixture(scope="package")
def shared(stack: LocalStack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """Started once: each test uses jobs with names of its own."""
    with Installation.on(stack, tmp_path_factory.mktemp("installation")) as installation:
        yield installation
