"""Executing: claimed runs go through the handlers, so many at once, each with an end.

A run that waits for something has its task to itself, so that a handler may do with it what it likes. But
most of half a million runs never wait, and a task for each would cost more than they do: so one task, the
*server*, starts runs one after the other, and the first that waits keeps it; another one serves from then on.
A task in which a handler has left something behind (a context variable, a cancellation) serves no more.
A synchronous handler runs in a thread; its task waits for it.

**Stopping.** A run is asked to stop when its time is up, when somebody cancels it, when the worker stops,
or when it is no longer ours. An asynchronous handler is cancelled; a synchronous one sees
`context.cancelled`. Who does not end within the patience is *abandoned*: its outcome is recorded and its
slot is free, whatever it goes on doing is reported and has no effect on the books. A thread cannot be
ended from outside.

**How much to claim.** As many as there are slots, and as many more as by the pace of the last second will
have been started soon: no-op handlers need thousands at a time, slow ones none beyond the slots.
"""

from __future__ import annotations

import asyncio
import contextvars
import math
import traceback
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import structlog

from mainspring.clock import Clock
from mainspring.schema.errors import InvalidInput
from mainspring.schema.ids import RunKey, format_run_id, from_microseconds
from mainspring.schema.messages import Message
from mainspring.schema.states import LogLevel, Outcome
from mainspring.worker.app import Handler
from mainspring.worker.batches import SUCCESS, Batch, Ending, News, Run, Stop, Why
from mainspring.worker.context import Context, ContextServices, LogLine, encode_result
from mainspring.worker.limits import Limits
from mainspring.worker.metrics import Metrics
from mainspring.worker.plans import Key, key_of
from mainspring.worker.signals import conclude, says_effect_exists

PATIENCE_SECONDS = 5.0
"""How long a run may take to end after it was asked to."""

_TURN_SECONDS = 0.005
"""How long runs are started without a look at what else the event loop has to do."""

_LOOK_SECONDS = 0.25
_SOON_SECONDS = 0.5
_MOST_AHEAD = 30_000
_LONGEST_TRACEBACK = 20_000

log = structlog.get_logger()


