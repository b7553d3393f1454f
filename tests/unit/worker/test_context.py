"""What a handler is given; its transaction on a real Postgres."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from datetime import UTC, date, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from mainspring.clock import ManualClock, SystemClock
from mainspring.schema.errors import DatabaseUnavailable, InvalidInput, UnreadableMessage
from mainspring.schema.ids import RunKey, parse_run_id, to_microseconds
from mainspring.schema.messages import JobDefinition, Message
from mainspring.schema.partitions import drop_day, list_days
from mainspring.schema.states import LogLevel
from mainspring.worker.context import (
    LARGEST_RESULT,
    LONGEST_LINE,
    MOST_LINES,
    MOST_LOG_BYTES,
    Context,
    ContextServices,
    encode_result,
)
from mainspring.worker.signals import EffectExists
from tests.acceptance.worker.proxy import Proxy

NOON = datetime(2026, 11, 18, 12, tzinfo=UTC)
WEEKLY = JobDefinition(
    237385076752188323,
    tenant_id=7,
    version=1,
    handler="send-report",
    payload_json=b'{"to": ["ada"]}',
    name="weekly",
    timezone="America/New_York",
    idempotency_key_template="report-{{week}}-{{name}}",
)


def message(job: JobDefinition = WEEKLY, at: datetime = NOON, attempt: int = 2) -> Message:
    return Message(attempt, 0, 0, 0, 0, to_microseconds(at), 0, 1, 0, None, job)


def context(job: JobDefinition = WEEKLY, clock: ManualClock | None = None) -> Context:
    return Context(message(job), 30.0, ContextServices(clock or ManualClock(NOON)))


def test_a_context_shows_its_run() -> None:
    run = context()
    assert run.job_id == "j_06jtwf0vcp0x3"
    assert run.run_id == "r_06jtwf0vcp0x301k0hf01pm00002"
    assert parse_run_id(run.run_id) == RunKey(WEEKLY.job_id, NOON, 2)
    assert run.name == "weekly"
    assert run.handler == "send-report"
    assert run.tenant_id == 7
    assert run.scheduled_at == NOON
    assert run.scheduled_at.tzinfo is UTC
    assert run.attempt == 2
    assert run.idempotency_key == "report-2026-W47-weekly"
    assert repr(run) == f"<Context send-report {run.run_id}>"


def test_a_job_without_a_name_has_none() -> None:
    assert context(JobDefinition(1, 1, 1, "h")).name is None


def test_a_job_without_a_template_has_the_default_key_at_every_attempt() -> None:
    job = JobDefinition(1, 1, 1, "h")
    keys = {
        Context(message(job, attempt=attempt), 0.0, ContextServices(ManualClock(NOON))).idempotency_key
        for attempt in (1, 2, 3)
    }
    assert keys == {"j_0000000000001:1795003200"}


def test_the_payload_is_parsed_once_and_is_the_handlers_own() -> None:
    run = context()
    run.payload["to"].append("grace")
    assert run.payload == {"to": ["ada", "grace"]}
    assert context().payload == {"to": ["ada"]}


def test_a_payload_of_null_is_none_and_one_that_is_no_json_is_unreadable() -> None:
    assert context(JobDefinition(1, 1, 1, "h")).payload is None
    with pytest.raises(UnreadableMessage):
        _ = context(JobDefinition(1, 1, 1, "h", b"{")).payload


def test_a_new_context_has_made_nothing() -> None:
    run = context()
    for lazy in ("_payload", "_idempotency_key", "_transaction_taken"):
        assert not hasattr(run, lazy)
    assert not hasattr(run, "__dict__")
    assert run.lines() == []


def test_the_remaining_time_is_counted_on_the_monotonic_clock() -> None:
    clock = ManualClock(NOON)
    run = context(clock=clock)
    assert run.deadline == 30.0
    clock.step_wall(timedelta(hours=1))
    assert run.remaining() == timedelta(seconds=30)
    clock.advance(timedelta(seconds=20))
    assert run.remaining() == timedelta(seconds=10)
    clock.advance(timedelta(seconds=20))
    assert run.remaining() == timedelta(0)


def test_a_cancellation_is_seen_in_a_thread_and_its_first_reason_stays() -> None:
    run = context()
    assert (run.cancelled, run.cancel_reason) == (False, None)
    seen: list[str | None] = []

    def poll() -> None:
        while not run.cancelled:
            time.sleep(0.001)
        seen.append(run.cancel_reason)

    thread = threading.Thread(target=poll)
    thread.start()
    run.mark_cancelled("asked for by ada")
    run.mark_cancelled("its time was up")
    thread.join(30)
    assert seen == ["asked for by ada"]


def test_a_line_is_kept_with_time_level_and_fields() -> None:
    clock = ManualClock(NOON)
    run = context(clock=clock)
    run.log("begun")
    clock.advance(timedelta(seconds=1))
    run.log("sent", level="warning", count=3, to="a b", when=NOON, inner={"x": [1]})
    first, second = run.lines()
    assert first == (NOON, LogLevel.INFO, "begun")
    assert second.at == NOON + timedelta(seconds=1)
    assert second.level is LogLevel.WARNING
    assert second.message == 'sent count=3 to="a b" when="2026-11-18 12:00:00+00:00" inner={"x": [1]}'


@pytest.mark.parametrize("level", ["loud", "progress", "INFO", "", 5])
def test_an_unknown_level_is_refused(level: Any) -> None:
    with pytest.raises(InvalidInput) as refusal:
        context().log("hello", level)
    assert refusal.value.field == "level"
    assert "is not one of debug, info, warning, error" in refusal.value.rule


class Unshowable:
    def __str__(self) -> str:
        raise ValueError("no text")

    __repr__ = __str__


def test_what_cannot_be_shown_fails_no_run() -> None:
    run = context()
    circle: list[Any] = []
    circle.append(circle)
    run.log(Unshowable(), one=Unshowable(), circle=circle, keys={(1, 2): 3})
    assert [line.message for line in run.lines()] == [
        '<Unshowable> one="<Unshowable>" circle=<list> keys=<dict>'
    ]


def test_what_postgres_cannot_store_is_replaced() -> None:
    run = context()
    run.log("nul \0, half \ud800.")
    assert run.lines()[0].message == "nul ␀, half ?."


@pytest.mark.parametrize("character", ["a", "é", "€", "𝄞"])
@pytest.mark.parametrize("offset", [0, 1, 2, 3])
def test_a_long_line_is_cut_between_characters(character: str, offset: int) -> None:
    run = context()
    run.log("x" * offset + character * 10_000)
    kept = run.lines()[0].message
    assert LONGEST_LINE - 4 < len(kept.encode()) <= LONGEST_LINE
    assert kept.startswith("x" * offset + character)
    assert set(kept[offset:-1]) == {character}
    assert kept[-1] == "…"


def test_a_line_of_exactly_the_limit_is_whole() -> None:
    run = context()
    run.log("x" * LONGEST_LINE)
    run.log("é" * (LONGEST_LINE // 2))
    assert [len(line.message.encode()) for line in run.lines()] == [LONGEST_LINE, LONGEST_LINE]
    assert not any("…" in line.message for line in run.lines())


def test_a_thousand_lines_are_kept_and_the_rest_is_counted_in_a_last_one() -> None:
    run = context()
    for number in range(MOST_LINES + 5):
        run.log(number)
    run.progress(0.5)
    lines = run.lines()
    assert [line.message for line in lines[:MOST_LINES]] == [str(number) for number in range(MOST_LINES)]
    assert lines[MOST_LINES].level is LogLevel.PROGRESS
    last = lines[MOST_LINES + 1 :]
    assert [(line.level, line.message) for line in last] == [
        (LogLevel.WARNING, "5 more lines were dropped: a run keeps 1000 lines and 64 KiB")
    ]


def test_a_thousand_lines_need_no_last_one() -> None:
    run = context()
    for number in range(MOST_LINES):
        run.log(number)
    assert len(run.lines()) == MOST_LINES


def test_64_kibibytes_are_kept_counted_in_utf_8_and_without_holes() -> None:
    run = context()
    for _ in range(8):
        run.log("é" * 4000)
    run.log("x" * (MOST_LOG_BYTES - 64_000))
    run.log("one byte too many")
    run.log("")  # would fit, but would stand where something is missing
    *kept, last = run.lines()
    assert len(kept) == 9
    assert sum(len(line.message.encode()) for line in kept) == MOST_LOG_BYTES
    assert last.message.startswith("2 more lines were dropped")


def test_many_threads_lose_no_line_and_keep_no_more_than_the_limit() -> None:
    run = context()
    ready = threading.Barrier(8)

    def write() -> None:
        ready.wait()
        for number in range(200):
            run.log(number)
            run.progress(str(number))

    threads = [threading.Thread(target=write) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = run.lines()
    assert len(lines) == MOST_LINES + 2
    assert lines[-1].message.startswith("600 more lines were dropped")


@pytest.mark.parametrize(
    ("done", "text"), [(0, "0%"), (0.5, "50%"), (1, "100%"), (1 / 3, "33.33%"), ("page 7", "page 7")]
)
def test_progress_is_a_fraction_or_a_text(done: float | str, text: str) -> None:
    run = context()
    run.progress(done)
    assert run.lines() == [(NOON, LogLevel.PROGRESS, text)]


def test_only_the_newest_progress_is_kept() -> None:
    run = context()
    for done in (0.1, 0.2, "almost"):
        run.progress(done)
    assert [line.message for line in run.lines()] == ["almost"]


@pytest.mark.parametrize("done", [-0.1, 1.1, 50, float("nan"), True, None, [1]])
def test_what_is_no_progress_is_refused(done: Any) -> None:
    with pytest.raises(InvalidInput) as refusal:
        context().progress(done)
    assert refusal.value.field == "progress"


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (None, None),
        ({}, b"{}"),
        (0, b"0"),
        (False, b"false"),
        ("", b'""'),
        ({"sum": 3, "to": ["é", None]}, '{"sum":3,"to":["é",null]}'.encode()),
        ((1, 2.5), b"[1,2.5]"),
        ("\0", b'"\\u0000"'),
    ],
)
def test_a_result_is_stored_as_json(value: object, encoded: bytes | None) -> None:
    assert encode_result(value) == encoded


CIRCLE: dict[str, Any] = {}
CIRCLE["self"] = CIRCLE


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        (float("nan"), "is not JSON"),
        ({"a": [float("inf")]}, "is not JSON"),
        (object(), "is not JSON: Object of type object is not JSON serializable"),
        (b"bytes", "is not JSON"),
        ({1: 2}, "the key 1 is not a text"),
        ("\ud800", "holds half of a surrogate pair"),
        (CIRCLE, "is nested deeper than 64 levels"),
        ("x" * (LARGEST_RESULT - 1), f"takes {LARGEST_RESULT + 1} bytes, more than {LARGEST_RESULT}"),
    ],
)
def test_what_cannot_be_stored_is_refused(value: object, rule: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        encode_result(value)
    assert refusal.value.field == "result"
    assert rule in refusal.value.rule


def test_the_largest_result_is_stored() -> None:
    assert len(encode_result("x" * (LARGEST_RESULT - 2)) or b"") == LARGEST_RESULT


def test_a_coroutine_is_no_result_and_the_remedy_is_said() -> None:
    async def late() -> None: ...

    with pytest.raises(InvalidInput, match="write the handler with `async def`"):
        encode_result(late())


# The transaction, on a real Postgres.


class Desk:
    """A pool, a table of the handler's own, and a look at what was committed."""

    def __init__(self, pool: Any, noon: datetime) -> None:
        self.pool = pool
        self.noon = noon

    def attempt(self, attempt: int = 1, at: datetime | None = None) -> Context:
        return Context(
            message(at=at or self.noon, attempt=attempt), 0.0, ContextServices(SystemClock(), self.pool)
        )

    async def effects(self) -> list[tuple[int, datetime, int]]:
        rows = await self.pool.fetch("SELECT job_id, scheduled_at, attempt FROM effects")
        return [tuple(row) for row in rows]

    async def entries(self) -> list[str]:
        return [row["text"] for row in await self.pool.fetch("SELECT text FROM entries ORDER BY text")]

    async def until_waiting_for(self, pid: int) -> None:
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid))"
        async with asyncio.timeout(30):
            while not await self.pool.fetchval(waiting, pid):  # noqa: ASYNC110  (the server sets no event)
                await asyncio.sleep(0.01)


