"""The harness judges as the worker does, and the page's examples are true."""

from __future__ import annotations

import asyncio
import inspect
import re
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest

from mainspring.schedule import retry_delay
from mainspring.schema.errors import InvalidInput
from mainspring.schema.messages import JobDefinition, Message
from mainspring.schema.states import MAXIMUM_ATTEMPT, Backoff, Outcome
from mainspring.worker.app import Cancel, Context, Mainspring, Retry
from mainspring.worker.signals import LONGEST_ERROR, EffectExists, conclude, describe_error
from mainspring.worker.testing import Canceller, Report, run, run_sync

PAGE = (Path(__file__).parents[3] / "docs" / "handlers.md").read_text(encoding="utf-8")
NOON = datetime(2026, 11, 18, 12, tzinfo=UTC)


def judged(error: BaseException | None, *, attempt: int = 1, retries: int = 0, **options: Any) -> Any:
    job = JobDefinition(5, 1, 1, "h", backoff=Backoff.LINEAR, max_retries=3)
    message = Message(attempt, retries, 0, 0, 0, 1_000_000, 0, 1, 0, None, job)
    return conclude(message, error, **options)


@pytest.mark.parametrize("error", [None, EffectExists()])
@pytest.mark.parametrize("options", [{}, {"cancelled": "by ada"}])
def test_what_returned_has_succeeded_also_when_it_was_told_to_stop(error: Any, options: Any) -> None:
    assert judged(error, **options) == (Outcome.SUCCEEDED, None, None)


def test_a_failure_waits_by_the_backoff_of_its_job() -> None:
    for retries in (0, 1, 2):
        wait = retry_delay(Backoff.LINEAR, retries, 5, 1_000_000)
        judgement = judged(ValueError("no"), attempt=9, retries=retries)
        assert judgement == (Outcome.FAILED, wait, "ValueError: no")


@pytest.mark.parametrize("error", [ValueError("no"), Retry(after=5), TimeoutError("late")])
def test_a_failure_with_no_retry_left_is_dead(error: Exception) -> None:
    assert judged(error, retries=3) == (Outcome.DEAD, None, describe_error(error))
    assert judged(error, retries=2, attempt=MAXIMUM_ATTEMPT)[:2] == (Outcome.DEAD, None)


def test_a_retry_waits_as_long_as_it_says() -> None:
    assert judged(Retry(after=5, reason="busy")) == (Outcome.FAILED, timedelta(seconds=5), "Retry: busy")
    assert judged(Retry(after=timedelta(days=7))).retry_in == timedelta(days=7)
    assert judged(Retry(after=0)).retry_in == timedelta(0)
    assert judged(Retry()).retry_in == retry_delay(Backoff.LINEAR, 0, 5, 1_000_000)


@pytest.mark.parametrize("after", [-1, float("nan"), timedelta(days=7, microseconds=1), "5", True])
def test_a_retry_after_no_possible_time_is_refused(after: Any) -> None:
    with pytest.raises(InvalidInput) as refusal:
        Retry(after=after)
    assert refusal.value.field == "after"


def test_a_cancelled_run_is_not_tried_again() -> None:
    assert judged(Cancel("gone")) == (Outcome.CANCELLED, None, "gone")
    assert judged(Cancel()) == (Outcome.CANCELLED, None, "the handler cancelled its run")
    for error in (asyncio.CancelledError(), ValueError("interrupted"), Retry(after=5)):
        assert judged(error, cancelled="by ada") == (Outcome.CANCELLED, None, "by ada")
    assert judged(Cancel("mine"), cancelled="by ada").error == "mine"


def test_an_error_is_a_text_that_postgres_can_store() -> None:
    class Unshowable(Exception):
        def __str__(self) -> str:
            raise ValueError

    assert describe_error(Unshowable()) == "Unshowable"
    assert describe_error(ValueError()) == "ValueError"
    assert describe_error(ValueError("\0\ud800")) == "ValueError: ␀?"
    assert len(describe_error(ValueError("€" * 10_000)).encode()) <= LONGEST_ERROR
    assert "\0" not in (judged(Cancel("\0")).error or "")
    assert "\0" not in (judged(ValueError(), cancelled="\0").error or "")


