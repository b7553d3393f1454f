"""How runs go through their handlers: slots, ends, time that is up, requests to stop."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from structlog.testing import capture_logs

from mainspring.clock import ManualClock
from mainspring.schema.messages import Message
from mainspring.schema.states import LogLevel, Outcome
from mainspring.worker.app import Handler
from mainspring.worker.batches import SUCCESS, Batch, Ending, Why
from mainspring.worker.context import LARGEST_RESULT, Context, ContextServices
from mainspring.worker.executing import PATIENCE_SECONDS, Executor
from mainspring.worker.limits import Limits
from mainspring.worker.metrics import Metrics
from mainspring.worker.plans import key_of
from mainspring.worker.signals import Cancel, EffectExists, NotRetryable, Retry
from tests.unit.worker.runs import NOON, batch_of, message

BOUND_SECONDS = 60.0
MANY_TURNS = 50


class World:
    """An executor with a clock that stands still, and what its handlers wait for."""

    def __init__(self) -> None:
        self.clock = ManualClock(NOON)
        self.metrics = Metrics()
        self.limits = Limits({"limited": 1}, self.clock)
        self.ended = 0
        self.started: list[str] = []
        self.gates: dict[str, asyncio.Event] = {}
        self.release = threading.Event()
        self.handlers: dict[str, Handler] = {}
        for name in ("wait", "limited"):
            self.handlers[name] = Handler.of(name, self.wait)
        self.executor = self.with_slots(10)

    def with_slots(self, concurrency: int) -> Executor:
        self.executor = Executor(
            self.handlers,
            ContextServices(self.clock),
            concurrency=concurrency,
            limits=self.limits,
            metrics=self.metrics,
            clock=self.clock,
            on_end=self._count,
        )
        return self.executor

    def add(self, function: Callable[[Context], Any], name: str = "h", **options: Any) -> None:
        """A handler, known to an executor that is made now."""
        self.handlers[name] = Handler.of(name, function, **options)
        self.with_slots(10)

    async def wait(self, context: Context) -> None:
        """A handler that waits until its run is let go."""
        self.started.append(context.run_id)
        await self.gate(context.run_id).wait()

    def gate(self, run_id: str) -> asyncio.Event:
        return self.gates.setdefault(run_id, asyncio.Event())

    def run(self, *messages: Message) -> Batch:
        batch = batch_of(messages, monotonic=0.0)
        self.executor.start(batch)
        return batch

    async def run_to_end(self, *messages: Message) -> Batch:
        batch = self.run(*messages)
        await until(lambda: not batch.open)
        return batch

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(timedelta(seconds=seconds))
        self.executor.look()

    def _count(self) -> None:
        self.ended += 1


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    yield world
    world.release.set()
    world.executor.stop_all(Why.LOST, "the test is over")
    for gate in world.gates.values():
        gate.set()
    await turns()
    world.executor.close()


async def until(fact: Callable[[], bool]) -> None:
    """Until it holds: at once where only tasks have to take their turns, soon where threads do."""
    end = time.monotonic() + BOUND_SECONDS
    while not fact():
        assert time.monotonic() < end, "it never came true"
        await asyncio.sleep(0.0005)


async def turns(many: int = MANY_TURNS) -> None:
    """Let every task go on as far as it can without time passing."""
    for _ in range(many):
        await asyncio.sleep(0)


def ids(messages: Iterable[Message]) -> list[str]:
    return [Context(each, 0.0, ContextServices(ManualClock(NOON))).run_id for each in messages]


def outcomes(batch: Batch) -> list[Outcome]:
    return [Outcome(each) for each in batch.outcomes]


def ending(batch: Batch, position: int = 0) -> Ending:
    """What is known of an end; a plain success may be no more than its byte."""
    found = [each for run, each in batch.endings if run.position == position]
    assert len(found) == 1 or (not found and batch.outcomes[position] == Outcome.SUCCEEDED)
    return found[0] if found else SUCCESS


def waits(count: int, **options: Any) -> list[Message]:
    return [message(number, handler="wait", **options) for number in range(1, count + 1)]


async def ended_with(world: World, function: Callable[[Context], Any], **options: Any) -> Ending:
    """The end of one run of this function."""
    world.add(function)
    return ending(await world.run_to_end(message(**options)))


# Slots and order


async def test_so_many_run_at_once_and_the_others_wait_in_their_order(world: World) -> None:
    executor, runs = world.with_slots(2), waits(4)
    batch = world.run(*runs)
    await until(lambda: len(world.started) == 2)
    await turns()
    assert world.started == ids(runs)[:2]
    assert (executor.running, executor.in_flight) == (2, 4)
    world.gate(ids(runs)[1]).set()
    await until(lambda: len(world.started) == 3)
    assert outcomes(batch) == [Outcome.PENDING, Outcome.SUCCEEDED, Outcome.PENDING, Outcome.PENDING]
    assert world.started == [ids(runs)[each] for each in (0, 1, 2)]
    assert (executor.running, executor.in_flight) == (2, 3)
    for each in ids(runs):
        world.gate(each).set()
    await until(lambda: not batch.open)
    assert (executor.running, executor.in_flight) == (0, 0)


async def test_several_claims_share_the_slots(world: World) -> None:
    executor = world.with_slots(3)
    world.run(*waits(2))
    world.run(message(8, handler="wait"), message(9, handler="wait"))
    await until(lambda: executor.running == 3)
    await turns()
    assert executor.in_flight == 4


async def test_a_thousand_runs_that_never_wait_need_no_more_than_their_slots(world: World) -> None:
    most = 0

    async def watch(context: Context) -> None:
        nonlocal most
        most = max(most, world.executor.running)

    world.add(watch)
    executor = world.with_slots(5)
    batch = await world.run_to_end(*[message(number) for number in range(1, 1001)])
    assert outcomes(batch) == [Outcome.SUCCEEDED] * 1000
    assert most <= 5
    assert world.ended == 1000
    assert executor.in_flight == 0


async def test_every_end_is_told(world: World) -> None:
    world.executor.changed.clear()
    batch = world.run(*waits(2))
    await until(lambda: len(world.started) == 2)
    assert (world.ended, world.executor.changed.is_set()) == (0, False)
    world.gate(ids(waits(1))[0]).set()
    await until(lambda: batch.open == 1)
    assert (world.ended, world.executor.changed.is_set()) == (1, True)


async def test_while_nothing_may_start_nothing_does(world: World) -> None:
    world.executor.may_start = False
    batch = world.run(*waits(2))
    world.executor.resume()
    await turns()
    assert (world.started, world.executor.running, world.executor.in_flight) == ([], 0, 2)
    assert outcomes(batch) == [Outcome.PENDING] * 2
    world.executor.may_start = True
    world.executor.resume()
    await until(lambda: len(world.started) == 2)


async def test_what_ends_while_nothing_may_start_makes_room_for_nobody(world: World) -> None:
    executor, runs = world.with_slots(1), waits(2)
    batch = world.run(*runs)
    await until(lambda: len(world.started) == 1)
    executor.may_start = False
    world.gate(ids(runs)[0]).set()
    await until(lambda: batch.open == 1)
    await turns()
    assert (executor.running, executor.in_flight) == (0, 1)


async def test_start_and_end_are_counted_from_the_claim(world: World) -> None:
    [run] = waits(1)
    world.clock.advance(timedelta(seconds=2))
    batch = world.run(run)
    await until(lambda: bool(world.started))
    world.clock.advance(timedelta(seconds=3))
    world.gate(ids([run])[0]).set()
    await until(lambda: not batch.open)
    assert (batch.started_ms, batch.ended_ms) == ([2000], [5000])
    assert batch.instant(batch.ended_ms[0]) == NOON + timedelta(seconds=5)


async def test_room_is_the_free_slots_and_what_the_pace_will_free_soon(world: World) -> None:
    async def nothing(context: Context) -> None:
        pass

    world.add(nothing)
    executor = world.with_slots(10)
    assert executor.room() == 10
    world.run(*waits(4))
    assert executor.room() == 6
    for _ in range(10):
        await world.run_to_end(*[message(number) for number in range(1, 201)])
        world.clock.advance(timedelta(seconds=0.1))
        room = executor.room()
    # Two thousand a second: about a thousand more within half a second.
    assert 800 <= room <= 1006
    for _ in range(10):
        world.clock.advance(timedelta(seconds=1))
        executor.room()
    assert executor.room() == 6


async def test_there_is_no_room_beyond_what_waits_already(world: World) -> None:
    executor = world.with_slots(2)
    world.run(*waits(10))
    assert executor.room() == 0


# How a run ends


async def test_what_a_handler_returns_is_its_result(world: World) -> None:
    async def answer(context: Context) -> dict[str, int]:
        return {"sent": context.payload["count"]}

    end = await ended_with(world, answer, payload_json=b'{"count": 3}')
    assert (end.outcome, end.result, end.after) == (Outcome.SUCCEEDED, b'{"sent":3}', None)


async def test_a_sync_handler_runs_in_a_thread_and_its_result_is_kept(world: World) -> None:
    def answer(context: Context) -> bool:
        return threading.get_ident() != loop_thread

    loop_thread = threading.get_ident()
    end = await ended_with(world, answer)
    assert (end.outcome, end.result) == (Outcome.SUCCEEDED, b"true")


@pytest.mark.parametrize("value", ["x" * LARGEST_RESULT, object(), float("nan")])
async def test_a_result_that_cannot_be_kept_is_a_warning_not_a_failure(world: World, value: object) -> None:
    async def answer(context: Context) -> object:
        context.log("before")
        return value

    end = await ended_with(world, answer)
    assert (end.outcome, end.result, end.error) == (Outcome.SUCCEEDED, None, "")
    assert [line.level for line in end.lines] == [LogLevel.INFO, LogLevel.WARNING]
    assert end.lines[1].message.startswith("the result was not kept: ")


async def test_a_failure_with_retries_left_has_a_next_attempt(world: World) -> None:
    async def fail(context: Context) -> None:
        context.log("trying")
        raise ValueError("no")

    end = await ended_with(world, fail)
    assert (end.outcome, end.error, end.traceback) == (Outcome.FAILED, "ValueError: no", None)
    assert end.after is not None
    assert end.spends
    assert [line.message for line in end.lines] == ["trying"]


async def test_a_failure_with_none_left_is_dead_with_its_traceback(world: World) -> None:
    async def fail(context: Context) -> None:
        raise ValueError("no")

    end = await ended_with(world, fail, retries=3, max_retries=3)
    assert (end.outcome, end.error, end.after) == (Outcome.DEAD, "ValueError: no", None)
    assert end.traceback is not None
    assert "in fail\n" in end.traceback


async def test_what_is_not_retryable_is_dead_at_once(world: World) -> None:
    async def refuse(context: Context) -> None:
        raise NotRetryable("no such account")

    end = await ended_with(world, refuse, max_retries=10)
    assert (end.outcome, end.error) == (Outcome.DEAD, "NotRetryable: no such account")


async def test_a_retry_comes_when_the_handler_wants_it(world: World) -> None:
    async def later(context: Context) -> None:
        raise Retry(after=90, reason="busy")

    end = await ended_with(world, later)
    assert (end.outcome, end.after, end.spends) == (Outcome.FAILED, timedelta(seconds=90), True)


async def test_a_handler_can_give_up_for_good(world: World) -> None:
    async def give_up(context: Context) -> None:
        raise Cancel("gone")

    end = await ended_with(world, give_up)
    assert (end.outcome, end.error, end.after) == (Outcome.CANCELLED, "gone", None)


async def test_an_effect_that_is_there_already_is_a_success(world: World) -> None:
    async def found(context: Context) -> None:
        context.log("looking")
        await asyncio.sleep(0)
        raise EffectExists

    end = await ended_with(world, found)
    assert (end.outcome, end.after, len(end.lines)) == (Outcome.SUCCEEDED, None, 1)


async def test_an_effect_found_by_a_task_of_the_handlers_own_is_a_success_too(world: World) -> None:
    async def found() -> None:
        raise EffectExists

    async def begin(context: Context) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(found())
            tasks.create_task(asyncio.Event().wait())

    assert (await ended_with(world, begin)).outcome is Outcome.SUCCEEDED


async def test_an_effect_found_beside_a_failure_is_a_failure(world: World) -> None:
    async def begin(context: Context) -> None:
        raise BaseExceptionGroup("both", [EffectExists(), ValueError("no")])

    assert (await ended_with(world, begin)).outcome is Outcome.FAILED


async def test_a_handler_that_cancels_itself_has_failed(world: World) -> None:
    async def leave(context: Context) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    end = await ended_with(world, leave)
    assert (end.outcome, end.error) == (Outcome.FAILED, "RuntimeError: the handler cancelled itself")


async def test_a_cancellation_left_behind_hits_nobody_else(world: World) -> None:
    """It cancels its task and returns before that takes effect."""

    async def leave(context: Context) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()

    world.add(leave)
    batch = world.run(message(1), message(2, handler="wait"), message(3), message(4, handler="wait"))
    await until(lambda: len(world.started) == 2)
    await turns()
    over, waiting = Outcome.SUCCEEDED, Outcome.PENDING
    assert outcomes(batch) == [over, waiting, over, waiting]


class OfItsOwn(BaseException):
    """As some libraries have them."""


@pytest.mark.parametrize("waits_first", [False, True])
@pytest.mark.parametrize(
    "error",
    [SystemExit(3), KeyboardInterrupt(), OfItsOwn("x"), BaseExceptionGroup("several", [OfItsOwn("x")])],
    ids=["exit", "interrupt", "own", "group"],
)
async def test_whatever_leaves_a_handler_ends_its_run_and_no_other(
    world: World, error: BaseException, waits_first: bool
) -> None:
    async def raises(context: Context) -> None:
        if waits_first:
            await asyncio.sleep(0)
        raise error

    world.add(raises)
    batch = await world.run_to_end(message(1), message(2))
    assert outcomes(batch) == [Outcome.FAILED] * 2
    assert ending(batch).error.startswith(type(error).__name__)
    world.run(message(3, handler="wait"))
    await until(lambda: len(world.started) == 1)


@pytest.mark.parametrize("error", [StopIteration(1), SystemExit(3), OfItsOwn("x")])
async def test_whatever_leaves_a_sync_handler_ends_its_run(world: World, error: BaseException) -> None:
    def raises(context: Context) -> None:
        raise error

    end = await ended_with(world, raises)
    assert end.outcome is Outcome.FAILED


async def test_a_thread_that_cannot_be_had_is_a_failure_of_its_run_alone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        end = await ended_with(world, lambda context: None)
    assert (end.outcome, end.error) == (Outcome.FAILED, "RuntimeError: can't start new thread")
    world.run(message(3, handler="wait"))
    await until(lambda: len(world.started) == 1)


async def test_context_variables_of_one_run_are_not_seen_by_the_next(world: World) -> None:
    variable = contextvars.ContextVar("variable", default=0)
    seen: list[int] = []

    async def mark(context: Context) -> None:
        seen.append(variable.get())
        variable.set(1)

    world.add(mark)
    await world.run_to_end(*[message(number) for number in range(1, 6)])
    assert seen == [0] * 5


async def test_a_handler_may_use_its_task_for_timeouts_and_groups(world: World) -> None:
    async def use(context: Context) -> str:
        try:
            async with asyncio.timeout(0):
                await asyncio.Event().wait()
        except TimeoutError:
            pass
        async with asyncio.TaskGroup() as tasks:
            work = tasks.create_task(asyncio.sleep(0, "worked"))
        return work.result()

    world.add(use)
    batch = await world.run_to_end(*[message(number) for number in range(1, 30)])
    assert [ending(batch, position).result for position in range(29)] == [b'"worked"'] * 29


async def test_the_handler_of_a_task_is_known_while_it_runs(world: World) -> None:
    seen: list[str | None] = []
    tasks: list[asyncio.Task[Any] | None] = []

    async def look(context: Context) -> None:
        tasks.append(asyncio.current_task())
        seen.append(world.executor.handler_of(tasks[0]))
        await world.gate("look").wait()

    world.add(look, "look")
    batch = world.run(message(handler="look"))
    await until(lambda: bool(seen))
    assert seen == ["look"]
    assert world.executor.handler_of(tasks[0]) == "look"
    assert world.executor.handler_of(asyncio.current_task()) is None
    assert world.executor.handler_of(None) is None
    world.gate("look").set()
    await until(lambda: not batch.open)
    assert world.executor.handler_of(tasks[0]) is None


async def test_an_end_frees_the_place_that_its_handler_has(world: World) -> None:
    [run] = [message(handler="limited")]
    assert world.limits.admit(run) is None
    assert world.limits.admit(run) is not None
    batch = world.run(run)
    world.gate(ids([run])[0]).set()
    await until(lambda: not batch.open)
    assert world.limits.admit(run) is None


# Time that is up


async def test_a_run_whose_time_is_up_has_failed(world: World) -> None:
    batch = world.run(*waits(1, timeout_seconds=10))
    await until(lambda: bool(world.started))
    world.pass_time(9.9)
    await turns()
    assert batch.open == 1
    world.pass_time(0.1)
    await until(lambda: not batch.open)
    end = ending(batch)
    assert (end.outcome, end.error) == (Outcome.FAILED, "TimeoutError: it took longer than 10 s")
    assert end.after is not None


async def test_the_time_is_counted_from_the_beginning_not_from_the_claim(world: World) -> None:
    executor, runs = world.with_slots(1), waits(2, timeout_seconds=10)
    batch = world.run(*runs)
    await until(lambda: len(world.started) == 1)
    world.pass_time(9)
    world.gate(ids(runs)[0]).set()
    await until(lambda: len(world.started) == 2)
    world.pass_time(9)
    await turns()
    assert (executor.running, outcomes(batch)) == (1, [Outcome.SUCCEEDED, Outcome.PENDING])


@pytest.mark.parametrize(("own", "of_job"), [(5, 60), (60, 5)])
async def test_the_shorter_of_the_handlers_time_and_the_jobs_counts(
    world: World, own: int, of_job: int
) -> None:
    world.add(world.wait, timeout=own)
    batch = world.run(message(timeout_seconds=of_job))
    await until(lambda: bool(world.started))
    world.pass_time(5)
    await until(lambda: not batch.open)
    assert ending(batch).error == "TimeoutError: it took longer than 5 s"


async def test_who_returns_although_its_time_is_up_has_succeeded(world: World) -> None:
    async def finish(context: Context) -> str:
        world.started.append("finish")
        try:
            await world.gate("finish").wait()
        except asyncio.CancelledError:
            return "done"
        return "never asked"

    world.add(finish)
    batch = world.run(message(timeout_seconds=1))
    await until(lambda: bool(world.started))
    world.pass_time(1)
    await until(lambda: not batch.open)
    assert ending(batch).result == b'"done"'


async def test_who_does_not_end_within_the_patience_is_abandoned_and_its_slot_is_free(world: World) -> None:
    async def stubborn(context: Context) -> None:
        world.started.append(context.run_id)
        while not world.release.is_set():
            try:
                await world.gate("stubborn").wait()
            except asyncio.CancelledError:
                context.log("no")

    world.add(stubborn)
    world.with_slots(1)
    batch = world.run(message(1, timeout_seconds=10), message(2, handler="wait"))
    await until(lambda: len(world.started) == 1)
    world.pass_time(10)
    await turns()
    world.pass_time(PATIENCE_SECONDS - 0.1)
    await turns()
    assert (batch.open, len(world.started)) == (2, 1)
    with capture_logs() as logs:
        world.pass_time(0.1)
    await until(lambda: len(world.started) == 2)
    assert outcomes(batch) == [Outcome.FAILED, Outcome.PENDING]
    end = ending(batch)
    assert end.error == "TimeoutError: it took longer than 10 s"
    assert [line.message for line in end.lines] == ["no"]
    [event] = [each for each in logs if each["event"] == "handler_abandoned"]
    assert (event["handler"], event["run"]) == ("h", world.started[0])
    assert abandoned(world.metrics) == {"h": 1}
    world.release.set()
    world.gate("stubborn").set()
    await turns()
    assert outcomes(batch)[0] is Outcome.FAILED
    assert world.executor.running == 1
    assert ends(world.metrics) == {("h", "failed"): 1}


async def test_a_sync_handler_sees_that_it_should_end(world: World) -> None:
    def polite(context: Context) -> None:
        world.started.append(context.run_id)
        while not context.cancelled and not world.release.wait(0.001):
            pass
        raise InterruptedError(context.cancel_reason)

    world.add(polite)
    batch = world.run(message(timeout_seconds=10))
    await until(lambda: bool(world.started))
    world.pass_time(10)
    await until(lambda: not batch.open)
    assert (ending(batch).outcome, ending(batch).error) == (
        Outcome.FAILED,
        "TimeoutError: it took longer than 10 s",
    )
    assert abandoned(world.metrics) == {}


async def test_a_sync_handler_that_ignores_its_end_is_abandoned_and_reported(world: World) -> None:
    ended = threading.Event()

    def deaf(context: Context) -> str:
        world.started.append(context.run_id)
        world.release.wait(BOUND_SECONDS)
        ended.set()
        return "too late"

    world.add(deaf)
    executor = world.with_slots(1)
    batch = world.run(message(1, timeout_seconds=10), message(2, handler="wait"))
    await until(lambda: len(world.started) == 1)
    world.pass_time(10)
    with capture_logs() as logs:
        world.pass_time(PATIENCE_SECONDS)
    await until(lambda: len(world.started) == 2)
    assert outcomes(batch) == [Outcome.FAILED, Outcome.PENDING]
    assert [each["handler"] for each in logs if each["event"] == "handler_abandoned"] == ["h"]
    assert abandoned(world.metrics) == {"h": 1}
    world.release.set()
    await until(ended.is_set)
    await turns()
    assert outcomes(batch) == [Outcome.FAILED, Outcome.PENDING]
    assert (world.ended, executor.in_flight) == (1, 1)
    assert ends(world.metrics) == {("h", "failed"): 1}


async def test_a_run_that_got_no_thread_in_its_time_does_not_begin_when_one_is_free(world: World) -> None:
    """Its next attempt may be under way elsewhere by then."""

    def deaf(context: Context) -> None:
        world.started.append(context.run_id)
        world.release.wait(BOUND_SECONDS)

    def has_begun(many: int) -> bool:
        return executor.running == 1 and len(world.started) == many

    world.add(deaf)
    executor = world.with_slots(1)
    threads = 2 * 1 + 16
    for number in range(1, threads + 2):
        batch = world.run(message(number, timeout_seconds=10))
        await until(partial(has_begun, min(number, threads)))
        world.pass_time(10)
        world.pass_time(PATIENCE_SECONDS)
        assert outcomes(batch) == [Outcome.FAILED]
    assert len(world.started) == threads
    world.release.set()
    last = await world.run_to_end(message(99))
    assert outcomes(last) == [Outcome.SUCCEEDED]
    assert world.started[threads:] == ids([message(99)])


# Requests to stop


async def test_a_running_run_can_be_cancelled(world: World) -> None:
    runs = waits(2)
    batch = world.run(*runs)
    await until(lambda: len(world.started) == 2)
    assert world.executor.stop_run(key_of(runs[1]), Why.CANCELLED, "by ada")
    await until(lambda: batch.open == 1)
    assert outcomes(batch) == [Outcome.PENDING, Outcome.CANCELLED]
    end = ending(batch, 1)
    assert (end.error, end.after) == ("by ada", None)


async def test_a_waiting_run_is_cancelled_at_once_and_never_begins(world: World) -> None:
    executor, runs = world.with_slots(1), waits(3)
    batch = world.run(*runs)
    await until(lambda: len(world.started) == 1)
    assert executor.stop_run(key_of(runs[1]), Why.CANCELLED, "by ada")
    assert outcomes(batch) == [Outcome.PENDING, Outcome.CANCELLED, Outcome.PENDING]
    assert (ending(batch, 1).error, executor.in_flight) == ("by ada", 2)
    world.gate(ids(runs)[0]).set()
    await until(lambda: len(world.started) == 2)
    assert world.started == [ids(runs)[0], ids(runs)[2]]


async def test_who_is_not_here_cannot_be_stopped(world: World) -> None:
    batch = world.run(*waits(1))
    assert not world.executor.stop_run((99, 0, 1), Why.CANCELLED, "by ada")
    assert not world.executor.stop_run((1, batch.runs[0].message.scheduled_at, 2), Why.CANCELLED, "by ada")
    assert batch.open == 1


async def test_a_cancellation_heard_again_gives_back_nobody_elses_place(world: World) -> None:
    """Requests to cancel are read again and again while they are new."""
    running, waiting = message(1, handler="limited"), message(2, handler="limited")
    world.limits = Limits({"limited": 2}, world.clock)
    executor = world.with_slots(1)
    assert [world.limits.admit(each) for each in (running, waiting)] == [None, None]
    batch = world.run(running, waiting)
    await until(lambda: len(world.started) == 1)
    for _ in range(3):
        executor.stop_run(key_of(waiting), Why.CANCELLED, "by ada")
    assert outcomes(batch) == [Outcome.PENDING, Outcome.CANCELLED]
    assert world.ended == 1
    assert world.limits.admit(waiting) is None
    assert world.limits.admit(waiting) is not None


async def test_the_first_reason_to_stop_stands(world: World) -> None:
    [run] = waits(1, timeout_seconds=10)
    batch = world.run(run)
    await until(lambda: bool(world.started))
    world.pass_time(9)
    world.executor.stop_run(key_of(run), Why.CANCELLED, "by ada")
    world.pass_time(1)
    world.executor.stop_all(Why.HANDED_BACK, "the worker stops")
    await until(lambda: not batch.open)
    assert (outcomes(batch), ending(batch).error) == ([Outcome.CANCELLED], "by ada")


@pytest.mark.parametrize("why", [Why.TIMEOUT, Why.CANCELLED, Why.HANDED_BACK])
async def test_an_effect_that_is_there_is_a_success_also_for_who_was_asked_to_stop(
    world: World, why: Why
) -> None:
    async def found(context: Context) -> None:
        world.started.append(context.run_id)
        try:
            await world.gate("found").wait()
        finally:
            raise EffectExists

    world.add(found)
    batch = world.run(message())
    await until(lambda: bool(world.started))
    world.executor.stop_all(why, "some reason")
    await until(lambda: not batch.open)
    assert outcomes(batch) == [Outcome.SUCCEEDED]


async def test_what_is_handed_back_spends_no_attempt_and_is_due_at_once(world: World) -> None:
    executor = world.with_slots(1)
    batch = world.run(*waits(2))
    await until(lambda: len(world.started) == 1)
    executor.stop_all(Why.HANDED_BACK, "the worker stops")
    assert outcomes(batch)[1] is Outcome.LOST
    await until(lambda: not batch.open)
    assert outcomes(batch) == [Outcome.LOST] * 2
    for position in range(2):
        end = ending(batch, position)
        assert (end.after, end.spends) == (timedelta(0), False)
        assert end.error == "handed back: the worker stops"
    await turns()
    assert (len(world.started), executor.in_flight) == (1, 0)


async def test_a_stop_in_the_moment_of_the_start_leaves_nothing_to_abandon(world: World) -> None:
    batch = world.run(*waits(20))
    world.executor.stop_all(Why.HANDED_BACK, "the worker stops")
    await until(lambda: not batch.open)
    assert outcomes(batch) == [Outcome.LOST] * 20
    assert (world.executor.in_flight, abandoned(world.metrics)) == (0, {})


async def test_who_ends_with_an_error_when_handed_back_has_not_failed(world: World) -> None:
    async def clumsy(context: Context) -> None:
        world.started.append(context.run_id)
        try:
            await world.gate("clumsy").wait()
        finally:
            raise ValueError("in the middle of it")

    world.add(clumsy)
    batch = world.run(message(retries=3, max_retries=3))
    await until(lambda: bool(world.started))
    world.executor.stop_all(Why.HANDED_BACK, "the worker stops")
    await until(lambda: not batch.open)
    assert (outcomes(batch), ending(batch).spends) == ([Outcome.LOST], False)


async def test_dropping_a_claim_stops_its_runs_and_no_others(world: World) -> None:
    executor = world.with_slots(3)
    lost = world.run(*waits(2), message(3, handler="wait"))
    other = world.run(message(8, handler="wait"))
    await until(lambda: len(world.started) == 3)
    executor.drop(lost)
    await until(lambda: not lost.open)
    await until(lambda: len(world.started) == 4)
    assert (executor.running, executor.in_flight) == (1, 1)
    assert outcomes(other) == [Outcome.PENDING]
    assert Outcome.SUCCEEDED not in outcomes(lost)


async def test_dropping_also_takes_what_was_asked_to_stop_before(world: World) -> None:
    """The owner's cancellation must not be recorded for a run that is somebody else's."""
    [run] = waits(1)
    batch = world.run(run)
    await until(lambda: bool(world.started))
    world.executor.stop_run(key_of(run), Why.CANCELLED, "by ada")
    world.executor.drop(batch)
    await until(lambda: not batch.open)
    assert outcomes(batch) == [Outcome.LOST]


def abandoned(metrics: Metrics) -> dict[str, float]:
    return {each["handler"]: value for each, value in samples(metrics, "handlers_abandoned")}


def ends(metrics: Metrics) -> dict[tuple[str, str], float]:
    """By handler and outcome."""
    return {(each["handler"], each["outcome"]): value for each, value in samples(metrics, "runs_ended")}


def samples(metrics: Metrics, name: str) -> list[tuple[dict[str, str], float]]:
    [family] = [each for each in metrics.samples() if each.name == f"mainspring_worker_{name}"]
    return [(each.labels, each.value) for each in family.samples]