@pytest.fixture
async def desk(migrated: str) -> AsyncIterator[Desk]:
    async with asyncpg.create_pool(migrated, min_size=0, max_size=4) as pool:
        await pool.execute("CREATE TABLE entries (text text PRIMARY KEY)")
        tomorrow: datetime = await pool.fetchval(
            "SELECT (date_trunc('day', now() AT TIME ZONE 'UTC') + interval '36 hours') AT TIME ZONE 'UTC'"
        )
        yield Desk(pool, tomorrow)


async def enter(run: Context, text: str) -> None:
    """A handler with an effect."""
    async with run.transaction() as connection:
        await connection.execute("INSERT INTO entries VALUES ($1)", text)


async def test_effect_and_row_are_committed_together(desk: Desk) -> None:
    async with desk.attempt().transaction() as connection:
        await connection.execute("INSERT INTO entries VALUES ('paid')")
        assert await connection.fetchval("SELECT count(*) FROM effects") == 1  # before the first statement
        assert (await desk.entries(), await desk.effects()) == ([], [])
    assert await desk.entries() == ["paid"]
    assert await desk.effects() == [(WEEKLY.job_id, desk.noon, 1)]


async def test_a_block_that_raises_undoes_both_and_its_error_stays_its_own(desk: Desk) -> None:
    class Broken(OSError):
        pass

    async def fail() -> None:
        async with desk.attempt().transaction() as connection:
            await connection.execute("INSERT INTO entries VALUES ('paid')")
            raise Broken("the user's own socket")

    with pytest.raises(Broken, match="the user's own socket"):
        await fail()
    assert (await desk.entries(), await desk.effects()) == ([], [])
    await enter(desk.attempt(2), "paid")
    assert await desk.effects() == [(WEEKLY.job_id, desk.noon, 2)]


