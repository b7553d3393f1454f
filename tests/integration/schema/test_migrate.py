"""Migrations on a real database: applied once, by one of many; refused whole or undone whole."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest

from mainspring.schema import migrate as module
from mainspring.schema.errors import DatabaseUnavailable, InvalidInput, MigrationRefused, ShardCountMismatch
from mainspring.schema.migrate import Migration, load_migrations, migrate, plan
from mainspring.schema.partitions import DAYS_AHEAD, list_days
from tests.integration.schema.conftest import Connect
from tests.integration.schema.rows import Connection
from tests.integration.schema.waiting import until_asked, until_waiting

OURS = load_migrations()
NAMES = tuple(migration.name for migration in OURS)
NEXT = len(OURS) + 1
MAINSPRING = Path(sys.executable).with_name("mainspring")


def one_more(sql: str) -> list[Migration]:
    return [*OURS, Migration(NEXT, f"{NEXT:04}_more", sql)]


async def everything(connection: Connection) -> dict[str, str]:
    """Every column, constraint, function and trigger, and the ledger: what a refusal may not change."""
    rows = await connection.fetch(
        """
        SELECT 'column ' || attrelid::regclass || '.' || attname AS name, atttypid::regtype::text AS is
          FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid
         WHERE relnamespace = 'public'::regnamespace AND attnum > 0
        UNION ALL
        SELECT 'constraint ' || conrelid::regclass || '.' || conname, pg_get_constraintdef(oid)
          FROM pg_constraint WHERE connamespace = 'public'::regnamespace
        UNION ALL
        SELECT 'function ' || oid::regprocedure, prosrc
          FROM pg_proc WHERE pronamespace = 'public'::regnamespace
        UNION ALL
        SELECT 'trigger ' || tgrelid::regclass || '.' || tgname, pg_get_triggerdef(oid)
          FROM pg_trigger WHERE NOT tgisinternal
        """
    )
    found = {row["name"]: row["is"] for row in rows}
    if await connection.fetchval("SELECT to_regclass('schema_migrations') IS NOT NULL"):
        ledger = await connection.fetch("SELECT * FROM schema_migrations ORDER BY version")
        found["ledger"] = str([tuple(row) for row in ledger])
    return found


async def applied(connection: Connection) -> list[str]:
    rows = await connection.fetch("SELECT name FROM schema_migrations ORDER BY version")
    return [row["name"] for row in rows]


async def test_an_empty_database_gets_everything(connect: Connect) -> None:
    connection = await connect()
    result = await migrate(connection, shards=8)
    assert (result.applied, result.version, result.shards) == (NAMES, len(OURS), 8)
    assert result.created_cluster
    today = await connection.fetchval("SELECT (now() AT TIME ZONE 'UTC')::date")
    assert result.created_days[-1] in (
        today + timedelta(days=DAYS_AHEAD),
        today + timedelta(days=DAYS_AHEAD - 1),
    )
    assert len(result.created_days) == DAYS_AHEAD + 1
    assert list(result.created_days) == await list_days(connection)
    rows = await connection.fetch("SELECT version, name, sha256 FROM schema_migrations ORDER BY version")
    assert [tuple(row) for row in rows] == [(m.version, m.name, m.sha256) for m in OURS]
    assert await connection.fetchval("SELECT array_agg(shard ORDER BY shard) FROM shards") == list(range(8))


async def test_a_second_time_does_nothing(connect: Connect) -> None:
    connection = await connect()
    first = await migrate(connection, shards=8)
    before = await everything(connection)
    again = await migrate(connection, shards=8)
    assert again == replace(first, applied=(), created_cluster=False, created_days=())
    assert await migrate(connection) == again
    assert await everything(connection) == before


async def test_only_what_is_missing_is_applied(connect: Connect) -> None:
    connection = await connect()
    await migrate(connection)
    result = await migrate(connection, migrations=one_more("CREATE TABLE more ()"))
    assert (result.applied, result.version, result.created_cluster) == ((f"{NEXT:04}_more",), NEXT, False)
    assert await connection.fetchval("SELECT to_regclass('more') IS NOT NULL")


async def test_eight_runners_at_once_apply_everything_exactly_once(connect: Connect) -> None:
    connections = [await connect() for _ in range(8)]
    # Not IF NOT EXISTS, and counting: applied twice it would fail, or count two.
    counting = one_more("CREATE TABLE more (); CREATE TABLE times AS SELECT 1 AS time")
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        running = [group.create_task(migrate(each, shards=8, migrations=counting)) for each in connections]
    results = [task.result() for task in running]
    names = Counter(name for result in results for name in result.applied)
    assert names == Counter([*NAMES, f"{NEXT:04}_more"])
    assert [result.created_cluster for result in results].count(True) == 1
    assert {result.version for result in results} == {NEXT}
    assert {result.shards for result in results} == {8}
    days = Counter(day for result in results for day in result.created_days)
    assert set(days.values()) == {1}
    assert len(days) == DAYS_AHEAD + 1
    assert await connections[0].fetchval("SELECT count(*) FROM times") == 1
    assert await applied(connections[0]) == [*NAMES, f"{NEXT:04}_more"]


async def test_eight_processes_at_once_apply_everything_exactly_once(database: str, connect: Connect) -> None:
    command = [str(MAINSPRING), "migrate", "--dsn", database, "--json"]

    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)

    finished = await asyncio.gather(*(asyncio.to_thread(run) for _ in range(8)))
    assert [(done.returncode, done.stderr) for done in finished] == [(0, "")] * 8
    reports = [json.loads(done.stdout) for done in finished]
    assert Counter(name for report in reports for name in report["applied"]) == Counter(NAMES)
    assert [report["created_cluster"] for report in reports].count(True) == 1
    assert await applied(await connect()) == list(NAMES)


async def test_a_runner_that_comes_while_another_works_waits_and_finds_nothing_to_do(
    connect: Connect,
) -> None:
    first, second, watcher = await connect(), await connect(), await connect()
    async with asyncio.timeout(60), closed_gate(await connect()):
        gated = one_more("SELECT * FROM gate")
        slow = asyncio.create_task(migrate(first, migrations=gated))
        await until_waiting(watcher, first)
        waiting = asyncio.create_task(migrate(second, migrations=gated))
        await until_asked(watcher, second, "pg_try_advisory_lock")
        assert not slow.done()
        assert not waiting.done()
    async with asyncio.timeout(60):
        assert (await slow).applied == (*NAMES, f"{NEXT:04}_more")
        assert (await waiting).applied == ()


async def test_a_runner_that_waits_holds_no_snapshot(connect: Connect) -> None:
    """Or a CREATE INDEX CONCURRENTLY of the one inside would wait for it, and it for the one inside."""
    holder, runner = await connect(), await connect()
    await holder.execute("CREATE TABLE big (number integer)")
    await holder.fetchval("SELECT pg_advisory_lock($1)", module._LOCK)
    waiting = asyncio.create_task(migrate(runner))
    async with asyncio.timeout(60):
        await until_asked(holder, runner, "pg_try_advisory_lock")
        await holder.execute("CREATE INDEX CONCURRENTLY ON big (number)")
        await holder.fetchval("SELECT pg_advisory_unlock($1)", module._LOCK)
        assert (await waiting).applied == NAMES


async def test_patience_ends_with_the_reason(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PATIENCE_SECONDS", 0.0)
    holder, runner = await connect(), await connect()
    await holder.fetchval("SELECT pg_advisory_lock($1)", module._LOCK)
    with pytest.raises(MigrationRefused, match="another migration has been running for 0 s"):
        await migrate(runner)
    assert await everything(runner) == {}


async def test_an_edited_file_is_refused_and_nothing_changes(connect: Connect) -> None:
    connection = await connect()
    await migrate(connection)
    before = await everything(connection)
    for edited, name in enumerate(NAMES):
        files = one_more("CREATE TABLE more ()")
        files[edited] = replace(files[edited], sql=files[edited].sql + "-- a word more\n")
        for act in (migrate, plan):
            with pytest.raises(MigrationRefused) as refused:
                await act(connection, migrations=files)
            assert refused.value.reason == f"{name} was edited after the database had {name}"
    assert await everything(connection) == before


async def test_a_renamed_file_is_refused(connect: Connect) -> None:
    connection = await connect()
    await migrate(connection)
    files = [*OURS[:-1], replace(OURS[-1], name=f"{len(OURS):04}_other")]
    with pytest.raises(MigrationRefused, match=f"was edited after the database had {NAMES[-1]}$"):
        await migrate(connection, migrations=files)


async def test_a_gap_in_the_ledger_is_refused(connect: Connect) -> None:
    connection = await connect()
    await migrate(connection)
    await connection.execute("DELETE FROM schema_migrations WHERE version = 2")
    before = await everything(connection)
    with pytest.raises(MigrationRefused) as refused:
        await migrate(connection, migrations=one_more("CREATE TABLE more ()"))
    assert refused.value.reason == f"the database has had {NAMES[2]} but not {NAMES[1]}: a gap"
    assert await everything(connection) == before


async def test_a_database_newer_than_the_code_is_refused(connect: Connect) -> None:
    connection = await connect()
    await migrate(connection, migrations=one_more("CREATE TABLE more ()"))
    before = await everything(connection)
    with pytest.raises(MigrationRefused) as refused:
        await migrate(connection)
    assert refused.value.reason == (
        f"the database is newer than this code: it has had {NEXT:04}_more; upgrade Mainspring"
    )
    assert await everything(connection) == before


async def test_a_failing_migration_is_undone_whole_and_can_be_tried_again(connect: Connect) -> None:
    connection = await connect()
    await migrate(connection)
    before = await everything(connection)
    broken = one_more("CREATE TABLE more (); INSERT INTO tenants (name) VALUES ('default');")
    with pytest.raises(MigrationRefused) as refused:
        await migrate(connection, migrations=broken)
    assert refused.value.reason.startswith(f"{NEXT:04}_more failed and was undone: duplicate key value")
    assert "DETAIL: Key (name)=(default) already exists." in refused.value.reason
    assert "\n" not in str(refused.value)
    assert await everything(connection) == before
    other = await connect()  # the lock is free again
    result = await migrate(other, migrations=one_more("CREATE TABLE more ()"))
    assert result.applied == (f"{NEXT:04}_more",)


async def test_those_before_a_failing_one_stay(connect: Connect) -> None:
    connection = await connect()
    files = one_more("CREATE TABLE more (); SELECT 1 / 0")
    with pytest.raises(MigrationRefused, match="division by zero"):
        await migrate(connection, migrations=files)
    assert await applied(connection) == list(NAMES)
    assert await plan(connection, migrations=files) == files[-1:]


async def test_a_runner_that_dies_in_the_middle_leaves_nothing_of_its_file(connect: Connect) -> None:
    dying, watcher = await connect(), await connect()
    await migrate(watcher)
    async with asyncio.timeout(60), closed_gate(await connect()):
        before = await everything(watcher)
        files = one_more("CREATE TABLE more (); SELECT * FROM gate")
        running = asyncio.create_task(migrate(dying, migrations=files))
        await until_waiting(watcher, dying)
        await watcher.execute("SELECT pg_terminate_backend($1)", dying.get_server_pid())
        with pytest.raises(DatabaseUnavailable, match="the connection to Postgres broke"):
            await running
    assert await everything(watcher) == before
    async with asyncio.timeout(60):
        assert (await migrate(await connect(), migrations=files)).applied == (f"{NEXT:04}_more",)


async def test_a_lost_answer_to_commit_is_not_called_undone(database: str, connect: Connect) -> None:
    async with asyncio.timeout(60), losing_answers_to(b"COMMIT", database) as port:
        behind = await asyncpg.connect(database, host="127.0.0.1", port=port, ssl=False)
        with pytest.raises(DatabaseUnavailable, match="the connection to Postgres broke"):
            await migrate(behind)
    connection = await connect()
    assert await applied(connection) == [NAMES[0]]
    assert (await migrate(connection)).applied == NAMES[1:]


async def test_inside_a_transaction_it_does_not_start(connect: Connect) -> None:
    connection = await connect()
    async with connection.transaction():
        with pytest.raises(MigrationRefused, match="this connection is inside one"):
            await migrate(connection)
    assert await everything(connection) == {}


async def test_a_server_too_old_is_refused(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    connection = await connect()
    monkeypatch.setattr(module, "OLDEST_POSTGRES", 99)
    with pytest.raises(MigrationRefused, match=r"Postgres [0-9]+ is older than 99"):
        await migrate(connection)
    assert await everything(connection) == {}


async def test_what_postgres_refuses_is_one_line(connect: Connect) -> None:
    connection = await connect()
    await connection.execute("CREATE TABLE schema_migrations (versions integer, name text)")
    with pytest.raises(MigrationRefused) as refused:
        await migrate(connection)
    assert refused.value.reason.startswith('Postgres answered: column "version" does not exist HINT:')
    assert "\n" not in str(refused.value)


async def test_the_plan_changes_nothing_and_says_what_is_missing(connect: Connect) -> None:
    connection = await connect()
    assert await plan(connection) == OURS
    assert await everything(connection) == {}
    await migrate(connection, shards=8)
    assert await plan(connection, shards=8) == []
    with pytest.raises(ShardCountMismatch):
        await plan(connection, shards=16)


async def test_an_impossible_number_of_shards_is_refused_before_anything_is_done(connect: Connect) -> None:
    connection = await connect()
    for shards in (0, -1, 4097):
        with pytest.raises(InvalidInput, match=f"^shards: {shards} is not in 1–4096$"):
            await migrate(connection, shards=shards)
    assert await everything(connection) == {}


@asynccontextmanager
async def closed_gate(connection: Connection) -> AsyncIterator[None]:
    """A table `gate` that nobody else can read from before the end of this block."""
    await connection.execute("CREATE TABLE gate ()")
    async with connection.transaction():
        await connection.execute("LOCK TABLE gate")
        yield


@asynccontextmanager
async def losing_answers_to(words: bytes, database: str) -> AsyncIterator[int]:
    """The port of a relay to Postgres that delivers these words and cuts the line before their answer."""
    server = urlsplit(database)

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, requests = await asyncio.open_connection(server.hostname, server.port)
        back = asyncio.create_task(pass_on(answers, writer))
        while (data := await reader.read(65_536)) and words not in data:
            requests.write(data)
        back.cancel()
        await asyncio.wait([back])
        requests.write(data)
        await answers.read(1)
        requests.close()
        await requests.wait_closed()
        writer.close()

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            writer.write(data)

    async with await asyncio.start_server(relay, "127.0.0.1", 0) as listening:
        yield listening.sockets[0].getsockname()[1]
