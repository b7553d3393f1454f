"""What the driver raises when Postgres goes away is told as such."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import asyncpg
import pytest

from mainspring.registry.edge import Pool, connected
from mainspring.schema.errors import DatabaseUnavailable


class _Lending:
    """A pool that lends nothing of use."""

    @asynccontextmanager
    async def acquire(self) -> AsyncIterator[None]:
        yield


@pytest.mark.parametrize(
    "parting",
    [
        asyncpg.InternalClientError("cannot switch to state 15; another operation (2) is in progress"),
        asyncpg.IdleInTransactionSessionTimeoutError("terminating connection"),
        asyncpg.AdminShutdownError("terminating connection"),
        asyncpg.InterfaceError("connection is closed"),
        TimeoutError(),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_a_server_that_left_in_the_middle_is_unavailable(parting: Exception) -> None:
    with pytest.raises(DatabaseUnavailable):
        async with connected(cast("Pool", _Lending())):
            raise parting