async def test_a_later_attempt_finds_the_effect_and_does_nothing(desk: Desk) -> None:
    await enter(desk.attempt(1), "first")
    with pytest.raises(EffectExists):
        await enter(desk.attempt(2), "second")
    assert await desk.entries() == ["first"]
    assert await desk.effects() == [(WEEKLY.job_id, desk.noon, 1)]


async def test_an_except_in_the_handler_does_not_hide_that_the_effect_exists(desk: Desk) -> None:
    await enter(desk.attempt(1), "first")

    async def careless() -> None:
        try:
            await enter(desk.attempt(2), "second")
        except Exception as error:
            raise AssertionError from error

    with pytest.raises(EffectExists):
        await careless()


async def test_another_occurrence_has_an_effect_of_its_own(desk: Desk) -> None:
    await enter(desk.attempt(), "first")
    later = desk.noon + timedelta(microseconds=1)
    await enter(desk.attempt(at=later), "second")
    assert await desk.entries() == ["first", "second"]


async def test_two_attempts_at_once_take_effect_once(desk: Desk) -> None:
    """The second waits for the first, inside of its INSERT, and finds it committed."""
    async with desk.attempt(1).transaction() as connection:
        await connection.execute("INSERT INTO entries VALUES ('first')")
        second = asyncio.create_task(enter(desk.attempt(2), "second"))
        await desk.until_waiting_for(connection.get_server_pid())
    with pytest.raises(EffectExists):
        await second
    assert await desk.entries() == ["first"]


