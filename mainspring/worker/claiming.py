"""Claiming: how messages become runs, and what is durable when.

**Who is authoritative.** Postgres. The primary key `(job_id, scheduled_at, attempt)` of `runs` decides
who executes an attempt: whoever has the row. Kafka only *brings* messages; it may bring one twice, in any
order, to any worker, and from the beginning again. What has no row has not been executed; what has one is
executed by the worker of its claim, or is repaired after that worker's death.

    message ─▶ claim: one transaction ─▶ offset committed ─▶ handler ─▶ outcomes: one transaction
                 │ the claim, its runs     not before                      │ bytes, failures, next attempts,
                 │ what is born final                                      │ letters; only while the claim
                 └ timers, dead letters                                    └ is not reaped

**What each crash leaves behind.**

    before the commit                nothing. The offset was not committed: the message comes again
    after it, its answer lost        the same claim id is used for the retry: a conflict on it means that it
                                     is ours already, and the rows say which runs we have
    before the offset is committed   the message comes again, finds its row, and is void
    before or during the handler     the reaper finds the claim without a living worker: the attempt is lost,
                                     the next one is a timer
    after the handler, before the    the same: the attempt is repeated. What it did in its transaction with
      flush                          the context is found by the next attempt and not done again
    a worker that was reaped wakes   its flush changes no row; it drops what it holds and begins a new life

**One transaction.** First the change feed: what was paused, deleted or edited since the message was
published binds here (recall.py). Then what else can keep a run from starting: a request to cancel it, an
effect that an earlier attempt has committed, lateness, limits, another run of the same job. Then
everything is written. The runs go by COPY, because copies of messages are rare; if a key exists (or two
workers meet in opposite order) the transaction is repeated through a temporary table, which wins the rows
that are free. A run whose day has no table makes the day and repeats.

**Claimed alone.** An attempt at an occurrence that has lost a worker before is claimed alone, so that the
next death takes nobody along.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple, TypeAlias, cast

import asyncpg
import structlog
from asyncpg.pool import PoolConnectionProxy

from mainspring.clock import Clock
from mainspring.postgres import database_errors
from mainspring.registry.endings import Ended, end_runs
from mainspring.registry.letters import Letter, bury, bury_unreadable
from mainspring.schema.errors import DatabaseUnavailable, PartitionBusy
from mainspring.schema.ids import from_microseconds, new_claim_id, to_microseconds
from mainspring.schema.messages import Message, encode_job
from mainspring.schema.partitions import ensure_days
from mainspring.schema.queries import query
from mainspring.schema.snapshot import Snapshot
from mainspring.schema.states import DeadReason, JobStatus, Outcome, Overlap
from mainspring.worker.batches import Batch, Run
from mainspring.worker.copying import RUN_COLUMNS, encode_runs, stream
from mainspring.worker.gates import Gates, Overtaken
from mainspring.worker.limits import Limits
from mainspring.worker.metrics import Metrics
from mainspring.worker.plans import Key, NewTimer, Plan, is_missed, key_of
from mainspring.worker.recall import Changed, RecallList

Connection: TypeAlias = "PoolConnectionProxy[asyncpg.Record]"
Pool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"

UNKNOWN_SECONDS = 600.0
"""How long a run waits for a worker that has its handler: a deploy may be rolling."""

LISTEN_SECONDS = 1.0

_RETRY_SECONDS = 0.5

log = structlog.get_logger()


class DeclaredDead(Exception):
    """The reaper took this worker for dead: what it holds is somebody else's."""


class _Refused(Exception):
    """Postgres did not take the claim: it has it already, or the worker is dead."""


class _Moment(NamedTuple):
    """The database's time of a claim, and ours."""

    now: datetime
    monotonic: float