async def fail(context: Context) -> None:
    raise LookupError("no such report")


def fail_in_a_thread(context: Context) -> None:
    raise LookupError("no such report")


@pytest.mark.parametrize("handler", [fail, fail_in_a_thread])
async def test_a_report_tells_what_would_follow(handler: Any) -> None:
    report = await run(handler, attempt=2, scheduled_at=NOON, retry_backoff="fixed")
    assert report.outcome is Outcome.FAILED
    assert isinstance(report.error, LookupError)
    assert report.reason == "LookupError: no such report"
    assert report.retry_in == retry_delay(Backoff.FIXED, 1, 1, int(NOON.timestamp()) * 1_000_000)
    assert (report.result, report.committed) == (None, None)
    last = await run(handler, attempt=4)
    assert (last.outcome, last.retry_in) == (Outcome.DEAD, None)
    assert (await run(handler, max_retries=0)).outcome is Outcome.DEAD


async def test_a_sync_handler_runs_in_another_thread_and_an_async_one_in_this() -> None:
    threads: list[int] = []

    def sync(context: Context) -> None:
        threads.append(threading.get_ident())

    async def awaited(context: Context) -> None:
        threads.append(threading.get_ident())

    await run(sync)
    await run(awaited)
    assert threads[0] != threading.get_ident() == threads[1]


async def test_a_handler_sees_the_run_that_was_asked_for() -> None:
    async def look(context: Context) -> list[object]:
        return [context.payload, context.attempt, context.scheduled_at.isoformat(), context.handler]

    report = await run(look, "look", payload=("a", 1), attempt=3, scheduled_at=NOON)
    assert report.result == [["a", 1], 3, "2026-11-18T12:00:00+00:00", "look"]


async def test_logs_and_progress_are_apart() -> None:
    async def talk(context: Context) -> None:
        context.log("one")
        context.progress(0.25)
        context.log("two", level="error")

    report = await run(talk)
    assert report.messages() == ["one", "two"]
    assert report.logs[1].level == "error"
    assert report.progress == "25%"


@pytest.mark.parametrize("value", [object(), float("nan"), "x" * 300_000])
async def test_a_result_that_cannot_be_stored_fails_no_run(value: object) -> None:
    report = await run(lambda context: value)
    assert (report.outcome, report.result) == (Outcome.SUCCEEDED, None)
    assert report.messages()[0].startswith("the result was not kept: result: ")


async def test_an_async_handler_is_interrupted_when_its_time_is_up() -> None:
    cleaned: list[str | None] = []

    async def hang(context: Context) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append(context.cancel_reason)

    report = await run(hang, timeout=0.01)
    assert report.outcome is Outcome.FAILED
    assert isinstance(report.error, TimeoutError)
    assert report.reason == "TimeoutError: it took longer than 0.01 s"
    assert cleaned == ["it took longer than 0.01 s"]


def poll(context: Context) -> str:
    """A sync handler that looks, and stops with an error of its own."""
    while not context.cancelled:
        time.sleep(0.001)
    raise InterruptedError(context.cancel_reason)


async def test_a_sync_handler_finds_out_when_its_time_is_up() -> None:
    report = await run(poll, timeout=timedelta(milliseconds=10))
    assert (report.outcome, report.reason) == (Outcome.FAILED, "TimeoutError: it took longer than 0.01 s")


async def test_who_returns_after_his_time_has_succeeded() -> None:
    def finish(context: Context) -> str:
        while not context.cancelled:
            time.sleep(0.001)
        return "done"

    report = await run(finish, timeout=0.01)
    assert (report.outcome, report.result, report.reason) == (Outcome.SUCCEEDED, "done", None)


async def test_the_shorter_of_both_timeouts_counts() -> None:
    app = Mainspring()
    app.handler("poll", timeout=0.01)(poll)
    assert (await run(app, timeout=60)).reason == "TimeoutError: it took longer than 0.01 s"


