"""Reporting: outcomes become durable, in a loop beside executing.

One transaction for all batches that have something to say. Per batch one UPDATE of its claim, guarded by
`reaped_at IS NULL`; a batch that does not answer is no longer ours, and nothing of it is written. For
those that answer, all that follows from the outcomes is written in the same transaction: failures, the
next attempts as timers, dead letters, results, log lines, and what the end of a run means for others.

A batch that is over is flushed at once, one that goes on at most once a second: each flush rewrites the
row. While Postgres is away the endings wait in memory, bounded by what was claimed. A commit whose answer
was lost is repeated, and finds everything there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import asyncpg
import structlog

from mainspring.clock import Clock
from mainspring.postgres import database_errors
from mainspring.registry.endings import end_runs, somebody_depends
from mainspring.registry.letters import Letter, bury
from mainspring.schema.errors import DatabaseUnavailable
from mainspring.schema.ids import from_microseconds
from mainspring.schema.messages import Message, encode_job
from mainspring.schema.queries import query
from mainspring.schema.states import LogLevel, Outcome, Overlap, TimerCause
from mainspring.worker.batches import SUCCESS, Batch, Ending, News, Run
from mainspring.worker.claiming import Connection, add_timers, ended
from mainspring.worker.context import PROGRESS_LINE
from mainspring.worker.plans import NewTimer

Pool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"
_Endings: TypeAlias = Sequence[tuple[Run, Ending]]

PARTIAL_SECONDS = 1.0
_RETRY_SECONDS = 0.5
_AT_ONCE = 16

log = structlog.get_logger()


@dataclass(slots=True)
class Reported:
    """What one round wrote."""

    runs: int = 0
    lost: list[Batch] = field(default_factory=list)
    """Reaped by somebody: no longer ours."""


@dataclass(slots=True)
class _Flush:
    """A batch as it is written: what is known of it now."""

    batch: Batch
    outcomes: bytes
    endings: _Endings
    open: int


class Reporter:
    """Writes what executing has ended."""

    def __init__(self, pool: Pool, *, worker_id: str, worker_pool: str, clock: Clock) -> None:
        self._pool = pool
        self._worker_id = worker_id
        self._worker_pool = worker_pool
        self._clock = clock
        self._batches: dict[int, Batch] = {}
        self._lost: list[Batch] = []
        self.wake = asyncio.Event()

    def add(self, batch: Batch) -> None:
        """Look after a claimed batch until all of it is written."""
        if batch.open:
            self._batches[batch.id] = batch

    @property
    def unwritten(self) -> bool:
        """Whether anything has ended that Postgres does not know."""
        return any(batch.is_dirty for batch in self._batches.values())

    async def run_once(self, *, hurry: bool = False) -> Reported:
        """Write what is due to be written; with `hurry` all there is. A transaction for every few batches."""
        result = Reported(lost=self._lost)  # with those of a round that could not go on
        due = [batch for batch in self._batches.values() if self._is_due(batch, hurry=hurry)]
        for start in range(0, len(due), _AT_ONCE):
            await self._flush([_take(batch) for batch in due[start : start + _AT_ONCE]], result)
        self._lost = []
        return result

    async def tell(self, news: Sequence[News]) -> None:
        """Let the log of runs under way be read: one statement. All of it is written again at their ends."""
        if not news:
            return
        with database_errors():
            await self._pool.execute(
                query("add_live_lines"), [each.run.batch.id for each in news], *_columns(news)
            )

    def forget(self, batches: Iterable[Batch]) -> None:
        """Drop these: they are somebody else's."""
        for batch in batches:
            batch.is_ours = False
            self._batches.pop(batch.id, None)

    def forget_all(self) -> None:
        self.forget(list(self._batches.values()))

    def _is_due(self, batch: Batch, *, hurry: bool) -> bool:
        if not batch.is_dirty:
            return False
        return hurry or not batch.open or self._clock.monotonic() - batch.flushed_at >= PARTIAL_SECONDS

    async def _flush(self, flushes: Sequence[_Flush], result: Reported) -> None:
        try:
            with database_errors():
                ours = await self._write(sorted(flushes, key=lambda flush: flush.batch.id))
        except BaseException:
            for flush in flushes:
                flush.batch.endings = [*flush.endings, *flush.batch.endings]
            raise
        now = self._clock.monotonic()
        for flush in flushes:
            batch = flush.batch
            if batch.id not in ours:
                result.lost.append(batch)
                continue
            result.runs += batch.flushed - flush.open
            batch.flushed, batch.flushed_at = flush.open, now
            if not flush.open:
                self._batches.pop(batch.id, None)
                batch.runs.clear()  # they refer to their batch: without the circle they go at once
        self.forget(result.lost)

    async def _write(self, flushes: Sequence[_Flush]) -> set[int]:
        async with self._pool.acquire() as connection, connection.transaction():
            ours = {flush.batch.id for flush in flushes if await self._report(connection, flush)}
            endings = [each for flush in flushes if flush.batch.id in ours for each in flush.endings]
            await self._follow(connection, endings)
            return ours

    @staticmethod
    async def _report(connection: Connection, flush: _Flush) -> bool:
        batch = flush.batch
        found = await connection.fetchval(
            query("report_outcomes"),
            batch.id,
            flush.outcomes,
            batch.started_ms,
            batch.ended_ms,
            not flush.open,
        )
        return found is not None

    async def _follow(self, connection: Connection, endings: _Endings) -> None:
        """Everything that follows from these endings: at most a statement for each kind of thing."""
        notable = [each for each in endings if each[1] is not SUCCESS]
        if notable:
            await self._add_failures(connection, notable)
            await _add_results(connection, notable)
            await _add_lines(connection, notable)
            await add_timers(
                connection, [timer for timer in map(_next_attempt, notable) if timer is not None]
            )
            await bury(
                connection, [self._letter(*each) for each in notable if each[1].outcome is Outcome.DEAD]
            )
        if not await somebody_depends(connection):
            endings = [each for each in endings if _concerns_its_job(each[0].message)]
        await end_runs(connection, [ended(run.message, ending.outcome) for run, ending in endings])

    async def _add_failures(self, connection: Connection, endings: _Endings) -> None:
        failures = [each for each in endings if each[1].outcome is not Outcome.SUCCEEDED]
        if not failures:
            return
        messages = [run.message for run, _ in failures]
        await connection.execute(
            query("add_failures"),
            [message.job.job_id for message in messages],
            [from_microseconds(message.scheduled_at) for message in messages],
            [message.attempt for message in messages],
            [message.job.tenant_id for message in messages],
            [ending.outcome.word for _, ending in failures],
            [ending.error for _, ending in failures],
            [run.batch.instant(run.batch.started_ms[run.position]) for run, _ in failures],
            [run.batch.instant(run.batch.ended_ms[run.position]) for run, _ in failures],
            self._worker_id,
        )

    def _letter(self, run: Run, ending: Ending) -> Letter:
        message = run.message
        return Letter(
            message.job.tenant_id,
            message.job.job_id,
            message.scheduled_at,
            message.attempt,
            self._worker_pool,
            message.job.handler,
            ending.reason,
            ending.error,
            ending.traceback,
            encode_job(message.job),
        )