class Claimer:
    """Turns messages into batches of runs."""

    def __init__(
        self,
        pool: Pool,
        *,
        worker_id: str,
        worker_pool: str,
        handlers: Collection[str],
        limits: Limits,
        metrics: Metrics,
        clock: Clock,
    ) -> None:
        self._pool = pool
        self._metrics = metrics
        self._worker_id = worker_id
        self._worker_pool = worker_pool
        self._handlers = frozenset(handlers)
        self._limits = limits
        self._clock = clock
        self._recalls = RecallList()
        self._seen: _Moment | None = None

    async def claim(self, messages: Sequence[Message]) -> Batch:
        """Bring every message into the books; the batch has what is to be executed.

        Tried until Postgres takes it: until then nobody else gets these messages, and none is lost.
        """
        claim_id, contested, refused = new_claim_id(self._clock.now()), False, False
        while True:
            plan = Plan()
            try:
                with database_errors():
                    if refused:
                        return await self._mine_already(claim_id, messages)
                    return await self._try(claim_id, messages, plan, contested=contested)
            except _Refused:
                refused = True
            except (asyncpg.UniqueViolationError, Overtaken):
                contested = True
            except asyncpg.CheckViolationError:
                await self._make_days(messages)
            except (DatabaseUnavailable, PartitionBusy) as error:
                contested = True  # whatever was in the way may be still
                log.warning("claim_waits", messages=len(messages), reason=str(error))
                await asyncio.sleep(_RETRY_SECONDS)
            self._withdraw(plan)

    async def listen(self) -> None:
        """Keep up with the change feed while nothing is claimed: two statements, none if a claim did it."""
        if self._seen is not None and self._clock.monotonic() - self._seen.monotonic < LISTEN_SECONDS / 2:
            return
        with database_errors():
            async with self._pool.acquire() as connection:
                await self._look(connection)

    def time(self) -> datetime:
        """The database's time, reckoned from when it was last heard of."""
        assert self._seen is not None, "listen comes first"
        return self._seen.now + timedelta(seconds=self._clock.monotonic() - self._seen.monotonic)

    async def bury_unreadable(self, messages: Sequence[tuple[bytes, str]]) -> None:
        """Keep what nobody can decode, with the reason."""
        await self._bury(
            lambda connection: bury_unreadable(connection, self._worker_pool, messages), len(messages)
        )

    async def bury_expired(self, messages: Sequence[Message]) -> None:
        """Keep what was published longer ago than runs are kept: nobody can say whether it was executed."""
        error = "the message is older than runs are kept, so nobody can say whether it was executed"
        letters = [_letter(each, self._worker_pool, DeadReason.EXPIRED, error) for each in messages]
        await self._bury(lambda connection: bury(connection, letters), len(messages))

    async def _bury(self, write: Callable[[Connection], Awaitable[None]], messages: int) -> None:
        while True:
            try:
                with database_errors():
                    async with self._pool.acquire() as connection, connection.transaction():
                        return await write(connection)
            except DatabaseUnavailable as error:
                log.warning("claim_waits", messages=messages, reason=str(error))
                await asyncio.sleep(_RETRY_SECONDS)

    async def _try(self, claim_id: int, messages: Sequence[Message], plan: Plan, *, contested: bool) -> Batch:
        async with self._pool.acquire() as connection, connection.transaction():
            moment = await self._look(connection)
            await self._decide(connection, claim_id, messages, plan, moment.now)
            claimed_at = await self._insert_claim(connection, claim_id, plan)
            if claimed_at is None:
                raise _Refused  # nothing that this try has asked for must stay: it met itself
            await self._insert_runs(connection, claim_id, plan, contested=contested)
            await self._account(connection, plan)
        self._metrics.planned(plan)
        return _batch(claim_id, claimed_at, moment.monotonic, plan)

    async def _look(self, connection: Connection) -> _Moment:
        """The change feed since the last claim: two statements."""
        row = await connection.fetchrow(query("feed_position"))
        assert row is not None
        monotonic = self._clock.monotonic()
        now = Snapshot.parse(row["snapshot"])
        self._recalls.begin(now, row["timeline"])
        for changed in await connection.fetch(query("recalls"), str(self._recalls.snapshot)):
            self._recalls.add(changed["id"], Changed(changed["version"], JobStatus(changed["status"])))
        # The statement above may have seen more than `now`; what it saw is seen again the next time.
        self._recalls.snapshot = now
        self._seen = _Moment(row["at"], monotonic)
        return self._seen

    async def _decide(
        self, connection: Connection, claim_id: int, messages: Sequence[Message], plan: Plan, now: datetime
    ) -> None:
        gates = Gates(connection)
        jobs = await gates.jobs(self._recalls.concerned(messages))
        cancelled = await gates.cancelled(messages)
        effects = await gates.effects(messages)
        unknown: list[Message] = []
        overlapping: list[Message] = []
        self._limits.begin()
        second = int(now.timestamp())
        for message in messages:
            job_id = message.job.job_id
            if jobs.stopped and job_id in jobs.stopped:
                plan.finish(message, Outcome.RECALLED, jobs.stopped[job_id])
                continue
            if job_id in jobs.newest:
                message = message._replace(job=jobs.newest[job_id])
            if cancelled and key_of(message) in cancelled:
                plan.finish(message, Outcome.CANCELLED, cancelled[key_of(message)])
            elif effects and (job_id, message.scheduled_at) in effects:
                plan.finish(message, Outcome.SUCCEEDED, "")
            elif second - message.second > message.job.grace_seconds and is_missed(message, now):
                plan.finish(message, Outcome.MISSED, "later than its grace")
            elif message.job.handler not in self._handlers:
                unknown.append(message)
            elif (delay := self._limits.admit(message)) is not None:
                plan.put_off(message, now, delay)
            elif message.job.overlap is not Overlap.ALLOW:
                overlapping.append(message)
            else:
                plan.execute(message)
        try:
            if unknown:
                await self._defer_unknown(gates, unknown, plan, now)
            if overlapping:
                await self._take_turns(gates, claim_id, overlapping, plan, now)
        except BaseException:  # they are in no plan yet
            for message in overlapping:
                self._limits.withdraw(message)
            raise

    async def _defer_unknown(self, gates: Gates, unknown: list[Message], plan: Plan, now: datetime) -> None:
        """No handler here: later, perhaps elsewhere; after ten minutes nowhere."""
        waited = await gates.defer(unknown)
        for message in unknown:
            deferral = waited[key_of(message)]
            if deferral.waited < UNKNOWN_SECONDS:
                plan.put_off(message, now, timedelta(seconds=min(5.0 * deferral.times, 60.0)))
                continue
            error = f"no worker of the pool {self._worker_pool!r} has the handler {message.job.handler!r}"
            plan.letters.append(_letter(message, self._worker_pool, DeadReason.UNKNOWN_HANDLER, error))
            plan.finish(message, Outcome.DEAD, error)
            plan.forgotten.append(message)

    async def _take_turns(
        self, gates: Gates, claim_id: int, overlapping: list[Message], plan: Plan, now: datetime
    ) -> None:
        """Runs of jobs that do not overlap themselves: each takes its job's slot, or waits, or is skipped."""
        for message, turn in await gates.take_turns(claim_id, overlapping, first=len(plan.runs)):
            if turn is None:
                plan.execute(message)
                continue
            self._limits.withdraw(message)
            if turn.waits:
                plan.put_off(message, now, turn.delay)
            else:
                plan.finish(message, Outcome.SKIPPED, "another run of the job was under way")

    async def _insert_claim(self, connection: Connection, claim_id: int, plan: Plan) -> datetime | None:
        claimed_at: datetime | None = await connection.fetchval(
            query("insert_claim"), claim_id, self._worker_id, plan.bytes, *plan.tallies(), plan.is_finished
        )
        return claimed_at

    async def _mine_already(self, claim_id: int, messages: Sequence[Message]) -> Batch:
        """The answer to an earlier commit was lost: what stands is what we have."""
        async with self._pool.acquire() as connection, connection.transaction():
            moment = await self._look(connection)
            claim = await connection.fetchrow(query("claim_as_it_stands"), claim_id, self._worker_id)
            if claim is None:
                raise DeclaredDead(self._worker_id)
            newest = (await Gates(connection).jobs(self._recalls.concerned(messages))).newest
            rows = await connection.fetch(query("runs_of_claim"), claim_id)
        known: dict[Key, Message] = {key_of(message): message for message in messages}
        age = (moment.now - claim["claimed_at"]).total_seconds()
        batch = Batch(claim_id, claim["claimed_at"], moment.monotonic - age, claim["outcomes"])
        for row in rows:
            if batch.outcomes[row["position"]] != Outcome.PENDING:
                continue
            message = known[row["job_id"], to_microseconds(row["scheduled_at"]), row["attempt"]]
            job = newest.get(row["job_id"])
            if job is not None and job.handler in self._handlers:
                message = message._replace(job=job)
            self._limits.hold(message)
            batch.runs.append(Run(batch, row["position"], message))
        return batch

    async def _insert_runs(
        self, connection: Connection, claim_id: int, plan: Plan, *, contested: bool
    ) -> None:
        if not plan.runs:
            return
        data = encode_runs(plan.runs, claim_id)
        if not contested:
            await connection.copy_to_table("runs", source=stream(data), columns=RUN_COLUMNS, format="binary")
            return
        await connection.execute(query("make_contenders"))
        await connection.copy_to_table(
            "contenders", source=stream(data), columns=RUN_COLUMNS, format="binary"
        )
        won = {row["position"] for row in await connection.fetch(query("win_runs"))}
        lost = [position for position in range(len(plan.runs)) if position not in won]
        if lost:
            for position in lost:
                if plan.outcomes[position] == Outcome.PENDING:
                    self._limits.withdraw(plan.runs[position])
            plan.void(lost)
            await connection.execute(
                query("amend_claim"), claim_id, plan.bytes, *plan.tallies(), plan.is_finished
            )

    async def _account(self, connection: Connection, plan: Plan) -> None:
        """What is true together with the claim: at most a statement for each kind of thing."""
        if plan.finals:
            await self._add_finals(connection, plan)
        await add_timers(connection, plan.timers)
        if plan.letters:
            await bury(connection, plan.letters)
        if plan.forgotten:
            await Gates(connection).forget(plan.forgotten)

    async def _add_finals(self, connection: Connection, plan: Plan) -> None:
        failures = [each for each in plan.finals if each.outcome is not Outcome.SUCCEEDED]
        messages = [plan.runs[each.position] for each in failures]
        await connection.execute(
            query("add_failures"),
            [message.job.job_id for message in messages],
            [from_microseconds(message.scheduled_at) for message in messages],
            [message.attempt for message in messages],
            [message.job.tenant_id for message in messages],
            [each.outcome.word for each in failures],
            [each.error for each in failures],
            [None] * len(failures),
            [None] * len(failures),
            self._worker_id,
        )
        await end_runs(connection, [ended(plan.runs[each.position], each.outcome) for each in plan.finals])

    async def _make_days(self, messages: Sequence[Message]) -> None:
        days = {from_microseconds(message.scheduled_at).date() for message in messages}
        log.info("days_made_for_runs", days=sorted(map(str, days)))
        try:
            with database_errors():
                async with self._pool.acquire() as connection:
                    await ensure_days(cast("asyncpg.Connection[asyncpg.Record]", connection), days)
        except (DatabaseUnavailable, PartitionBusy) as error:
            log.warning("claim_waits", messages=len(messages), reason=str(error))
            await asyncio.sleep(_RETRY_SECONDS)

    def _withdraw(self, plan: Plan) -> None:
        for position, message in enumerate(plan.runs):
            if plan.outcomes[position] == Outcome.PENDING:
                self._limits.withdraw(message)


