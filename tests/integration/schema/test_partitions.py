"""Days: made ahead, removed whole, and nobody who writes runs ever waits for either."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime, time, timedelta
from itertools import count
from typing import NamedTuple

import asyncpg
import pytest

from mainspring.schema import partitions
from mainspring.schema.errors import PartitionBusy
from mainspring.schema.partitions import (
    DAYS_AHEAD,
    PARENTS,
    days_ahead,
    drop_day,
    ensure_days,
    list_days,
    list_remains,
)
from tests.integration.schema.conftest import Connect
from tests.integration.schema.rows import Connection, insert
from tests.integration.schema.waiting import is_waiting, until_waiting

_years = count(2031)


class Days(NamedTuple):
    """Three days of a test's own, far from those that `migrate` made; two of them exist."""

    old: date
    other: date
    new: date


@pytest.fixture
async def connection(connect_to_days: Connect) -> AsyncIterator[Connection]:
    """A connection that finishes in the end what a failed test left half removed."""
    connection = await connect_to_days()
    yield connection
    for day in await list_remains(connection):
        await drop_day(connection, day)


@pytest.fixture
async def days(connection: Connection) -> Days:
    first = date(next(_years), 5, 1)
    days = Days(first, first + timedelta(days=1), first + timedelta(days=2))
    await ensure_days(connection, [days.old, days.other])
    return days


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A removal waits longer than any test: whatever happens meanwhile happens while it waits."""
    monkeypatch.setattr(partitions, "_LOCK_TIMEOUT", timedelta(minutes=5))


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A removal that meets a reader gives up at once."""
    monkeypatch.setattr(partitions, "_LOCK_TIMEOUT", timedelta(milliseconds=50))


@asynccontextmanager
async def dump(connection: Connection) -> AsyncIterator[None]:
    """What pg_dump does: one snapshot, and a lock on every table, for as long as it takes."""
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        await connection.execute(f"LOCK TABLE {', '.join(PARENTS)} IN ACCESS SHARE MODE")
        for parent in PARENTS:
            await connection.fetch(f"SELECT * FROM {parent}")
        yield


def noon(day: date) -> datetime:
    return datetime.combine(day, time(12), UTC)


async def tables_of(connection: Connection, day: date) -> set[str]:
    rows = await connection.fetch("SELECT relname FROM pg_class WHERE relname LIKE $1", f"%\\_{day:%Y%m%d}")
    return {row["relname"] for row in rows}


async def runs_of(connection: Connection, days: Days) -> list[datetime]:
    rows = await connection.fetch(
        "SELECT scheduled_at FROM runs WHERE scheduled_at BETWEEN $1 AND $2 ORDER BY scheduled_at",
        noon(days.old),
        noon(days.new),
    )
    return [row["scheduled_at"] for row in rows]


async def write_run(connection: Connection, day: date, job_id: int = 1) -> None:
    await insert(connection, "runs", scheduled_at=noon(day), job_id=job_id)


async def test_today_and_seven_days_exist_for_every_parent(connection: Connection) -> None:
    days = await days_ahead(connection)
    assert len(days) == DAYS_AHEAD + 1 == 8
    assert days == [days[0] + timedelta(days=offset) for offset in range(8)]
    assert await ensure_days(connection, days[:-1]) == []  # the last may be new if midnight has passed
    for day in days[:-1]:
        assert await tables_of(connection, day) == {f"{parent}_{day:%Y%m%d}" for parent in PARENTS}


async def test_every_partitioned_table_is_one_of_the_parents(undone: Connection) -> None:
    rows = await undone.fetch("SELECT relname FROM pg_class WHERE relkind = 'p'")
    assert {row["relname"] for row in rows} == set(PARENTS)


async def test_no_parent_has_a_default_partition(undone: Connection) -> None:
    assert await undone.fetch("SELECT FROM pg_partitioned_table WHERE partdefid <> 0") == []


async def test_a_day_is_made_once_and_only_if_it_is_missing(connection: Connection, days: Days) -> None:
    new = [days.new, days.new + timedelta(days=2)]
    assert await ensure_days(connection, [new[1], days.old, new[0], new[1]]) == new
    assert await ensure_days(connection, [days.old, *new]) == []
    assert (await list_days(connection))[-4:] == [days.old, days.other, *new]


async def test_a_day_of_which_one_table_is_missing_is_completed(connection: Connection, days: Days) -> None:
    await connection.execute(f"DROP TABLE failures_{days.old:%Y%m%d}")
    assert days.old not in await list_days(connection)
    assert await ensure_days(connection, [days.old, days.other]) == [days.old]
    assert days.old in await list_days(connection)


