"""An app: the handlers of a worker by name, and what to do when it starts and stops.

    app = Mainspring()

    @app.handler("send-report", timeout=60)
    async def send_report(context: Context) -> dict[str, int]:
        ...

`mainspring worker --app package.module:app` imports it with `load_app`. Whatever can be known to be wrong is
refused when it is registered, with the field and the rule: a handler that cannot be called must stop the
process at its start, not each run at midnight.

An async handler runs in the worker's event loop and must not block it; a sync one runs in a thread.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from types import MappingProxyType, ModuleType
from typing import Any, TypeVar

from mainspring.registry.definition import LONGEST_TIMEOUT
from mainspring.registry.values import LONGEST_NAME, check_text, nearest
from mainspring.schema.errors import InvalidInput
from mainspring.worker.context import Context
from mainspring.worker.signals import Cancel, NotRetryable, Retry, check_duration

__all__ = ["Cancel", "Context", "Handler", "Hook", "Mainspring", "NotRetryable", "Retry", "load_app"]

Function = TypeVar("Function", bound=Callable[..., Any])
Hook = Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Handler:
    """A function under the name by which jobs ask for it."""

    name: str
    function: Callable[[Context], Any]
    timeout: timedelta | None
    """A bound of its own; None: only the job's."""
    max_concurrency: int | None
    """How many runs of it one worker process executes at the same time; None: as many as fit."""
    is_async: bool

    @classmethod
    def of(
        cls,
        name: str,
        function: Callable[[Context], Any],
        *,
        timeout: timedelta | float | None = None,
        max_concurrency: int | None = None,
    ) -> Handler:
        """A handler, if it can be one; raises InvalidInput naming the field and the rule."""
        check_text("handler", name, LONGEST_NAME)
        _check_function("function", function, takes=1)
        return cls(
            name,
            function,
            None if timeout is None else check_duration("timeout", timeout, LONGEST_TIMEOUT),
            None if max_concurrency is None else _check_concurrency(max_concurrency),
            is_async=_is_async(function),
        )

    def time_limit(self, job_timeout: timedelta) -> timedelta:
        """How long a run may take: what the job allows, or less if the handler says so."""
        return job_timeout if self.timeout is None else min(self.timeout, job_timeout)

    def call(self, context: Context) -> Any:
        """Execute a sync handler, in a thread."""
        try:
            return self.function(context)
        except StopIteration as error:
            # asyncio cannot put it into a future: whoever awaits the thread would wait for ever.
            raise RuntimeError("the handler raised StopIteration") from error


class Mainspring:
    """The handlers of a worker process, and its hooks."""

    def __init__(self) -> None:
        self._handlers: dict[str, Handler] = {}
        self._start_hooks: list[Hook] = []
        self._stop_hooks: list[Hook] = []

    @property
    def handlers(self) -> Mapping[str, Handler]:
        """By name, in the order of registration."""
        return MappingProxyType(self._handlers)

    def handler(
        self, name: str = "", *, timeout: timedelta | float | None = None, max_concurrency: int | None = None
    ) -> Callable[[Function], Function]:
        """Register the decorated function, sync or async, and give it back unchanged."""
        if callable(name) or name == "":
            raise InvalidInput("handler", 'has no name: write @app.handler("send-report")')

        def register(function: Function) -> Function:
            self._add([Handler.of(name, function, timeout=timeout, max_concurrency=max_concurrency)])
            return function

        return register

    def include(self, other: Mainspring) -> None:
        """Take over the handlers and hooks that another app has by now; all of them, or none."""
        if not isinstance(other, Mainspring):
            raise InvalidInput("app", f"{_show(other)} is not a Mainspring")
        if other is self:
            raise InvalidInput("app", "an app cannot include itself")
        self._add(other._handlers.values())
        self._start_hooks += other._start_hooks
        self._stop_hooks += other._stop_hooks

    def on_start(self, hook: Function) -> Function:
        """Have the decorated function called, without arguments, before the worker takes its first run."""
        self._start_hooks.append(_check_function("on_start", hook, takes=0))
        return hook

    def on_stop(self, hook: Function) -> Function:
        """Have the decorated function called, without arguments, after the worker's last run."""
        self._stop_hooks.append(_check_function("on_stop", hook, takes=0))
        return hook

    async def start(self) -> None:
        """Call the start hooks in their order; the first that raises ends it. For the worker process."""
        for hook in self._start_hooks:
            await _call(hook)

    async def stop(self) -> None:
        """Call the stop hooks, the last first, every one of them; then raise what they raised, as a group."""
        errors: list[Exception] = []
        for hook in reversed(self._stop_hooks):
            try:
                await _call(hook)
            except Exception as error:  # noqa: BLE001  (one hook must not keep another's work undone)
                errors.append(error)
        if errors:
            raise ExceptionGroup("on_stop", errors)

    def _add(self, handlers: Iterable[Handler]) -> None:
        new = {handler.name: handler for handler in handlers}
        for name in new:
            if name in self._handlers:
                there = _show(self._handlers[name].function)
                raise InvalidInput("handler", f"{name!r} is registered already, as {there}")
        self._handlers.update(new)


