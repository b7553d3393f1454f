"""The installation that the tests of this folder share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mainspring.client import Client
from mainspring.local import LocalStack
from tests.acceptance.cli.installation import Installation


@pytest.fixture
def own(shared: Installation) -> Installation:
    """The shared installation as a tenant of this test's own."""
    return shared.tenant()


@pytest.fixture
def client(own: Installation) -> Iterator[Client]:
    """The same tenant's client."""
    with own.client() as client:
        yield client


@pytest.fixture(scope="package")
def shared(stack: LocalStack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """Started once for all of them."""
    with Installation.on(stack, tmp_path_factory.mktemp("installation")) as installation:
        yield installation
