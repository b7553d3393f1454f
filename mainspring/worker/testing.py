"""Run a handler in a test, without a server: what it returned, said and raised, and what would follow.

    report = await run(send_report, payload={"to": "ada@example.org"})
    assert report.outcome is Outcome.SUCCEEDED
    assert report.result == {"sent": 1}

The rules are the worker's own (`signals.conclude`, `Context`, `encode_result`): a payload that no job could
have is refused, a result comes back as it would be read from the database, a sync handler runs in a thread.
Only the job and `transaction()` are made up.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from mainspring.clock import SystemClock
from mainspring.registry.definition import LONGEST_TIMEOUT, MOST_RETRIES
from mainspring.registry.templates import DEFAULT_TEMPLATE, check_template
from mainspring.registry.values import nearest, one_of, whole_number, write_payload
from mainspring.schedule import load_zone
from mainspring.schema.errors import InvalidInput
from mainspring.schema.ids import to_microseconds
from mainspring.schema.messages import JobDefinition, Message
from mainspring.schema.states import MAXIMUM_ATTEMPT, Backoff, LogLevel, Outcome
from mainspring.worker.app import Handler, Mainspring
from mainspring.worker.context import Context, ContextServices, LogLine, encode_result
from mainspring.worker.signals import EffectExists, check_duration, conclude, says_effect_exists

__all__ = ["Canceller", "Outcome", "Report", "run", "run_sync"]

Runnable = Mainspring | Handler | Callable[[Context], Any]

JOB_ID = 1
"""Of the job that is made up: `j_0000000000001`."""
_JOB_TIMEOUT = timedelta(seconds=300)  # the default of a job


@dataclass(frozen=True, slots=True)
class Report:
    """How a run ended."""

    outcome: Outcome
    """SUCCEEDED, FAILED (a retry follows), DEAD (none is left) or CANCELLED."""
    result: Any
    """What would be stored: what JSON makes of what was returned; None if it cannot be stored."""
    error: BaseException | None
    """What left the handler; a TimeoutError in its place once its time was up."""
    reason: str | None
    """What would be recorded as the run's error."""
    retry_in: timedelta | None
    """How long after the failure the next attempt would be due; None if there would be none."""
    logs: list[LogLine]
    progress: str | None
    """The newest."""
    committed: bool | None
    """Whether the transaction was committed; None if there was none."""

    def messages(self) -> list[str]:
        """The text of the log lines."""
        return [line.message for line in self.logs]


class Canceller:
    """Cancels a run, from anywhere: the test, another thread, or what the handler calls.

    Called before the run, it takes effect when an async handler first waits; a sync one finds
    `context.cancelled` set from its beginning.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reason: str | None = None
        self._target: Callable[[str], None] | None = None

    @property
    def reason(self) -> str | None:
        """Why; None as long as nobody has."""
        return self._reason

    def cancel(self, reason: str = "cancelled by a test") -> None:
        """Ask the run to stop, as an operator would."""
        with self._lock:  # held while the target is told: its event loop must not end meanwhile
            self._reason = reason
            if self._target is not None:
                self._target(reason)

    def aim(self, target: Callable[[str], None] | None) -> None:
        """Say whom to cancel, or nobody any more; for `run`."""
        with self._lock:
            self._target = target
        if target is not None and self._reason is not None:
            target(self._reason)


class _Ending(NamedTuple):
    result: object
    error: BaseException | None


class _FakeContext(Context):
    """A context whose transaction is made up: it begins, writes and commits nothing."""

    __slots__ = ("_connection", "_effect_exists", "committed")

    def __init__(
        self, message: Message, deadline: float, services: ContextServices, connection: Any, *, effect: bool
    ) -> None:
        super().__init__(message, deadline, services)
        self._connection = connection
        self._effect_exists = effect
        self.committed: bool | None = None

    def _begin(self) -> AbstractAsyncContextManager[Any]:
        return self._pretend()

    @asynccontextmanager
    async def _pretend(self) -> AsyncIterator[Any]:
        if self._effect_exists:
            raise EffectExists
        self.committed = False
        yield self._connection
        self.committed = True


async def run(
    handler_or_app: Runnable,
    name: str | None = None,
    *,
    payload: Any = None,
    scheduled_at: datetime | None = None,
    attempt: int = 1,
    idempotency_key_template: str = DEFAULT_TEMPLATE,
    timezone: str = "UTC",
    max_retries: int = 3,
    retry_backoff: Backoff | str = Backoff.EXPONENTIAL,
    timeout: timedelta | float | None = None,
    canceller: Canceller | None = None,
    connection: Any = None,
    effect_exists: bool = False,
) -> Report:
    """Execute a function, a Handler, or the handler of an app with this name, as attempt `attempt` of a job.

    `scheduled_at` is now by default. `timeout` is the job's. `connection` is what `transaction()` gives to
    the handler, as it is; `effect_exists` says that an earlier attempt has committed its transaction.
    """
    handler = _find(handler_or_app, name)
    load_zone(timezone)
    job = JobDefinition(
        JOB_ID,
        tenant_id=1,
        version=1,
        handler=handler.name,
        payload_json=write_payload(payload),
        name=handler.name,
        timezone=timezone,
        idempotency_key_template=check_template(idempotency_key_template),
        backoff=_read_backoff(retry_backoff),
        max_retries=_read_retries(max_retries),
    )
    message = _message(job, scheduled_at, attempt)
    given = _JOB_TIMEOUT if timeout is None else check_duration("timeout", timeout, LONGEST_TIMEOUT)
    limit = handler.time_limit(given)
    services = ContextServices(SystemClock())
    deadline = services.clock.monotonic() + limit.total_seconds()
    context = _FakeContext(message, deadline, services, connection, effect=effect_exists)
    canceller = canceller or Canceller()
    return _report(message, context, await _execute(handler, context, limit, canceller), canceller.reason)


def run_sync(handler_or_app: Runnable, name: str | None = None, **options: Any) -> Report:
    """`run`, for tests that are not async."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(run(handler_or_app, name, **options))
    raise InvalidInput("run_sync", "was called inside an event loop: write `await run(...)` there")