class Executor:
    """Runs handlers."""

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        services: ContextServices,
        *,
        concurrency: int,
        limits: Limits,
        metrics: Metrics,
        clock: Clock,
        on_end: Callable[[], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._handlers = handlers
        self._timeouts = {
            name: math.inf if each.timeout is None else each.timeout.total_seconds()
            for name, each in handlers.items()
        }
        self._services = services
        self._concurrency = concurrency
        self._limits = limits
        self._metrics = metrics
        self._clock = clock
        self._on_end = on_end
        # Threads are made at need; abandoned ones must not use up the places of others.
        self._threads = ThreadPoolExecutor(2 * concurrency + 16, thread_name_prefix="mainspring-handler")
        self._running: dict[Run, None] = {}  # in the order in which they began
        self._waiting: deque[Run] = deque()
        self._server: asyncio.Task[None] | None = None
        self._clean = contextvars.copy_context()
        self._ended = 0
        self._pace = _Pace(clock)
        self.may_start = True
        """False while the heartbeat is overdue: what is claimed waits."""
        self.changed = asyncio.Event()
        """Set whenever a run has ended."""

    @property
    def in_flight(self) -> int:
        return len(self._running) + len(self._waiting)

    @property
    def running(self) -> int:
        return len(self._running)

    def room(self) -> int:
        """How many more to claim now."""
        soon = min(_MOST_AHEAD, int(self._pace.per_second(self._ended) * _SOON_SECONDS))
        return max(0, self._concurrency + soon - self.in_flight)

    def start(self, batch: Batch) -> None:
        """Take a claimed batch; its runs begin as soon as there are slots."""
        self._waiting.extend(batch.runs)
        self.resume()

    def resume(self) -> None:
        """Fill the free slots."""
        if self._server is None and self._may_begin():
            # Not in the context of whoever calls: that may be the one of a run that has just ended.
            self._server = self._loop.create_task(self._serve(), name="server", context=self._clean.copy())

    def stop_run(self, key: Key, why: Why, reason: str) -> bool:
        """Ask one run to stop; False if it is not here."""
        run = next((each for each in self._running if key_of(each.message) == key), None)
        if run is not None:
            self._ask(run, why, reason)
            return True
        waiting = next((each for each in self._waiting if key_of(each.message) == key), None)
        if waiting is not None:
            self._waiting.remove(waiting)
            self._end_waiting(waiting, why, reason)
        return waiting is not None

    def stop_all(self, why: Why, reason: str) -> None:
        """Ask everything to stop; what has not begun ends at once."""
        waiting, self._waiting = self._waiting, deque()
        for run in waiting:
            self._end_waiting(run, why, reason)
        for run in list(self._running):
            self._ask(run, why, reason)

    def handler_of(self, task: asyncio.Task[object] | None) -> str | None:
        """Whose run this task is, if it is one."""
        run = next((each for each in self._running if each.task is task), None)
        return None if run is None or task is None else run.message.job.handler

    def drop(self, batch: Batch) -> None:
        """These runs are somebody else's: stop them, their outcomes are not written."""
        reason = "its claim was taken over"
        for run in batch.runs:
            if run in self._running:
                self._ask(run, Why.LOST, reason)
            elif run.is_open:
                self._end_waiting(run, Why.LOST, reason)
        self._waiting = deque(run for run in self._waiting if run.is_open)

    def news(self) -> list[News]:
        """What runs under way have logged since this was last asked."""
        return [
            News(run, number, line)
            for run in self._running
            if run.context is not None
            for number, line in run.context.news()
        ]

    async def watch(self, stop: asyncio.Event) -> None:
        """End what is out of time, until told to stop."""
        while not stop.is_set():
            self.look()
            await asyncio.sleep(_LOOK_SECONDS)

    def look(self) -> None:
        """One look at all that is running."""
        now = self._clock.monotonic()
        for run in list(self._running):
            if run.stop is None and now >= run.deadline:
                seconds = self._timeout(run.message)
                self._ask(run, Why.TIMEOUT, f"it took longer than {seconds:g} s")
            elif run.stop is not None and now - run.stop.at >= PATIENCE_SECONDS:
                self._abandon(run)

    def close(self) -> None:
        """Take no more; threads that go on are left behind."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _may_begin(self) -> bool:
        return self.may_start and bool(self._waiting) and len(self._running) < self._concurrency

    async def _serve(self) -> None:
        """Start what waits, until a run waits for something: then this task is that run's alone."""
        task = asyncio.current_task()
        assert task is not None
        turn_began = self._clock.monotonic()
        while self._may_begin():
            now = self._clock.monotonic()
            if now - turn_began >= _TURN_SECONDS:
                await asyncio.sleep(0)
                turn_began = self._clock.monotonic()
                continue
            run = self._waiting.popleft()
            if not run.is_open:
                continue
            self._begin(run, task, now)
            rest = self._step(run)
            if rest is not None:
                self._server = None
                self.resume()
                await self._finish(run, rest)
                return
            if task.cancelling() or contextvars.copy_context() != self._clean:
                break
        self._server = None
        self.resume()

    def _begin(self, run: Run, task: asyncio.Task[None], now: float) -> None:
        message = run.message
        run.began, run.deadline = now, now + self._timeout(message)
        run.context = Context(message, run.deadline, self._services)
        run.task = task
        run.batch.begin(run.position, now)
        self._running[run] = None

    def _step(self, run: Run) -> Awaitable[object] | None:
        """Let the handler go as far as it goes without waiting: to its end, or what is left of it."""
        handler, context = self._handlers[run.message.job.handler], run.context
        assert context is not None
        try:
            if not handler.is_async:
                call = contextvars.copy_context().run
                return self._loop.run_in_executor(self._threads, call, _call, handler, context, run)
            coroutine = handler.function(context)
            waits_for = coroutine.send(None)
        except StopIteration as end:
            self._end(run, self._succeeded(end.value, context))
        except BaseException as error:  # noqa: BLE001  (whatever it is must not end the server)
            self._end(run, self._failed(run, context, error))
        else:
            return _Rest(coroutine, waits_for)
        return None

    async def _finish(self, run: Run, rest: Awaitable[object]) -> None:
        context = run.context
        assert context is not None
        try:
            value = await rest
        except GeneratorExit:  # the loop is closed
            raise
        except BaseException as error:  # noqa: BLE001
            self._end(run, self._failed(run, context, error))
        else:
            self._end(run, self._succeeded(value, context))

    def _succeeded(self, value: object, context: Context) -> Ending:
        lines = context.lines()
        if value is None:
            return SUCCESS if not lines else Ending(Outcome.SUCCEEDED, lines=lines)
        try:
            return Ending(Outcome.SUCCEEDED, result=encode_result(value), lines=lines)
        except InvalidInput as error:
            # What it did is done: doing it again would not make its result smaller.
            told = LogLine(self._clock.now(), LogLevel.WARNING, f"the result was not kept: {error}")
            return Ending(Outcome.SUCCEEDED, lines=[*lines, told])

    def _failed(self, run: Run, context: Context, error: BaseException) -> Ending:
        stop, lines = run.stop, context.lines()
        if says_effect_exists(error):
            return Ending(Outcome.SUCCEEDED, lines=lines)
        if stop is not None and stop.why in (Why.HANDED_BACK, Why.LOST):
            return _handed_back(stop, lines)
        if stop is not None and stop.why is Why.TIMEOUT:
            error = TimeoutError(stop.reason)
        elif isinstance(error, asyncio.CancelledError) and stop is None:
            error = RuntimeError("the handler cancelled itself")
        cancelled = stop.reason if stop is not None and stop.why is Why.CANCELLED else None
        conclusion = conclude(run.message, error, cancelled=cancelled)
        told = "".join(traceback.format_exception(error))[-_LONGEST_TRACEBACK:]
        return Ending(
            conclusion.outcome,
            conclusion.error or "",
            told if conclusion.outcome is Outcome.DEAD else None,
            conclusion.retry_in,
            lines=lines,
        )

    def _ask(self, run: Run, why: Why, reason: str) -> None:
        if run.stop is not None and why is not Why.LOST:
            return
        run.stop = Stop(why, reason, self._clock.monotonic())
        if run.context is not None:
            run.context.mark_cancelled(reason)
        if run.task is not None and self._handlers[run.message.job.handler].is_async:
            run.task.cancel(reason)

    def _abandon(self, run: Run) -> None:
        message = run.message
        log.error(
            "handler_abandoned",
            handler=message.job.handler,
            run=_name(message),
            reason=run.stop.reason if run.stop else "",
        )
        self._metrics.abandoned(message)
        context = run.context or Context(message, run.deadline, self._services)
        self._end(run, self._failed(run, context, asyncio.CancelledError()))

    def _end_waiting(self, run: Run, why: Why, reason: str) -> None:
        stop = Stop(why, reason, self._clock.monotonic())
        cancelled = why is Why.CANCELLED
        ending = Ending(Outcome.CANCELLED, reason) if cancelled else _handed_back(stop, ())
        self._limits.withdraw(run.message)
        run.batch.end(run, ending, stop.at)
        self._ended_one()

    def _end(self, run: Run, ending: Ending) -> None:
        if not run.is_open:  # abandoned before
            return
        now = self._clock.monotonic()
        seconds = now - run.began
        run.batch.end(run, ending, now)
        failed = ending is not SUCCESS and ending.outcome in (Outcome.FAILED, Outcome.DEAD)
        self._limits.release(run.message, seconds, failed=failed)
        self._metrics.ended(run, ending.outcome, seconds)
        del self._running[run]
        run.task = None
        self._ended_one()
        self.resume()

    def _ended_one(self) -> None:
        self._ended += 1
        self.changed.set()
        self._on_end()

    def _timeout(self, message: Message) -> float:
        return min(self._timeouts[message.job.handler], message.job.timeout_seconds)


class _Rest:
    """What is left of a coroutine that has begun and waits for something."""

    def __init__(self, coroutine: Coroutine[Any, Any, object], waits_for: object) -> None:
        self._coroutine = coroutine
        self._waits_for = waits_for

    def __await__(self) -> Generator[object, Any, object]:
        coroutine, waits_for = self._coroutine, self._waits_for
        try:
            while True:
                try:
                    answer = yield waits_for
                except GeneratorExit:
                    coroutine.close()
                    raise
                except BaseException as error:  # noqa: BLE001  (a cancellation, and whatever else: the handler's)
                    waits_for = coroutine.throw(error)
                else:
                    waits_for = coroutine.send(answer)
        except StopIteration as end:
            return end.value


class _Pace:
    """Runs ended per second, lately."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._at = clock.monotonic()
        self._ended = 0
        self._per_second = 0.0

    def per_second(self, ended: int) -> float:
        now = self._clock.monotonic()
        passed = now - self._at
        if passed >= 0.02:
            share = min(1.0, passed / 0.2)
            self._per_second += share * ((ended - self._ended) / passed - self._per_second)
            self._at, self._ended = now, ended
        return self._per_second


def _call(handler: Handler, context: Context, run: Run) -> object:
    """In its thread. What got none in its time was abandoned, and must not begin when one is free again."""
    return handler.call(context) if run.is_open else None


def _handed_back(stop: Stop, lines: Iterable[LogLine]) -> Ending:
    """The next attempt is due at once, and spends nothing: it was not the run's fault."""
    return Ending(
        Outcome.LOST, f"handed back: {stop.reason}", after=timedelta(0), spends=False, lines=list(lines)
    )


def _name(message: Message) -> str:
    return format_run_id(RunKey(message.job.job_id, from_microseconds(message.scheduled_at), message.attempt))
