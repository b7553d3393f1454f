"""Facts about other sessions, polled until they hold; the caller sets the deadline."""

from __future__ import annotations

import asyncio

from tests.integration.schema.rows import Connection


async def until_waiting(watcher: Connection, other: Connection) -> None:
    """Until the other session waits for a lock that somebody holds."""
    while not await is_waiting(watcher, other):  # noqa: ASYNC110  (the server sets no event)
        await asyncio.sleep(0.01)


async def is_waiting(watcher: Connection, other: Connection) -> bool:
    """Whether the other session waits for a lock that somebody holds."""
    return bool(await watcher.fetchval("SELECT pg_blocking_pids($1)", other.get_server_pid()))


async def until_asked(watcher: Connection, other: Connection, words: str) -> None:
    """Until the other session's last statement, now finished, held these words.

    The watcher must not be in a transaction: there Postgres repeats the activity it saw first.
    """
    asked = "SELECT state = 'idle' AND query LIKE '%' || $2 || '%' FROM pg_stat_activity WHERE pid = $1"
    while not await watcher.fetchval(asked, other.get_server_pid(), words):  # noqa: ASYNC110
        await asyncio.sleep(0.01)