def load_app(path: str) -> Mainspring:
    """The app at `package.module:attribute`; raises InvalidInput("app", …) for every way it can be wrong.

    Modules in the current directory are found, as `python -m` finds them.
    """
    module_name, colon, attribute = path.partition(":") if isinstance(path, str) else ("", "", "")
    if not (colon and _is_dotted(module_name) and _is_dotted(attribute)):
        raise InvalidInput("app", f"{str(path)[:200]!r} is not written as package.module:app")
    module = _import(module_name)
    app: Any = module
    for part in attribute.split("."):
        if not hasattr(app, part):
            hint = nearest(part, [name for name in dir(app) if not name.startswith("_")])
            raise InvalidInput("app", f"the module {module_name} has no {attribute}{hint}")
        app = getattr(app, part)
    if not isinstance(app, Mainspring):
        raise InvalidInput("app", f"{path} is {_show(app)}, not a Mainspring")
    return app


def _import(name: str) -> ModuleType:
    # A console script has its own directory on the path in place of the current one.
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        # `a.b` is missing when `a` or `a.b` is; anything else is missing *inside* of it.
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise InvalidInput("app", f"there is no module {error.name!r}") from error
        raise InvalidInput("app", _failed_import(name, error)) from error
    except Exception as error:
        raise InvalidInput("app", _failed_import(name, error)) from error


def _failed_import(name: str, error: Exception) -> str:
    """What went wrong, and where: the last line of the user's code, not of the import system."""
    places = [
        f"{frame.filename}:{frame.lineno}"
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith("<") and frame.filename not in (__file__, importlib.__file__)
    ]
    where = f" at {places[-1]}" if places else ""
    return f"the module {name} cannot be imported: {type(error).__name__}: {error}{where}"


def _is_dotted(text: str) -> bool:
    return all(part.isidentifier() for part in text.split("."))


def _check_function(field: str, function: Any, *, takes: int) -> Any:
    """The function, if it can be called with that many arguments and answers once."""
    called = _called(function)
    if inspect.iscoroutine(function):
        function.close()  # or Python complains on its own when it is collected
        raise InvalidInput(field, "is a coroutine: give the function, not what calling it returned")
    if inspect.isclass(function) or not callable(function):
        raise InvalidInput(field, f"{_show(function)} is not a function")
    if inspect.isgeneratorfunction(called) or inspect.isasyncgenfunction(called):
        raise InvalidInput(field, f"{_show(function)} is a generator: use `return`, not `yield`")
    wanted = "exactly one positional argument, the context" if takes else "no argument"
    try:
        inspect.signature(function).bind(*[None] * takes)
    except TypeError:
        raise InvalidInput(field, f"{_show(function)} cannot be called with {wanted}") from None
    except ValueError:
        raise InvalidInput(field, f"{_show(function)} does not show whether it takes {wanted}") from None
    return function


def _called(function: Any) -> Any:
    """What runs in the end: behind a partial its function, behind an object its __call__."""
    while isinstance(function, partial):
        function = function.func
    return function if inspect.isroutine(function) else getattr(type(function), "__call__", None)  # noqa: B004


def _is_async(function: Any) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(_called(function))


def _check_concurrency(value: Any) -> int:
    if type(value) is not int or value < 1:
        raise InvalidInput("max_concurrency", f"{str(value)[:40]} is not a whole number from 1")
    return value


async def _call(hook: Hook) -> None:
    """A sync hook has a thread of its own: it may block, and the worker's heartbeat must not."""
    if _is_async(hook):
        await hook()
    else:
        await asyncio.to_thread(hook)


def _show(value: Any) -> str:
    if inspect.isclass(value):
        return f"the class {value.__qualname__}"
    name = getattr(value, "__qualname__", None)
    return name if isinstance(name, str) else f"a value of type {type(value).__name__}"