async def test_an_attempt_goes_on_when_the_one_it_waited_for_is_undone(desk: Desk) -> None:
    async def fail_while_another_waits() -> None:
        async with desk.attempt(1).transaction() as connection:
            await connection.execute("INSERT INTO entries VALUES ('first')")
            others.append(asyncio.create_task(enter(desk.attempt(2), "second")))
            await desk.until_waiting_for(connection.get_server_pid())
            raise LookupError

    others: list[asyncio.Task[None]] = []
    with pytest.raises(LookupError):
        await fail_while_another_waits()
    await others[0]
    assert await desk.entries() == ["second"]
    assert await desk.effects() == [(WEEKLY.job_id, desk.noon, 2)]


async def test_an_attempt_cancelled_while_it_waits_leaves_nothing_behind(desk: Desk) -> None:
    async with desk.attempt(1).transaction() as connection:
        second = asyncio.create_task(enter(desk.attempt(2), "second"))
        await desk.until_waiting_for(connection.get_server_pid())
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
    assert await desk.effects() == [(WEEKLY.job_id, desk.noon, 1)]
    assert desk.pool.get_idle_size() == desk.pool.get_size()


async def test_a_day_without_a_table_is_made(desk: Desk) -> None:
    day = date(2031, 5, 1)
    at = datetime(2031, 5, 1, 12, tzinfo=UTC)
    await enter(desk.attempt(at=at), "late")
    async with desk.pool.acquire() as connection:
        assert day in await list_days(connection)
        assert await desk.effects() == [(WEEKLY.job_id, at, 1)]
        await drop_day(connection, day)


async def test_a_swallowed_failure_in_the_block_is_no_success(desk: Desk) -> None:
    """Postgres answers COMMIT of a failed transaction with a rollback, and without an error."""
    await desk.pool.execute("INSERT INTO entries VALUES ('there')")

    async def swallow() -> None:
        async with desk.attempt().transaction() as connection:
            await connection.execute("INSERT INTO entries VALUES ('new')")
            with pytest.raises(asyncpg.UniqueViolationError):
                await connection.execute("INSERT INTO entries VALUES ('there')")

    with pytest.raises(InvalidInput, match="transaction: a statement in it had failed"):
        await swallow()
    assert (await desk.entries(), await desk.effects()) == (["there"], [])


