"""Days: the tables that grow with every run are cut by UTC day, made ahead of time and removed whole.

Claims write to these tables all the time, and a claim must never wait for housekeeping. `CREATE TABLE …
PARTITION OF` and plain `DETACH` or `DROP` want ACCESS EXCLUSIVE on the parent: they queue behind one open
reader (a backup reads for hours), and every claim queues behind them. So

  made      as a table of its own, then ATTACHed, in one transaction: SHARE UPDATE EXCLUSIVE on the parent,
            which neither readers nor writers notice. The table is empty, so ATTACH has nothing to scan and
            needs no CHECK of the bounds; one would stay behind and be evaluated for every run.
  removed   by DETACH … CONCURRENTLY, then DROP of what is then nobody's table. Detaching waits for readers
            without anybody waiting behind it. It cannot be in a transaction, so it can be interrupted at
            two places: while detaching (FINALIZE ends it) and before the DROP. `drop_day` called again goes
            on from either.

Every statement has a lock_timeout; one that could not get its lock says so with PartitionBusy, and the
caller tries again later. There is no DEFAULT partition: it would forbid DETACH CONCURRENTLY and turn every
ATTACH into a scan of it. A row whose day is missing is refused by Postgres (23514); who writes it makes the
day first.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, timedelta
from typing import NamedTuple

import asyncpg

from mainspring.schema.errors import PartitionBusy
from mainspring.schema.queries import query

DAYS_AHEAD = 7

# All are cut by the day of `scheduled_at`, the ledger by that of `second`. Made in this order and removed
# in the reverse: where a day of `runs` exists, everything a run needs exists.
PARENTS = ("ledger", "arrivals", "effects", "failures", "results", "run_logs", "runs")

_LOCK_TIMEOUT = timedelta(seconds=2)
_MAKER_LOCK = 0x6D73_7061_7274_6E73  # "mspartns"


class _DayTable(NamedTuple):
    parent: str
    day: date
    state: str  # attached, detaching or detached

    @property
    def name(self) -> str:
        return _table(self.parent, self.day)


async def days_ahead(connection: asyncpg.Connection[asyncpg.Record]) -> list[date]:
    """Today, by Postgres's clock in UTC, and the days that must exist beyond it."""
    today = await connection.fetchval(query("today"))
    return [today + timedelta(days=offset) for offset in range(DAYS_AHEAD + 1)]


async def list_days(connection: asyncpg.Connection[asyncpg.Record]) -> list[date]:
    """The days that runs can be written to, in order."""
    tables = await _day_tables(connection)
    return sorted(day for day in {table.day for table in tables} if _is_whole(day, tables))


async def list_remains(connection: asyncpg.Connection[asyncpg.Record]) -> list[date]:
    """The days whose removal was interrupted: `drop_day` finishes it."""
    return sorted({table.day for table in await _day_tables(connection) if table.state != "attached"})


async def ensure_days(connection: asyncpg.Connection[asyncpg.Record], days: Iterable[date]) -> list[date]:
    """Make the days that are missing, and say which they were; several makers at once are safe.

    One query when nothing is missing, else one short transaction per table and day.
    """
    wanted = sorted(set(days))
    tables = await _day_tables(connection)
    missing = [day for day in wanted if not _is_whole(day, tables)]
    for day in missing:
        for parent in PARENTS:
            await _make(connection, parent, day)
    return missing


async def drop_day(connection: asyncpg.Connection[asyncpg.Record], day: date) -> bool:
    """Remove a day with everything in it, or finish an interrupted removal; False if nothing was left of it.

    Not inside a transaction. PartitionBusy means that a reader or another removal is in the way: what is done
    stays done.
    """
    tables = [table for table in await _day_tables(connection) if table.day == day]
    for table in sorted(tables, key=lambda table: PARENTS.index(table.parent), reverse=True):
        await _remove(connection, table)
    return bool(tables)


async def _day_tables(connection: asyncpg.Connection[asyncpg.Record]) -> list[_DayTable]:
    rows = await connection.fetch(query("day_tables"), PARENTS)
    return [_DayTable(row["parent"], date.fromisoformat(row["day"]), row["state"]) for row in rows]


def _is_whole(day: date, tables: list[_DayTable]) -> bool:
    attached = {table.parent for table in tables if table.day == day and table.state == "attached"}
    return attached == set(PARENTS)


async def _make(connection: asyncpg.Connection[asyncpg.Record], parent: str, day: date) -> None:
    table = _table(parent, day)
    try:
        async with connection.transaction():
            await _limit_lock_waits(connection, local=True)
            # Two makers of one table would otherwise meet in the catalog's unique indexes. Whoever removes
            # a day does not take this lock: it may wait for a reader for hours.
            await connection.execute(query("lock_partition_maker"), _MAKER_LOCK)
            state = await _state(connection, parent, day)
            if state == "attached":
                return
            if state is not None:
                raise PartitionBusy(table, "it is being removed; drop_day finishes that")
            await connection.execute(f"CREATE TABLE {table} (LIKE {parent} INCLUDING ALL)")
            await connection.execute(
                f"ALTER TABLE {parent} ATTACH PARTITION {table} "
                f"FOR VALUES FROM ('{day} 00:00:00+00') TO ('{day + timedelta(days=1)} 00:00:00+00')"
            )
    except (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError) as error:
        raise PartitionBusy(table, "its parent is locked by somebody else") from error


async def _remove(connection: asyncpg.Connection[asyncpg.Record], table: _DayTable) -> None:
    await _limit_lock_waits(connection, local=False)
    how = {"attached": "CONCURRENTLY", "detaching": "FINALIZE"}
    try:
        if table.state in how:
            await connection.execute(
                f"ALTER TABLE {table.parent} DETACH PARTITION {table.name} {how[table.state]}"
            )
        await connection.execute(f"DROP TABLE IF EXISTS {table.name}")
    except asyncpg.LockNotAvailableError as error:
        raise PartitionBusy(table.name, "a reader still uses it") from error
    except asyncpg.ObjectNotInPrerequisiteStateError as error:
        # A parent has at most one day on its way out: finish that one first (`list_remains`).
        raise PartitionBusy(table.name, f"another removal from {table.parent} is not finished") from error
    except (asyncpg.UndefinedTableError, asyncpg.DeadlockDetectedError) as error:
        raise PartitionBusy(table.name, "somebody else is making or removing it") from error
    finally:
        await connection.execute("RESET lock_timeout")


async def _state(connection: asyncpg.Connection[asyncpg.Record], parent: str, day: date) -> str | None:
    return next(
        (
            table.state
            for table in await _day_tables(connection)
            if table.parent == parent and table.day == day
        ),
        None,
    )


async def _limit_lock_waits(connection: asyncpg.Connection[asyncpg.Record], *, local: bool) -> None:
    milliseconds = _LOCK_TIMEOUT // timedelta(milliseconds=1)
    await connection.execute(f"SET {'LOCAL' if local else 'SESSION'} lock_timeout = {milliseconds}")


def _table(parent: str, day: date) -> str:
    return f"{parent}_{day:%Y%m%d}"
