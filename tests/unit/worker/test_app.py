"""What can be registered, and what is refused at once."""

from __future__ import annotations

import inspect
import sys
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from functools import partial, wraps
from pathlib import Path
from typing import Any

import pytest

from mainspring.schema.errors import InvalidInput
from mainspring.worker.app import Context, Handler, Mainspring, load_app


def plain(context: Context) -> None:
    """A sync handler."""


async def waiting(context: Context) -> None:
    """An async handler."""


class Called:
    def __call__(self, context: Context) -> None:
        """A sync handler with a state."""

    def method(self, context: Context) -> None:
        """A bound one."""


class Awaited:
    async def __call__(self, context: Context) -> None:
        """An async handler with a state."""


def two(first: int, context: Context) -> None:
    """A handler once its first argument is given."""


async def two_async(first: int, context: Context) -> None:
    """The same, async."""


@wraps(waiting)
def wrapped(context: Context) -> None:
    """Looks like an async function, and is none."""


def refusal(function: Any, name: Any = "h", **options: Any) -> InvalidInput:
    app = Mainspring()
    with pytest.raises(InvalidInput) as caught:
        app.handler(name, **options)(function)
    assert not app.handlers
    return caught.value


def test_a_handler_is_registered_with_its_limits_and_the_function_is_left_alone() -> None:
    app = Mainspring()
    decorated = app.handler("send-report", timeout=timedelta(minutes=5), max_concurrency=4)(waiting)
    assert decorated is waiting
    handler = app.handlers["send-report"]
    assert handler == Handler("send-report", waiting, timedelta(minutes=5), 4, True)
    assert list(app.handlers) == ["send-report"]


def test_limits_are_optional_and_a_timeout_may_be_seconds() -> None:
    app = Mainspring()
    app.handler("a")(plain)
    app.handler("b", timeout=1.5)(plain)
    assert app.handlers["a"] == Handler("a", plain, None, None, False)
    assert app.handlers["b"].timeout == timedelta(seconds=1.5)


@pytest.mark.parametrize(
    ("function", "is_async"),
    [
        (plain, False),
        (waiting, True),
        (Called(), False),
        (Called().method, False),
        (Awaited(), True),
        (partial(two, 1), False),
        (partial(two_async, 1), True),
        (partial(Awaited()), True),
        (partial(Called()), False),
        (partial(partial(two_async), 1), True),
        (wrapped, False),
        (lambda context: None, False),
        (lambda context, fixed=1: fixed, False),
        (lambda *arguments: None, False),
    ],
)
def test_sync_and_async_are_told_apart(function: Any, is_async: bool) -> None:
    assert Handler.of("h", function).is_async is is_async


async def test_handlers_cannot_be_changed_from_outside() -> None:
    app = Mainspring()
    with pytest.raises(TypeError):
        app.handlers["h"] = Handler.of("h", plain)  # type: ignore[index]


def test_a_name_is_needed() -> None:
    app = Mainspring()
    with pytest.raises(InvalidInput, match=r"handler: has no name: write @app\.handler\(.send-report.\)"):
        app.handler(plain)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="handler: has no name"):
        app.handler()


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("x" * 201, "has 201 characters, not 1–200"),
        (" padded", "begins or ends with white space"),
        ("two\nlines", "control character U+000A"),
        (7, "7 is not a text"),
        (None, "None is not a text"),
    ],
)
def test_a_name_has_the_rule_of_a_jobs_handler(name: Any, rule: str) -> None:
    refused = refusal(plain, name)
    assert refused.field == "handler"
    assert rule in refused.rule


def test_the_longest_name_is_accepted() -> None:
    assert Handler.of("x" * 200, plain).name == "x" * 200


def test_two_handlers_of_one_name_are_refused_and_the_first_stays() -> None:
    app = Mainspring()
    app.handler("h")(plain)
    with pytest.raises(InvalidInput, match="handler: 'h' is registered already, as plain"):
        app.handler("h")(waiting)
    assert app.handlers["h"].function is plain


def generator(context: Context) -> Iterator[int]:
    yield 1


async def async_generator(context: Context) -> AsyncIterator[int]:
    yield 1


class Yielding:
    def __call__(self, context: Context) -> Iterator[int]:
        yield 1


