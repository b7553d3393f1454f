"""One life of a worker: from its row in `workers` to an orderly stop, or until it is taken for dead.

    intake ─▶ claims (three at a time, offsets committed in order) ─▶ executor ─▶ reporter

**Stop.** Nothing more is claimed and the groups are left, so that others get the partitions at once. What
is running has the grace to end; then it is asked to stop and handed back: recorded as lost, with a next
attempt that is due now and spends no retry. A second signal hands everything back at once.

**Declared dead.** Whatever this life holds is somebody else's. Runs are stopped, nothing of them is
written, and a new life begins under another name.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TypeAlias

import asyncpg
import structlog

from mainspring.clock import Clock
from mainspring.postgres import database_errors
from mainspring.schema.errors import DatabaseUnavailable, UnreadableMessage
from mainspring.schema.ids import to_microseconds
from mainspring.schema.messages import Message, decode
from mainspring.schema.queries import query
from mainspring.worker.app import Handler
from mainspring.worker.batches import Batch, Record, Why
from mainspring.worker.claiming import LISTEN_SECONDS, Claimer
from mainspring.worker.context import ContextServices
from mainspring.worker.executing import PATIENCE_SECONDS, Executor
from mainspring.worker.heartbeat import Fitness, Heartbeat
from mainspring.worker.intake import Intake
from mainspring.worker.lanes import Sharing
from mainspring.worker.limits import Limits
from mainspring.worker.metrics import Metrics
from mainspring.worker.reporting import Reporter, Reporting

Pool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"

LARGEST_CLAIM = 5000
CLAIMS_AT_ONCE = 3
FULL_SECONDS = 2.0
"""With no free slot for so long, others get the partitions."""

_WAIT_SECONDS = 0.1
_CANCELLATION_SECONDS = 0.5
_CANCELLATION_WINDOW = 30.0
_TENANT_SECONDS = 10.0
_WRITE_SECONDS = 10.0
_CLAIM_SECONDS = 1.0
"""How long a stop waits at least for the claims under way."""

log = structlog.get_logger()


class Life:
    """Everything of a worker that ends with its name."""

    def __init__(
        self,
        *,
        worker_id: str,
        worker_pool: str,
        handlers: Mapping[str, Handler],
        concurrency: int,
        grace_seconds: float,
        run_retention: float,
        intake: Intake,
        claims_pool: Pool,
        reports_pool: Pool,
        heart_pool: Pool,
        services: ContextServices,
        metrics: Metrics,
        clock: Clock,
    ) -> None:
        self.worker_id = worker_id
        self._worker_pool = worker_pool
        self._handlers = handlers
        self._concurrency = concurrency
        self._grace = grace_seconds
        self._run_retention = run_retention
        self._intake = intake
        self._pool = claims_pool
        self._metrics = metrics
        self._clock = clock
        limited = {name: each.max_concurrency for name, each in handlers.items() if each.max_concurrency}
        self._limits = Limits(limited, clock)
        self._sharing = Sharing()
        self._claimer = Claimer(
            claims_pool,
            worker_id=worker_id,
            worker_pool=worker_pool,
            handlers=handlers,
            limits=self._limits,
            metrics=metrics,
            clock=clock,
        )
        self._reporter = Reporter(reports_pool, worker_id=worker_id, worker_pool=worker_pool, clock=clock)
        self._lost: asyncio.Queue[Batch] = asyncio.Queue()
        self.heartbeat = Heartbeat(heart_pool, worker_id, clock)
        self.executor = Executor(
            handlers,
            services,
            concurrency=concurrency,
            limits=self._limits,
            metrics=metrics,
            clock=clock,
            on_end=self._reporter.wake.set,
        )
        self._reporting = Reporting(self._reporter, self._lost, self.executor.news, clock)
        self._claiming = 0
        self._claims: set[asyncio.Task[None]] = set()
        self._committed: asyncio.Future[None] | None = None
        self._full_since: float | None = None

    async def run(self, stop: asyncio.Event, abort: asyncio.Event) -> None:
        """Work until told to stop; raises DeclaredDead (in a group) when the reaper was faster."""
        await self.heartbeat.register(
            self._worker_pool, list(self._intake.readers), sorted(self._handlers), self._concurrency
        )
        await self._claimer.listen()  # whatever is published from now on, the recall list knows about
        log.info("worker_began", worker=self.worker_id, pool=self._worker_pool)
        drained = asyncio.Event()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self.heartbeat.run(drained), name="heartbeat")
                tasks.create_task(self._mind_fitness(drained), name="fitness")
                tasks.create_task(self.executor.watch(drained), name="deadlines")
                tasks.create_task(self._reporting.run(drained), name="reporting")
                tasks.create_task(self._drop_lost(drained), name="lost-claims")
                tasks.create_task(self._hear_cancellations(drained), name="cancellations")
                tasks.create_task(self._learn_limits(drained), name="limits")
                tasks.create_task(self._listen(drained), name="recalls")
                for lane in self._intake.readers:
                    tasks.create_task(self._intake.read_lane(lane, stop), name=f"read-{lane}")
                await self._intake.join()
                await self._claim_until(stop, tasks)
                stopped = self._clock.monotonic()
                await self._end_claims(stopped, abort)
                await self._drain(stopped, abort)
                drained.set()
            with suppress(DatabaseUnavailable):
                await self.heartbeat.stop()
        except BaseException:
            self.executor.stop_all(Why.LOST, "the worker was taken for dead")
            self._reporter.forget_all()
            raise
        finally:
            self.executor.close()
        log.info("worker_ended", worker=self.worker_id)

    def show(self) -> None:
        """What is measured by looking."""
        self._metrics.gauges["runs_in_flight"] = self.executor.in_flight
        self._metrics.gauges["runs_running"] = self.executor.running
        self._metrics.gauges["heartbeat_age_seconds"] = self.heartbeat.age
        self._metrics.gauges["breakers_open"] = len(self._limits.open_breakers())
        self._metrics.lanes["lane_waiting"] = self._intake.waiting
        self._metrics.lanes["lane_oldest_seconds"] = self._intake.oldest(time.time())
        self._metrics.lanes["lane_lag"] = self._intake.lags

    async def _claim_until(self, stop: asyncio.Event, tasks: asyncio.TaskGroup) -> None:
        while not stop.is_set():
            records = self._take()
            if not records:
                await self._wait_for_work()
                await self._mind_the_slots()
                continue
            before, self._committed = self._committed, asyncio.get_running_loop().create_future()
            self._claiming += len(records)
            task = tasks.create_task(self._claim(records, before, self._committed), name="claim")
            self._claims.add(task)
            task.add_done_callback(self._claims.discard)
        await self._intake.leave()

    async def _end_claims(self, stopped: float, abort: asyncio.Event) -> None:
        """What is not in the books within the grace comes again, to somebody else: postgres is away."""
        while self._claims:
            seconds = _CLAIM_SECONDS if abort.is_set() else max(self._grace, _CLAIM_SECONDS)
            if self._clock.monotonic() - stopped >= seconds:
                log.warning("claims_given_up", claims=len(self._claims))
                for task in self._claims:
                    task.cancel()
            await asyncio.wait(self._claims, timeout=_WAIT_SECONDS)

    def _take(self) -> list[Record]:
        if len(self._claims) >= CLAIMS_AT_ONCE or self.heartbeat.fitness is not Fitness.FIT:
            return []
        room = self.executor.room() - self._claiming
        if room <= 0:
            return []
        room = min(room, LARGEST_CLAIM)
        shares = self._sharing.share_out(room, self._intake.waiting, self._intake.oldest(time.time()))
        return self._intake.take(shares)

    async def _wait_for_work(self) -> None:
        """Until a message arrives or a run ends; a look now and then in any case."""
        waiting = self.executor.changed if any(self._intake.waiting.values()) else self._intake.arrived
        waiting.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(_WAIT_SECONDS):
                await waiting.wait()

    async def _mind_the_slots(self) -> None:
        """Leave the groups when there has been no slot for a while, and join again when there is one."""
        now = self._clock.monotonic()
        if self.executor.running < self._concurrency and self.heartbeat.fitness is Fitness.FIT:
            self._full_since = None
            await self._intake.join()
        elif self._full_since is None:
            self._full_since = now
        elif now - self._full_since >= FULL_SECONDS:
            await self._intake.leave()

    async def _claim(
        self,
        records: Sequence[Record],
        before: asyncio.Future[None] | None,
        committed: asyncio.Future[None],
    ) -> None:
        try:
            await self._bring_into_the_books(records)
            if before is not None:
                await before
            self._intake.commit(records)
            committed.set_result(None)
        finally:
            self._claiming -= len(records)
            self._claims -= {asyncio.current_task()}  # before the next line, which lets others look
            self.executor.changed.set()  # there is room again, also if nothing of it is to be executed
            if not committed.done():
                committed.cancel()

    async def _bring_into_the_books(self, records: Sequence[Record]) -> None:
        together: list[Message] = []
        alone: list[Message] = []
        expired: list[Message] = []
        unreadable: list[tuple[bytes, str]] = []
        oldest_ms = (self._claimer.time().timestamp() - self._run_retention) * 1000
        for record in records:
            try:
                message = decode(record.value)
            except UnreadableMessage as error:
                unreadable.append((record.value, error.reason))
                continue
            if record.appended_ms < oldest_ms:
                expired.append(message)
            else:
                (alone if message.losses else together).append(message)
        if unreadable:
            self._metrics.unreadable += len(unreadable)
            log.error("messages_unreadable", messages=len(unreadable), reason=unreadable[0][1])
            await self._claimer.bury_unreadable(unreadable)
        if expired:
            self._metrics.expired += len(expired)
            log.error("messages_expired", messages=len(expired))
            await self._claimer.bury_expired(expired)
        if together:
            self._accept(await self._claimer.claim(together))
        for message in alone:
            self._accept(await self._claimer.claim([message]))

    def _accept(self, batch: Batch) -> None:
        self._reporter.add(batch)
        self.executor.start(batch)

    async def _mind_fitness(self, drained: asyncio.Event) -> None:
        """Start nothing while the heartbeat is overdue; stop everything before the reaper acts."""
        while not drained.is_set():
            fitness = self.heartbeat.fitness
            if self.executor.may_start and fitness is not Fitness.FIT:
                log.warning("worker_holds", age=round(self.heartbeat.age, 1))
            self.executor.may_start = fitness is Fitness.FIT
            if fitness is Fitness.FIT:
                self.executor.resume()
            elif fitness is Fitness.UNFIT and self.executor.in_flight:
                self.executor.stop_all(Why.HANDED_BACK, "its worker could not renew its heartbeat")
            await asyncio.sleep(_WAIT_SECONDS)

    async def _drop_lost(self, drained: asyncio.Event) -> None:
        """Runs of a claim that somebody has reaped are stopped; what they did is not written."""
        while not drained.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(_WAIT_SECONDS * 5):
                    batch = await self._lost.get()
                    log.warning("claim_lost", claim=batch.id, runs=len(batch.runs))
                    self.executor.drop(batch)

    async def _hear_cancellations(self, drained: asyncio.Event) -> None:
        while not drained.is_set():
            if self.executor.in_flight:
                with suppress(DatabaseUnavailable):
                    await self._cancel_asked()
            await asyncio.sleep(_CANCELLATION_SECONDS)

    async def _cancel_asked(self) -> None:
        """Stop what somebody wants cancelled: one statement."""
        with database_errors():
            rows = await self._pool.fetch(query("cancellations_since"), _CANCELLATION_WINDOW)
        for row in rows:
            key = row["job_id"], to_microseconds(row["scheduled_at"]), row["attempt"]
            self.executor.stop_run(key, Why.CANCELLED, row["reason"] or "cancelled on request")

    async def _listen(self, drained: asyncio.Event) -> None:
        while not drained.is_set():
            with suppress(DatabaseUnavailable):
                await self._claimer.listen()
            with suppress(TimeoutError):
                async with asyncio.timeout(LISTEN_SECONDS):
                    await drained.wait()

    async def _learn_limits(self, drained: asyncio.Event) -> None:
        while not drained.is_set():
            with suppress(DatabaseUnavailable), database_errors():
                rows = await self._pool.fetch(query("tenant_limits"))
                self._limits.tenants = {row["id"]: row["maximum_running"] for row in rows}
            with suppress(TimeoutError):
                async with asyncio.timeout(_TENANT_SECONDS):
                    await drained.wait()

    async def _drain(self, stopped: float, abort: asyncio.Event) -> None:
        """Let what is running end within the grace, hand back the rest, and write it all."""
        log.info("worker_drains", runs=self.executor.in_flight)
        await self._until_empty(stopped + self._grace - self._clock.monotonic(), abort)
        self.executor.stop_all(Why.HANDED_BACK, "the worker stops")
        await self._until_empty(PATIENCE_SECONDS + 1, None)
        deadline = self._clock.monotonic() + _WRITE_SECONDS
        while self._reporter.unwritten and self._clock.monotonic() < deadline:
            await self._reporting.run_once(hurry=True)

    async def _until_empty(self, seconds: float, abort: asyncio.Event | None) -> None:
        deadline = self._clock.monotonic() + seconds
        while self.executor.in_flight and self._clock.monotonic() < deadline:
            if abort is not None and abort.is_set():
                return
            await asyncio.sleep(_WAIT_SECONDS / 2)