async def test_a_day_has_what_its_parent_has(connection: Connection, days: Days) -> None:
    """Checks, defaults, keys and indexes, each attached to the parent's own."""
    rows = await connection.fetch(
        "SELECT conrelid::regclass::text AS parent, conname AS name, pg_get_constraintdef(oid) AS definition "
        "FROM pg_constraint WHERE contype = 'c' AND conrelid = ANY($1::text[]::regclass[])",
        PARENTS,
    )
    assert len(rows) >= 15
    for parent, name, definition in rows:
        copied = await connection.fetchval(
            "SELECT pg_get_constraintdef(oid) FROM pg_constraint "
            "WHERE conrelid = $1::text::regclass AND conname = $2",
            f"{parent}_{days.old:%Y%m%d}",
            name,
        )
        assert copied == definition
    indexes = "SELECT count(*) FROM pg_index WHERE indrelid = $1::text::regclass"
    attached = f"{indexes} AND EXISTS (SELECT FROM pg_inherits WHERE inhrelid = indexrelid)"
    for parent in PARENTS:
        own = await connection.fetchval(indexes, parent)
        assert own >= 1
        assert await connection.fetchval(indexes, f"{parent}_{days.old:%Y%m%d}") == own
        assert await connection.fetchval(attached, f"{parent}_{days.old:%Y%m%d}") == own


@pytest.mark.parametrize("zone", ["Pacific/Apia", "America/Los_Angeles"])
async def test_days_are_days_in_utc_whatever_the_sessions_zone(
    connection: Connection, days: Days, zone: str
) -> None:
    alone = days.new + timedelta(days=1)
    await connection.execute(f"SET timezone = '{zone}'")
    await ensure_days(connection, [alone])
    first = datetime.combine(alone, time(), UTC)
    last = first + timedelta(days=1, microseconds=-1)
    for instant in (first, last):
        await insert(connection, "runs", scheduled_at=instant)
        table = await connection.fetchval(
            "SELECT tableoid::regclass::text FROM runs WHERE scheduled_at = $1", instant
        )
        assert table == f"runs_{alone:%Y%m%d}"
    for instant in (first - timedelta(microseconds=1), last + timedelta(microseconds=1)):
        with pytest.raises(asyncpg.CheckViolationError):
            await insert(connection, "runs", scheduled_at=instant)
    today = await connection.fetchval("SELECT (now() AT TIME ZONE 'UTC')::date")
    assert (await days_ahead(connection))[0] - today in (timedelta(0), timedelta(days=1))  # across midnight


@pytest.mark.parametrize("parent", PARENTS)
async def test_a_row_without_a_day_is_refused(undone: Connection, parent: str) -> None:
    column = "second" if parent == "ledger" else "scheduled_at"
    with pytest.raises(asyncpg.CheckViolationError) as refused:
        await insert(undone, parent, **{column: datetime(2001, 1, 1, tzinfo=UTC)})
    assert refused.value.sqlstate == "23514"


async def test_several_makers_at_once_are_safe(
    connection: Connection, days: Days, connect_to_days: Connect
) -> None:
    new = [days.new + timedelta(days=offset) for offset in range(4)]
    makers = [await connect_to_days() for _ in range(6)]
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        for number, maker in enumerate(makers):
            group.create_task(ensure_days(maker, new if number % 2 else reversed(new)))
    assert (await list_days(connection))[-4:] == new
    for day in new:
        await write_run(connection, day)


async def test_a_day_is_made_beside_an_open_dump_and_an_open_writer(
    connection: Connection, days: Days, connect_to_days: Connect
) -> None:
    reader, writer = await connect_to_days(), await connect_to_days()
    async with asyncio.timeout(60), dump(reader), writer.transaction():
        await write_run(writer, days.old)
        assert await ensure_days(connection, [days.new]) == [days.new]
        await write_run(connection, days.new)


@pytest.mark.usefixtures("patient")
async def test_dump_runs_while_partitions_are_made_and_dropped_and_no_claim_waits(
    connection: Connection, days: Days, connect_to_days: Connect
) -> None:
    reader, janitor, maker = await connect_to_days(), await connect_to_days(), await connect_to_days()
    async with asyncio.timeout(60):
        async with dump(reader):
            dropping = asyncio.create_task(drop_day(janitor, days.old))
            await until_waiting(connection, janitor)
            await write_run(connection, days.other)
            assert await ensure_days(maker, [days.new]) == [days.new]
            await write_run(connection, days.new)
            assert await runs_of(connection, days) == [noon(days.other), noon(days.new)]
            assert await is_waiting(connection, janitor)
            assert not dropping.done()
        assert await dropping
    assert await tables_of(connection, days.old) == set()
    assert await runs_of(connection, days) == [noon(days.other), noon(days.new)]


@pytest.mark.usefixtures("patient")
async def test_a_removal_waits_for_a_writer_and_new_ones_do_not_wait_for_it(
    connection: Connection, days: Days, connect_to_days: Connect
) -> None:
    writer, janitor = await connect_to_days(), await connect_to_days()
    async with asyncio.timeout(60):
        async with writer.transaction():
            await write_run(writer, days.other)
            dropping = asyncio.create_task(drop_day(janitor, days.old))
            await until_waiting(connection, janitor)
            await write_run(connection, days.other, job_id=2)
            assert not dropping.done()
        assert await dropping