@pytest.mark.parametrize(
    ("function", "rule"),
    [
        (generator, "generator is a generator: use `return`, not `yield`"),
        (async_generator, "is a generator"),
        (Yielding(), "is a generator"),
        (partial(generator), "is a generator"),
        (None, "a value of type NoneType is not a function"),
        ("plain", "a value of type str is not a function"),
        (Called, "the class Called is not a function"),
        (lambda: None, "cannot be called with exactly one positional argument, the context"),
        (two, "two cannot be called with exactly one positional argument"),
        (lambda *, context: None, "cannot be called with exactly one positional argument"),
        (lambda context, *, more: None, "cannot be called with exactly one positional argument"),
        (partial(lambda context: None, None), "cannot be called with exactly one positional argument"),
    ],
)
def test_what_cannot_be_a_handler_is_refused(function: Any, rule: str) -> None:
    refused = refusal(function)
    assert refused.field == "function"
    assert rule in refused.rule


def test_a_coroutine_is_refused_and_closed() -> None:
    coroutine = waiting(None)  # type: ignore[arg-type]
    assert "is a coroutine: give the function" in refusal(coroutine).rule
    assert inspect.getcoroutinestate(coroutine) == inspect.CORO_CLOSED


@pytest.mark.parametrize(
    "timeout", [0, -1, timedelta(0), float("nan"), float("inf"), 10**400, 2_592_001, True, "5", 1e-9]
)
def test_a_timeout_is_some_time_up_to_thirty_days(timeout: Any) -> None:
    assert refusal(plain, timeout=timeout).field == "timeout"


def test_the_longest_timeout_is_accepted() -> None:
    assert Handler.of("h", plain, timeout=timedelta(days=30)).timeout == timedelta(days=30)


@pytest.mark.parametrize("limit", [0, -1, 1.0, True, "2"])
def test_a_concurrency_is_a_whole_number_from_1(limit: Any) -> None:
    refused = refusal(plain, max_concurrency=limit)
    assert (refused.field, refused.rule) == ("max_concurrency", f"{limit} is not a whole number from 1")


def test_the_shorter_timeout_counts() -> None:
    minute, hour = timedelta(minutes=1), timedelta(hours=1)
    assert Handler.of("h", plain).time_limit(hour) == hour
    assert Handler.of("h", plain, timeout=minute).time_limit(hour) == minute
    assert Handler.of("h", plain, timeout=hour).time_limit(minute) == minute


def test_a_stop_iteration_does_not_leave_a_thread() -> None:
    handler = Handler.of("h", lambda context: next(iter([])))
    with pytest.raises(RuntimeError, match="the handler raised StopIteration"):
        handler.call(None)  # type: ignore[arg-type]


def test_an_app_takes_over_the_handlers_of_another() -> None:
    app, other = Mainspring(), Mainspring()
    app.handler("a")(plain)
    other.handler("b", timeout=3)(waiting)
    app.include(other)
    assert list(app.handlers) == ["a", "b"]
    assert app.handlers["b"] is other.handlers["b"]
    assert list(other.handlers) == ["b"]


async def test_an_include_that_meets_a_known_name_changes_nothing() -> None:
    app, other = Mainspring(), Mainspring()
    called: list[str] = []
    app.handler("b")(plain)
    other.handler("a")(plain)
    other.handler("b")(waiting)
    other.on_start(lambda: called.append("started"))
    with pytest.raises(InvalidInput, match="handler: 'b' is registered already"):
        app.include(other)
    await app.start()
    assert (list(app.handlers), called) == (["b"], [])


def test_only_another_app_can_be_included() -> None:
    app = Mainspring()
    with pytest.raises(InvalidInput, match="app: an app cannot include itself"):
        app.include(app)
    with pytest.raises(InvalidInput, match="app: a value of type str is not a Mainspring"):
        app.include("other")  # type: ignore[arg-type]


async def test_hooks_are_called_in_order_and_in_reverse() -> None:
    app, other = Mainspring(), Mainspring()
    called: list[str] = []

    @app.on_start
    def first() -> None:
        called.append("first")

    @other.on_start
    async def second() -> None:
        called.append("second")

    @app.on_stop
    async def third() -> None:
        called.append("third")

    @other.on_stop
    def fourth() -> None:
        called.append("fourth")

    app.include(other)
    await app.start()
    await app.stop()
    assert called == ["first", "second", "fourth", "third"]
    assert inspect.iscoroutinefunction(second)


async def test_a_failing_start_ends_the_start() -> None:
    app = Mainspring()
    called: list[str] = []

    @app.on_start
    async def fail() -> None:
        raise ConnectionError("no mail server")

    app.on_start(lambda: called.append("never"))
    with pytest.raises(ConnectionError, match="no mail server"):
        await app.start()
    assert called == []