async def _execute(handler: Handler, context: Context, limit: timedelta, canceller: Canceller) -> _Ending:
    loop = asyncio.get_running_loop()
    task = asyncio.create_task(_call(handler, context), name=f"handler {handler.name}")

    def stop(reason: str) -> None:
        context.mark_cancelled(reason)
        if handler.is_async:
            # Behind the task's first step, or a handler cancelled early would never have begun.
            loop.call_soon_threadsafe(task.cancel)

    canceller.aim(stop)
    try:
        done, _ = await asyncio.wait([task], timeout=limit.total_seconds())
        if done or context.cancelled:
            return await task
        stop(f"it took longer than {limit.total_seconds():g} s")
        ending = await task
    finally:
        canceller.aim(None)
        task.cancel()  # nothing when it is done; else the test itself was cancelled
    if ending.error is None or says_effect_exists(ending.error):
        return ending
    return ending._replace(error=TimeoutError(context.cancel_reason))


async def _call(handler: Handler, context: Context) -> _Ending:
    try:
        if handler.is_async:
            return _Ending(await handler.function(context), None)
        return _Ending(await asyncio.to_thread(handler.call, context), None)
    except asyncio.CancelledError as error:
        return _Ending(None, error if context.cancelled else RuntimeError("the handler cancelled itself"))
    except (EffectExists, BaseExceptionGroup, SystemExit, Exception) as error:  # noqa: BLE001  (the user's code)
        return _Ending(None, error)


def _report(message: Message, context: _FakeContext, ending: _Ending, cancelled: str | None) -> Report:
    conclusion = conclude(message, ending.error, cancelled=cancelled)
    result = _stored(ending.result, context)
    lines = context.lines()
    progress = [line.message for line in lines if line.level is LogLevel.PROGRESS]
    return Report(
        outcome=conclusion.outcome,
        result=result,
        error=ending.error,
        reason=conclusion.error,
        retry_in=conclusion.retry_in,
        logs=[line for line in lines if line.level is not LogLevel.PROGRESS],
        progress=progress[0] if progress else None,
        committed=context.committed,
    )


def _stored(value: object, context: Context) -> Any:
    """What can be read later. A value that cannot be stored fails no run: what it did is done."""
    try:
        encoded = encode_result(value)
    except InvalidInput as refusal:
        context.log(f"the result was not kept: {refusal}", level="warning")
        return None
    return None if encoded is None else json.loads(encoded)


def _find(handler_or_app: Runnable, name: str | None) -> Handler:
    if isinstance(handler_or_app, Handler):
        return handler_or_app
    if not isinstance(handler_or_app, Mainspring):
        return Handler.of(name or str(getattr(handler_or_app, "__name__", "handler")), handler_or_app)
    handlers = handler_or_app.handlers
    if name is None and len(handlers) == 1:
        return next(iter(handlers.values()))
    if name is None:
        raise InvalidInput("name", f"is missing: the app has {len(handlers)} handlers")
    if name not in handlers:
        raise InvalidInput("name", f"the app has no handler {name[:200]!r}{nearest(name, handlers)}")
    return handlers[name]


def _message(job: JobDefinition, scheduled_at: datetime | None, attempt: int) -> Message:
    """A message as a leader would have sent it, had every earlier attempt failed."""
    instant = datetime.now(UTC).replace(microsecond=0) if scheduled_at is None else scheduled_at
    if instant.tzinfo is None:
        raise InvalidInput("scheduled_at", "has no time zone")
    microseconds = to_microseconds(instant)
    retries = whole_number("attempt", 1, MAXIMUM_ATTEMPT)(attempt) - 1
    return Message(attempt, retries, 0, 0, microseconds // 1_000_000, microseconds, 0, 1, 0, None, job)


_read_retries = whole_number("max_retries", 0, MOST_RETRIES)
_read_backoff = one_of("retry_backoff", Backoff)