@pytest.mark.usefixtures("impatient")
async def test_a_removal_that_meets_a_dump_says_busy_and_is_finished_by_a_second_call(
    connection: Connection, days: Days, connect_to_days: Connect
) -> None:
    reader = await connect_to_days()
    await write_run(connection, days.old)
    async with asyncio.timeout(60), dump(reader):
        for _ in range(2):  # once while detaching, once while finishing that
            with pytest.raises(PartitionBusy) as busy:
                await drop_day(connection, days.old)
            assert (busy.value.table, busy.value.reason) == (
                f"runs_{days.old:%Y%m%d}",
                "a reader still uses it",
            )
        assert await list_remains(connection) == [days.old]
        assert days.old not in await list_days(connection)
    assert await drop_day(connection, days.old)
    assert await list_remains(connection) == []
    assert await tables_of(connection, days.old) == set()
    assert await ensure_days(connection, [days.old]) == [days.old]
    assert await runs_of(connection, days) == []


@pytest.mark.usefixtures("patient")
async def test_a_removal_whose_session_dies_is_finished_by_another(
    connection: Connection, days: Days, connect_to_days: Connect
) -> None:
    reader, janitor = await connect_to_days(), await connect_to_days()
    async with asyncio.timeout(60), dump(reader):
        dropping = asyncio.create_task(drop_day(janitor, days.old))
        await until_waiting(connection, janitor)
        await connection.execute("SELECT pg_terminate_backend($1)", janitor.get_server_pid())
        with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError)):
            await dropping
        assert await list_remains(connection) == [days.old]
    assert await drop_day(connection, days.old)
    assert await tables_of(connection, days.old) == set()


async def test_a_removal_interrupted_between_detach_and_drop_is_finished(
    connection: Connection, days: Days
) -> None:
    await connection.execute(f"ALTER TABLE runs DETACH PARTITION runs_{days.old:%Y%m%d} CONCURRENTLY")
    assert await list_remains(connection) == [days.old]
    with pytest.raises(PartitionBusy, match="it is being removed; drop_day finishes that"):
        await ensure_days(connection, [days.old])
    assert await drop_day(connection, days.old)
    assert await list_remains(connection) == []
    assert await tables_of(connection, days.old) == set()


async def test_a_day_that_is_not_there_is_nothing_to_drop(connection: Connection, days: Days) -> None:
    assert await drop_day(connection, days.new) is False


async def test_a_removal_takes_its_day_and_no_other(connection: Connection, days: Days) -> None:
    await write_run(connection, days.old)
    await write_run(connection, days.other)
    assert await drop_day(connection, days.old)
    assert await runs_of(connection, days) == [noon(days.other)]
    with pytest.raises(asyncpg.CheckViolationError):
        await write_run(connection, days.old)


async def test_the_sessions_lock_timeout_is_given_back(connection: Connection, days: Days) -> None:
    assert await drop_day(connection, days.old)
    assert await ensure_days(connection, [days.old]) == [days.old]
    assert await connection.fetchval("SHOW lock_timeout") == "0"


@pytest.mark.usefixtures("impatient")
async def test_a_second_day_is_not_removed_before_the_first_is_finished(
    connection: Connection, days: Days, connect_to_days: Connect
) -> None:
    reader = await connect_to_days()
    async with asyncio.timeout(60), dump(reader):
        for day, reason in (
            (days.old, "a reader still uses it"),
            (days.other, "another removal from runs is not finished"),
        ):
            with pytest.raises(PartitionBusy) as busy:
                await drop_day(connection, day)
            assert (busy.value.table, busy.value.reason) == (f"runs_{day:%Y%m%d}", reason)
    assert await drop_day(connection, days.old)
    assert await drop_day(connection, days.other)


async def test_several_who_remove_one_day_at_once_remove_it_or_say_busy(
    connection: Connection, days: Days, connect_to_days: Connect
) -> None:
    janitors = [await connect_to_days() for _ in range(4)]
    async with asyncio.timeout(60):
        attempts = [drop_day(janitor, days.old) for janitor in janitors]
        results = await asyncio.gather(*attempts, return_exceptions=True)
        assert all(isinstance(result, bool | PartitionBusy) for result in results), results
        await drop_day(connection, days.old)
    assert await tables_of(connection, days.old) == set()


@pytest.mark.usefixtures("impatient")
async def test_a_parent_that_somebody_has_locked_is_busy(
    connection: Connection, days: Days, connect_to_days: Connect
) -> None:
    other = await connect_to_days()
    async with asyncio.timeout(60), other.transaction():
        await other.execute("LOCK TABLE ledger")
        with pytest.raises(PartitionBusy) as busy:
            await ensure_days(connection, [days.new])
        assert (busy.value.table, busy.value.reason) == (
            f"ledger_{days.new:%Y%m%d}",
            "its parent is locked by somebody else",
        )
    assert await ensure_days(connection, [days.new]) == [days.new]