async def test_a_failing_stop_hook_keeps_no_other_from_its_work() -> None:
    app = Mainspring()
    called: list[str] = []
    app.on_stop(lambda: called.append("closed"))

    @app.on_stop
    def fail() -> None:
        raise OSError("already gone")

    with pytest.raises(ExceptionGroup) as caught:
        await app.stop()
    assert called == ["closed"]
    assert [str(error) for error in caught.value.exceptions] == ["already gone"]


@pytest.mark.parametrize("register", ["on_start", "on_stop"])
def test_a_hook_takes_no_argument(register: str) -> None:
    with pytest.raises(InvalidInput, match=f"{register}: plain cannot be called with no argument"):
        getattr(Mainspring(), register)(plain)
    with pytest.raises(InvalidInput, match="is not a function"):
        getattr(Mainspring(), register)("hook")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current directory: empty, and not on Python's path."""
    before = set(sys.modules)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place])
    yield tmp_path
    for name in sys.modules.keys() - before:
        del sys.modules[name]


def write(here: Path, name: str, text: str) -> None:
    file = here / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


APP = """
from mainspring.worker.app import Mainspring
app = Mainspring()
class Nested:
    app = app
number = 5
"""


def test_an_app_is_loaded_from_the_current_directory(here: Path) -> None:
    write(here, "lists_a/__init__.py", "")
    write(here, "lists_a/tasks.py", APP)
    app = load_app("lists_a.tasks:app")
    assert isinstance(app, Mainspring)
    assert load_app("lists_a.tasks:Nested.app") is app


@pytest.mark.parametrize("path", ["", "tasks", ":app", "tasks:", "a..b:app", ".a:app", "a b:app", "a:b:c", 5])
def test_a_path_without_module_and_attribute_is_refused(path: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        load_app(path)
    assert caught.value.field == "app"
    assert "is not written as package.module:app" in caught.value.rule


def test_a_missing_module_is_named(here: Path) -> None:
    write(here, "lists_b/__init__.py", "")
    with pytest.raises(InvalidInput, match=r"^app: there is no module 'no_such_module'$"):
        load_app("no_such_module.tasks:app")
    with pytest.raises(InvalidInput, match=r"^app: there is no module 'lists_b\.tasks'$"):
        load_app("lists_b.tasks:app")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("import no_such_library\n", "ModuleNotFoundError: No module named 'no_such_library'"),
        ("import lists_c.other\n", "ModuleNotFoundError: No module named 'lists_c.other'"),
        ("from json import nothing\n", "ImportError: cannot import name 'nothing'"),
        ("raise RuntimeError('no setting')\n", "RuntimeError: no setting"),
    ],
)
def test_an_error_inside_the_module_is_shown_with_its_place(here: Path, text: str, shown: str) -> None:
    write(here, "lists_c/__init__.py", "")
    write(here, "lists_c/tasks.py", "\n" + text)
    with pytest.raises(InvalidInput) as caught:
        load_app("lists_c.tasks:app")
    assert caught.value.field == "app"
    assert f"the module lists_c.tasks cannot be imported: {shown}" in caught.value.rule
    assert caught.value.rule.endswith(f"at {here / 'lists_c' / 'tasks.py'}:2")
    assert caught.value.__cause__ is not None


def test_a_module_that_is_no_python_is_shown(here: Path) -> None:
    write(here, "broken_d.py", "def (:\n")
    with pytest.raises(InvalidInput, match=r"cannot be imported: SyntaxError: .*broken_d\.py, line 1"):
        load_app("broken_d:app")


def test_a_missing_attribute_is_named_with_the_nearest(here: Path) -> None:
    write(here, "tasks_e.py", APP)
    with pytest.raises(InvalidInput, match=r"^app: the module tasks_e has no ap; did you mean app\?$"):
        load_app("tasks_e:ap")
    with pytest.raises(InvalidInput, match=r"the module tasks_e has no Nested\.nothing"):
        load_app("tasks_e:Nested.nothing")


def test_what_is_no_app_is_refused(here: Path) -> None:
    write(here, "tasks_f.py", APP)
    with pytest.raises(InvalidInput, match=r"^app: tasks_f:number is a value of type int, not a Mainspring$"):
        load_app("tasks_f:number")
    with pytest.raises(InvalidInput, match="tasks_f:Mainspring is the class Mainspring, not a Mainspring"):
        load_app("tasks_f:Mainspring")