async def test_a_run_that_is_cancelled_by_what_it_calls_is_cancelled() -> None:
    canceller = Canceller()

    async def call(context: Context) -> None:
        canceller.cancel("by ada")
        await asyncio.Event().wait()

    report = await run(call, canceller=canceller)
    assert (report.outcome, report.reason, report.retry_in) == (Outcome.CANCELLED, "by ada", None)


async def test_a_run_cancelled_before_it_began_is_interrupted_where_it_first_waits() -> None:
    canceller = Canceller()
    canceller.cancel()
    reached: list[object] = []

    async def begin(context: Context) -> None:
        reached.append(context.cancelled)
        await asyncio.sleep(0)
        reached.append("never")

    report = await run(begin, canceller=canceller)
    assert (report.outcome, report.reason) == (Outcome.CANCELLED, "cancelled by a test")
    assert reached == [True]


async def test_a_sync_handler_can_be_cancelled_from_its_thread_or_another() -> None:
    canceller = Canceller()
    timer = threading.Timer(0.01, canceller.cancel, ["by ada"])
    timer.start()
    report = await run(poll, canceller=canceller)
    timer.join()
    assert (report.outcome, report.reason) == (Outcome.CANCELLED, "by ada")


async def test_a_cancellation_after_the_end_changes_nothing() -> None:
    canceller = Canceller()

    async def nothing(context: Context) -> None: ...

    report = await run(nothing, canceller=canceller)
    canceller.cancel()
    assert report.outcome is Outcome.SUCCEEDED


async def test_who_cancels_himself_has_failed() -> None:
    async def careless(context: Context) -> None:
        raise asyncio.CancelledError

    report = await run(careless)
    assert report.outcome is Outcome.FAILED
    assert report.reason == "RuntimeError: the handler cancelled itself"


@pytest.mark.parametrize("error", [SystemExit(3), StopIteration()])
async def test_what_would_end_or_block_the_loop_is_a_failure(error: BaseException) -> None:
    def leave(context: Context) -> None:
        raise error

    async with asyncio.timeout(30):
        assert (await run(leave)).outcome is Outcome.FAILED


async def test_a_test_that_is_cancelled_cancels_its_handler() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def hang(context: Context) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    task = asyncio.create_task(run(hang))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.wait_for(ended.wait(), 30)


async def test_a_transaction_gives_the_connection_of_the_test() -> None:
    connection = object()

    async def use(context: Context) -> bool:
        async with context.transaction() as given:
            return given is connection

    report = await run(use, connection=connection)
    assert (report.result, report.committed) == (True, True)


async def test_a_transaction_whose_block_raises_is_not_committed() -> None:
    async def break_off(context: Context) -> None:
        async with context.transaction():
            raise LookupError

    report = await run(break_off)
    assert (report.outcome, report.committed) == (Outcome.FAILED, False)


async def test_an_effect_that_exists_is_a_success_and_its_block_is_not_entered() -> None:
    entered: list[str] = []

    async def pay(context: Context) -> None:
        async with context.transaction():
            entered.append("paid")

    report = await run(pay, effect_exists=True)
    assert (report.outcome, report.committed, entered) == (Outcome.SUCCEEDED, None, [])


async def test_an_effect_that_a_task_of_the_handlers_own_finds_is_a_success_too() -> None:
    async def pay(context: Context) -> None:
        async with context.transaction():
            raise AssertionError("entered")

    async def begin(context: Context) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(pay(context))

    assert (await run(begin, effect_exists=True)).outcome is Outcome.SUCCEEDED


async def test_the_rules_of_a_transaction_hold_here_too() -> None:
    async def twice(context: Context) -> None:
        for _ in range(2):
            async with context.transaction():
                pass

    def sync(context: Context) -> None:
        context.transaction()

    assert "was taken already" in ((await run(twice)).reason or "")
    assert "is for async handlers" in ((await run(sync)).reason or "")