async def test_a_block_that_ends_the_transaction_by_itself_is_no_success(desk: Desk) -> None:
    async def roll_back() -> None:
        async with desk.attempt().transaction() as connection:
            await connection.execute("ROLLBACK")

    with pytest.raises(InvalidInput, match="its block ended it by itself"):
        await roll_back()
    assert await desk.effects() == []


async def test_a_block_may_nest_a_transaction_that_fails(desk: Desk) -> None:
    await desk.pool.execute("INSERT INTO entries VALUES ('there')")
    async with desk.attempt().transaction() as connection:
        with pytest.raises(asyncpg.UniqueViolationError):
            async with connection.transaction():
                await connection.execute("INSERT INTO entries VALUES ('there')")
        await connection.execute("INSERT INTO entries VALUES ('new')")
    assert await desk.entries() == ["new", "there"]
    assert len(await desk.effects()) == 1


async def test_a_connection_that_dies_before_the_commit_is_a_failure(desk: Desk) -> None:
    async def die() -> None:
        async with desk.attempt().transaction() as connection:
            await connection.execute("INSERT INTO entries VALUES ('paid')")
            await desk.pool.execute("SELECT pg_terminate_backend($1)", connection.get_server_pid())

    with pytest.raises(DatabaseUnavailable):
        await die()
    assert (await desk.entries(), await desk.effects()) == ([], [])


async def test_a_pool_that_is_closed_is_a_database_that_is_away(migrated: str) -> None:
    pool = await asyncpg.create_pool(migrated, min_size=0)
    await pool.close()
    with pytest.raises(DatabaseUnavailable):
        await enter(Desk(pool, NOON).attempt(), "never")


async def test_a_block_ends_when_told_to_also_while_the_server_is_silent(desk: Desk, migrated: str) -> None:
    parts = urlsplit(migrated)
    login, _, address = parts.netloc.rpartition("@")
    async with Proxy.listening(address) as proxy:
        through = urlunsplit(parts._replace(netloc=f"{login}@{proxy.address}"))
        async with asyncpg.create_pool(through, min_size=0, max_size=1) as pool:
            entered = asyncio.Event()

            async def wait() -> None:
                async with Desk(pool, desk.noon).attempt().transaction():
                    entered.set()
                    await asyncio.Event().wait()

            handler = asyncio.create_task(wait())
            await entered.wait()
            proxy.silence()
            handler.cancel()
            ended, _ = await asyncio.wait([handler], timeout=30)
            proxy.restore()
            assert ended, "it waits for an answer that does not come"
            assert handler.cancelled()
            await enter(Desk(pool, desk.noon).attempt(), "paid")
    assert await desk.entries() == ["paid"]


async def test_a_run_has_one_transaction(desk: Desk) -> None:
    run = desk.attempt()
    await enter(run, "first")
    with pytest.raises(InvalidInput, match="transaction: was taken already: a run has one"):
        await enter(run, "second")
    assert await desk.entries() == ["first"]


async def test_every_way_out_gives_the_connection_back(migrated: str) -> None:
    async with asyncpg.create_pool(migrated, min_size=0, max_size=1) as pool:
        await pool.execute("CREATE TABLE entries (text text PRIMARY KEY)")
        desk = Desk(pool, datetime.now(UTC) + timedelta(days=1))
        await enter(desk.attempt(), "first")
        with pytest.raises(EffectExists):
            await enter(desk.attempt(2), "second")
        other = desk.noon + timedelta(seconds=1)
        with pytest.raises(asyncpg.UniqueViolationError):
            await enter(desk.attempt(at=other), "first")
        assert await asyncio.wait_for(desk.entries(), 30) == ["first"]


async def test_a_sync_handler_has_no_transaction() -> None:
    run = context()
    with pytest.raises(InvalidInput, match="transaction: is for async handlers"):
        await asyncio.to_thread(run.transaction)


async def test_a_loop_of_its_own_does_not_help_a_sync_handler() -> None:
    run = context()

    def start_a_loop() -> None:
        asyncio.run(enter(run, "never"))

    with pytest.raises(InvalidInput, match="transaction: is for async handlers"):
        await asyncio.to_thread(start_a_loop)


async def test_a_transaction_needs_a_database() -> None:
    with pytest.raises(InvalidInput, match="transaction: needs a worker that is connected"):
        await enter(context(), "never")