async def add_timers(connection: Connection, timers: Sequence[NewTimer]) -> None:
    """Write timers: one statement, none if there are none."""
    # One statement cannot write a row twice, and two copies of a message may have been put off.
    rows = {(each.job_id, each.scheduled_at, each.attempt): each for each in timers}.values()
    if rows:
        await connection.execute(
            query("add_timers"),
            [each.shard for each in rows],
            [each.due_at for each in rows],
            [each.job_id for each in rows],
            [from_microseconds(each.scheduled_at) for each in rows],
            [each.attempt for each in rows],
            [each.retries for each in rows],
            [each.losses for each in rows],
            [each.cause for each in rows],
        )


def ended(message: Message, outcome: Outcome) -> Ended:
    """What the end of this run means for others."""
    return Ended(
        message.job.job_id,
        message.scheduled_at,
        message.attempt,
        outcome,
        message.job.overlap is not Overlap.ALLOW,
        not message.following,
    )


def _letter(message: Message, pool: str, reason: DeadReason, error: str) -> Letter:
    job = message.job
    return Letter(
        job.tenant_id,
        job.job_id,
        message.scheduled_at,
        message.attempt,
        pool,
        job.handler,
        reason,
        error,
        None,
        encode_job(job),
    )


def _batch(claim_id: int, claimed_at: datetime, monotonic: float, plan: Plan) -> Batch:
    batch = Batch(claim_id, claimed_at, monotonic, plan.bytes)
    pending = Outcome.PENDING
    batch.runs = [
        Run(batch, position, message)
        for position, (message, outcome) in enumerate(zip(plan.runs, plan.outcomes, strict=True))
        if outcome == pending
    ]
    return batch