class Reporting:
    """The loop around the reporter."""

    def __init__(
        self,
        reporter: Reporter,
        on_lost: asyncio.Queue[Batch],
        news: Callable[[], Sequence[News]],
        clock: Clock,
    ) -> None:
        self._reporter = reporter
        self._lost = on_lost
        self._news = news
        self._clock = clock
        self._told = clock.monotonic()

    async def run(self, stop: asyncio.Event) -> None:
        """Report until told to stop; then what is left, once."""
        while not stop.is_set():
            await self._pause()
            await self.run_once()
            await self._tell()
        await self.run_once(hurry=True)

    async def run_once(self, *, hurry: bool = False) -> bool:
        """One round; False if Postgres could not be had."""
        try:
            reported = await self._reporter.run_once(hurry=hurry)
        except DatabaseUnavailable as error:
            log.warning("outcomes_wait", reason=str(error))
        except asyncpg.PostgresError:
            log.exception("reporting_failed")
        else:
            for batch in reported.lost:
                self._lost.put_nowait(batch)
            return True
        await asyncio.sleep(_RETRY_SECONDS)
        return False

    async def _tell(self) -> None:
        """About once a second. What fails is not repeated: a run's end writes its whole log."""
        if self._clock.monotonic() - self._told < PARTIAL_SECONDS:
            return
        self._told = self._clock.monotonic()
        try:
            await self._reporter.tell(self._news())
        except DatabaseUnavailable as error:
            log.warning("outcomes_wait", reason=str(error))
        except asyncpg.PostgresError:
            log.exception("reporting_failed")

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(PARTIAL_SECONDS / 2):
                await self._reporter.wake.wait()
        except TimeoutError:
            return
        self._reporter.wake.clear()


def _take(batch: Batch) -> _Flush:
    """What is known now, without an await in between: bytes and endings belong together."""
    endings, batch.endings = batch.endings, []
    return _Flush(batch, bytes(batch.outcomes), endings, batch.open)


def _concerns_its_job(message: Message) -> bool:
    """Whether the end of a run means something for other runs of its job, or for the job itself."""
    return not message.following or message.job.overlap is not Overlap.ALLOW


def _next_attempt(each: tuple[Run, Ending]) -> NewTimer | None:
    run, ending = each
    message, batch = run.message, run.batch
    if ending.after is None:
        return None
    ended_at = batch.instant(batch.ended_ms[run.position])
    assert ended_at is not None
    return NewTimer(
        message.shard,
        ended_at + ending.after,
        message.job.job_id,
        message.scheduled_at,
        message.attempt + 1,
        message.retries + (1 if ending.spends else 0),
        message.losses,
        TimerCause.RETRY,
    )


async def _add_results(connection: Connection, endings: _Endings) -> None:
    results = [(run.message, ending.result) for run, ending in endings if ending.result is not None]
    if results:
        await connection.execute(
            query("add_results"),
            [message.job.job_id for message, _ in results],
            [from_microseconds(message.scheduled_at) for message, _ in results],
            [message.attempt for message, _ in results],
            [value.decode() for _, value in results],
        )


async def _add_lines(connection: Connection, endings: _Endings) -> None:
    lines = [
        News(run, PROGRESS_LINE if line.level is LogLevel.PROGRESS else number, line)
        for run, ending in endings
        for number, line in enumerate(ending.lines)
    ]
    if lines:
        await connection.execute(query("add_run_logs"), *_columns(lines))


def _columns(lines: Sequence[News]) -> tuple[list[object], ...]:
    """Lines as the statements take them."""
    messages = [each.run.message for each in lines]
    return (
        [message.job.job_id for message in messages],
        [from_microseconds(message.scheduled_at) for message in messages],
        [message.attempt for message in messages],
        [each.number for each in lines],
        [each.line.at for each in lines],
        [each.line.level for each in lines],
        [each.line.message for each in lines],
    )
