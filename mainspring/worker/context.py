"""What a handler is given: the run it executes, and the few things it may do besides its work.

In the hot second contexts are made by the hundred thousand, and most handlers look at two attributes. So a
context keeps the decoded message, a deadline and what it shares with all others; the rest is made when it is
first asked for, and kept.

Threads: the event loop makes contexts, cancels them and collects their lines; a sync handler uses its own in
a thread, and may start more. Attributes are made twice at worst, with the same value; the log has a lock.

The transaction: the row in `effects` is written before the handler's first statement and committed together
with its last, so it is there exactly if the effect is.

    an earlier attempt committed       the row is found, the block is never entered, the run succeeds
    another attempt is in its block    the primary key makes us wait; then as above, or, if that one was
                                       undone, we go on
    the block raises, or we die        Postgres undoes effect and row; the next attempt does both
    a failed statement was swallowed   Postgres would answer COMMIT with a rollback and no error; so we look
                                       for the row first, and fail the run
    the answer to COMMIT is lost       the run fails, and the next attempt learns from the row what happened
"""

from __future__ import annotations

import asyncio
import inspect
import json
import threading
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple, cast

import asyncpg
from asyncpg.transaction import Transaction

from mainspring.clock import Clock
from mainspring.postgres import database_errors
from mainspring.registry import render
from mainspring.registry.edge import Connection, Pool
from mainspring.registry.values import write_payload
from mainspring.schema.errors import InvalidInput
from mainspring.schema.ids import RunKey, format_job_id, format_run_id, from_microseconds
from mainspring.schema.messages import Message
from mainspring.schema.partitions import ensure_days
from mainspring.schema.queries import query
from mainspring.schema.states import LogLevel
from mainspring.worker.signals import EffectExists, storable

MOST_LINES = 1000
MOST_LOG_BYTES = 65_536
LONGEST_LINE = 8192
"""In bytes, as the table has it."""
LARGEST_RESULT = 262_144

_UNDO_SECONDS = 2.0  # less than a handler is given to end
PROGRESS_LINE = MOST_LINES
"""The number of the line that says how far a run is: behind all that can be kept, and always the same."""

_LEVELS = tuple(level for level in LogLevel if level is not LogLevel.PROGRESS)
_making = threading.Lock()


@dataclass(frozen=True, slots=True)
class ContextServices:
    """What all contexts of a worker share; made in the thread of its event loop."""

    clock: Clock
    pool: Pool | None = None
    """Where `transaction()` takes its connection."""
    thread: int = field(default_factory=threading.get_ident)


class LogLine(NamedTuple):
    """One line of a run's log."""

    at: datetime
    level: LogLevel
    message: str