async def test_an_app_is_asked_by_name() -> None:
    app = Mainspring()
    app.handler("one")(lambda context: context.handler)
    assert (await run(app)).result == "one"
    app.handler("two")(lambda context: context.handler)
    assert (await run(app, "two")).result == "two"
    assert (await run(app.handlers["two"])).result == "two"
    with pytest.raises(InvalidInput, match="name: is missing: the app has 2 handlers"):
        await run(app)
    with pytest.raises(InvalidInput, match=r"name: the app has no handler 'tow'; did you mean two\?"):
        await run(app, "tow")


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"payload": object()}, "payload"),
        ({"payload": float("nan")}, "payload"),
        ({"scheduled_at": datetime(2026, 11, 18)}, "scheduled_at"),  # noqa: DTZ001
        ({"attempt": 0}, "attempt"),
        ({"attempt": True}, "attempt"),
        ({"idempotency_key_template": "{{weak}}"}, "idempotency_key_template"),
        ({"timezone": "Europe/Nowhere"}, "timezone"),
        ({"max_retries": -1}, "max_retries"),
        ({"retry_backoff": "sometimes"}, "retry_backoff"),
        ({"timeout": 0}, "timeout"),
    ],
)
async def test_what_no_job_could_have_is_refused(options: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        await run(lambda context: None, **options)
    assert refusal.value.field == field


async def test_what_is_no_handler_is_refused() -> None:
    with pytest.raises(InvalidInput, match="function: "):
        await run(lambda: None)  # type: ignore[arg-type, misc]


def test_a_test_that_is_not_async_has_a_way_of_its_own() -> None:
    assert run_sync(lambda context: context.payload, payload=5).result == 5


async def test_the_way_of_its_own_is_refused_inside_a_loop() -> None:
    with pytest.raises(InvalidInput, match=r"write `await run\(...\)` there"):
        run_sync(lambda context: None)


# The page.


def examples() -> dict[str, Any]:
    """All Python of the page, run from top to bottom as one module."""
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 6
    namespace: dict[str, Any] = {"__name__": "examples"}
    for block in blocks:
        exec(compile(block, "docs/handlers.md", "exec", dont_inherit=True), namespace)
    return namespace


EXAMPLES = examples()
TESTS = [name for name, value in EXAMPLES.items() if name.startswith("test_") and callable(value)]


@pytest.mark.parametrize("name", TESTS)
def test_the_tests_on_the_page_pass(name: str) -> None:
    test: Callable[[], Any] = EXAMPLES[name]
    outcome = test()
    if inspect.iscoroutine(outcome):
        asyncio.run(outcome)


def test_the_page_has_tests() -> None:
    assert len(TESTS) >= 5


async def test_the_apps_on_the_page_work() -> None:
    app: Mainspring = EXAMPLES["app"]
    assert list(app.handlers) == ["send-report", "convert-euros"]
    assert app.handlers["send-report"].timeout == timedelta(minutes=2)
    await app.start()
    assert (await run(app, "convert-euros", payload={"amount": 10})).result == 10.8


def listed(head: str) -> set[str]:
    """Words in backquotes in the first column of the table with this head."""
    lines = PAGE.splitlines()
    rows = takewhile(bool, lines[lines.index(head) + 2 :])
    cells = [row.split(" | ")[0] for row in rows]
    return {word.removesuffix("()") for cell in cells for word in re.findall(r"`([^`]+)`", cell)}


def test_everything_a_context_has_is_on_the_page() -> None:
    public = {name for name in dir(Context) if not name.startswith("_")}
    assert listed("| attribute | |") == public - {"mark_cancelled", "lines", "news"}


def test_every_argument_of_run_and_of_a_handler_is_on_the_page() -> None:
    assert listed("| argument of `run` | default | |") == set(inspect.signature(run).parameters)
    arguments = set(inspect.signature(Mainspring.handler).parameters) - {"self"}
    assert listed("| `app.handler(…)` | default | rule |") == arguments


def test_every_field_of_a_report_is_on_the_page() -> None:
    sentence = next(line for line in PAGE.splitlines() if line.startswith("The `Report` has"))
    words = set(re.findall(r"`(\w+)(?:\(\))?`", sentence)) - {"Report"}
    assert words == set(Report.__dataclass_fields__) | {"messages"}