class Context:
    """One run, as its handler sees it."""

    __slots__ = (
        "_cancel_reason",
        "_deadline",
        "_idempotency_key",
        "_log",
        "_message",
        "_payload",
        "_services",
        "_transaction_taken",
    )
    # Without a value until somebody asks: an unset slot costs nothing, and raises AttributeError.
    _payload: Any
    _idempotency_key: str
    _transaction_taken: bool

    def __init__(self, message: Message, deadline: float, services: ContextServices) -> None:
        self._message = message
        self._deadline = deadline
        self._services = services
        # The worker reads these two of every run: there an AttributeError would cost more than the value.
        self._log: _RunLog | None = None
        self._cancel_reason: str | None = None

    def __repr__(self) -> str:
        return f"<Context {self.handler} {self.run_id}>"

    @property
    def payload(self) -> Any:
        """The job's payload: parsed once, and the handler's own to change."""
        try:
            return self._payload
        except AttributeError:
            self._payload = self._message.job.payload()
            return self._payload

    @property
    def job_id(self) -> str:
        """`j_…`"""
        return format_job_id(self._message.job.job_id)

    @property
    def run_id(self) -> str:
        """`r_…`: this attempt at this occurrence."""
        message = self._message
        return format_run_id(RunKey(message.job.job_id, self.scheduled_at, message.attempt))

    @property
    def name(self) -> str | None:
        """The job's name, if it has one."""
        return self._message.job.name or None

    @property
    def handler(self) -> str:
        """The name under which the handler is registered."""
        return self._message.job.handler

    @property
    def tenant_id(self) -> int:
        """Whose job it is."""
        return self._message.job.tenant_id

    @property
    def scheduled_at(self) -> datetime:
        """The occurrence's nominal instant in UTC: the same for every attempt, whenever that one runs."""
        return from_microseconds(self._message.scheduled_at)

    @property
    def attempt(self) -> int:
        """1 for the first."""
        return self._message.attempt

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt at this occurrence, by the job's template."""
        try:
            return self._idempotency_key
        except AttributeError:
            job = self._message.job
            self._idempotency_key = render(
                job.idempotency_key_template,
                job_id=job.job_id,
                name=job.name or None,
                scheduled_at=self.scheduled_at,
                timezone=job.timezone,
            )
            return self._idempotency_key

    @property
    def deadline(self) -> float:
        """When the run's time is up, on the monotonic clock."""
        return self._deadline

    def remaining(self) -> timedelta:
        """How much of the run's time is left; never negative."""
        return timedelta(seconds=max(0.0, self._deadline - self._services.clock.monotonic()))

    @property
    def cancelled(self) -> bool:
        """Whether the handler should stop: its time is up, somebody asked for it, or the worker must."""
        return self._cancel_reason is not None

    @property
    def cancel_reason(self) -> str | None:
        """Why the handler should stop; None while it should not."""
        return self._cancel_reason

    def mark_cancelled(self, reason: str) -> None:
        """Tell the handler to stop; the first reason stays. For the worker, in its event loop."""
        if self._cancel_reason is None:
            self._cancel_reason = reason

    def log(self, message: object, level: str = "info", **fields: object) -> None:
        """Keep a line with the run; fields are written behind it as name=value."""
        if level not in _LEVELS:
            known = ", ".join(_LEVELS)
            raise InvalidInput("level", f"{str(level)[:40]!r} is not one of {known}; see also progress()")
        text = " ".join([_text(message), *(f"{name}={_json(value)}" for name, value in fields.items())])
        self._lines().add(LogLine(self._services.clock.now(), LogLevel(level), storable(text, LONGEST_LINE)))

    def progress(self, done: float | str) -> None:
        """Say how far the run is: a fraction from 0 to 1, or a text. Only the newest is kept."""
        text = storable(_progress_text(done), LONGEST_LINE)
        self._lines().progress = LogLine(self._services.clock.now(), LogLevel.PROGRESS, text)

    def lines(self) -> list[LogLine]:
        """What was kept: the log, the newest progress, what was dropped. For the worker, after the run."""
        return [] if self._log is None else self._log.lines(self._services.clock.now())

    def news(self) -> list[tuple[int, LogLine]]:
        """What was logged since this was last asked, with the lines' numbers. For the worker."""
        return [] if self._log is None else self._log.news()

    def transaction(self) -> AbstractAsyncContextManager[Connection]:
        """A Postgres transaction that takes effect once per occurrence, whatever happens; one per run.

        The block is not entered when an earlier attempt has committed: EffectExists ends the run, succeeded.
        """
        if threading.get_ident() != self._services.thread:
            raise InvalidInput(
                "transaction",
                "is for async handlers: a sync one runs in a thread, where its connection is not",
            )
        if hasattr(self, "_transaction_taken"):
            raise InvalidInput("transaction", "was taken already: a run has one, which is all or nothing")
        self._transaction_taken = True
        return self._begin()

    def _begin(self) -> AbstractAsyncContextManager[Connection]:
        pool = self._services.pool
        if pool is None:
            raise InvalidInput("transaction", "needs a worker that is connected to Postgres")
        return _effect_transaction(pool, self._message)

    def _lines(self) -> _RunLog:
        if self._log is None:
            with _making:
                self._log = self._log or _RunLog()
        return self._log


class _RunLog:
    """The lines of one run: the first that fit. What comes after a dropped one is dropped too: no holes."""

    __slots__ = ("_bytes", "_dropped", "_kept", "_lock", "_told", "_told_progress", "progress")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: list[LogLine] = []
        self._bytes = 0
        self._dropped = 0
        self._told = 0
        self._told_progress: LogLine | None = None
        self.progress: LogLine | None = None

    def add(self, line: LogLine) -> None:
        size = len(line.message.encode())
        with self._lock:
            full = len(self._kept) >= MOST_LINES or self._bytes + size > MOST_LOG_BYTES
            if self._dropped or full:
                self._dropped += 1
                return
            self._kept.append(line)
            self._bytes += size

    def news(self) -> list[tuple[int, LogLine]]:
        with self._lock:
            new = list(enumerate(self._kept[self._told :], self._told))
            self._told = len(self._kept)
        progress = self.progress
        if progress is not None and progress is not self._told_progress:
            self._told_progress = progress
            new.append((PROGRESS_LINE, progress))
        return new

    def lines(self, now: datetime) -> list[LogLine]:
        with self._lock:
            lines, dropped = list(self._kept), self._dropped
        if self.progress is not None:
            lines.append(self.progress)
        if dropped:
            limits = f"a run keeps {MOST_LINES} lines and {MOST_LOG_BYTES // 1024} KiB"
            lines.append(LogLine(now, LogLevel.WARNING, f"{dropped} more lines were dropped: {limits}"))
        return lines


@asynccontextmanager
async def _effect_transaction(pool: Pool, message: Message) -> AsyncIterator[Connection]:
    """Only our own statements have their errors translated: in between is the user's code with its own."""
    with database_errors():
        connection = await pool.acquire()
    try:
        with database_errors():
            transaction = await _begin_effect(connection, message)
        try:
            yield connection
        except BaseException:
            await _undo(connection, transaction)
            raise
        with database_errors():
            await _commit_effect(connection, transaction, message)
    finally:
        await pool.release(connection)


async def _begin_effect(connection: Connection, message: Message) -> Transaction:
    try:
        return await _record_effect(connection, message)
    except asyncpg.CheckViolationError:
        # The day of the occurrence has no table yet. It is made outside: what others wait for must be short.
        day = from_microseconds(message.scheduled_at).date()
        await ensure_days(cast("asyncpg.Connection[asyncpg.Record]", connection), [day])
        return await _record_effect(connection, message)


async def _record_effect(connection: Connection, message: Message) -> Transaction:
    transaction = connection.transaction()
    await transaction.start()
    try:
        recorded = await connection.fetchval(query("record_effect"), *_occurrence(message), message.attempt)
    except BaseException:
        await _undo(connection, transaction)
        raise
    if recorded is None:
        await _undo(connection, transaction)
        raise EffectExists
    return transaction


async def _commit_effect(connection: Connection, transaction: Transaction, message: Message) -> None:
    try:
        stands = await connection.fetchval(query("effect_attempt"), *_occurrence(message)) == message.attempt
    except asyncpg.InFailedSQLTransactionError:
        stands = False
    if not stands:
        await _undo(connection, transaction)
        rule = "a statement in it had failed, or its block ended it by itself: nothing of it can be committed"
        raise InvalidInput("transaction", rule)
    await transaction.commit()


async def _undo(connection: Connection, transaction: Transaction) -> None:
    """Roll back; what went wrong before is the error to report. A server that cannot say so is left alone.

    Who is told to stop has five seconds, and a silent server would take them all: the end of the connection
    ends the transaction too.
    """
    try:
        async with asyncio.timeout(_UNDO_SECONDS):
            await transaction.rollback()
    except (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError):
        connection.terminate()
    except BaseException:  # stopped in the middle: nobody may get it with a transaction open
        connection.terminate()
        raise


def _occurrence(message: Message) -> tuple[int, datetime]:
    return message.job.job_id, from_microseconds(message.scheduled_at)


def encode_result(value: object) -> bytes | None:
    """What a handler returned, as it is stored; None for nothing. The rules are those of a payload."""
    if value is None:
        return None
    if inspect.iscoroutine(value):
        value.close()
        raise InvalidInput("result", "is a coroutine that nobody awaited: write the handler with `async def`")
    try:
        encoded = write_payload(value)
    except InvalidInput as refusal:
        raise InvalidInput("result", refusal.rule) from refusal
    except RecursionError:
        raise InvalidInput("result", "holds itself") from None
    if len(encoded) > LARGEST_RESULT:
        raise InvalidInput("result", f"takes {len(encoded)} bytes, more than {LARGEST_RESULT}")
    return encoded


def _progress_text(done: float | str) -> str:
    if isinstance(done, str):
        return done
    if isinstance(done, bool) or not isinstance(done, int | float):
        raise InvalidInput(
            "progress", f"a value of type {type(done).__name__} is neither a fraction nor a text"
        )
    if not 0 <= done <= 1:
        raise InvalidInput("progress", f"{str(done)[:40]} is not a fraction from 0 to 1")
    return f"{100 * done:.4g}%"


def _text(value: object) -> str:
    """A log call must not fail the run: what cannot be shown is named by its class."""
    try:
        return str(value)
    except Exception:  # noqa: BLE001  (the user's __str__)
        return f"<{type(value).__name__}>"


def _json(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, default=_text)
    except (TypeError, ValueError, RecursionError):
        return f"<{type(value).__name__}>"
