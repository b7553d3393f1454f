"""The API behind a command: a client out of the variables, closed when the command ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, TypeVar, cast

import click

from mainspring.client import Client, MainspringError, Unauthenticated

F = TypeVar("F", bound=Callable[..., Any])

_KEY_HINT = "MAINSPRING_API_KEY holds the key; mainspring keys create makes one"
_PATIENCE = 30.0
_UNREACHABLE = 2.0
"""A person waits at the terminal: an API that is away is said soon, one that asks for a pause gets it."""


@contextmanager
def opened(retry_seconds: float = _PATIENCE, unreachable_seconds: float = _UNREACHABLE) -> Iterator[Client]:
    """A client; whoever has no key is told where one belongs."""
    try:
        with Client(retry_seconds=retry_seconds, unreachable_seconds=unreachable_seconds) as client:
            yield client
    except Unauthenticated as error:
        raise MainspringError(f"{error} ({_KEY_HINT})") from error


def with_client(command: F) -> F:
    """Hand the command a client of the API that MAINSPRING_URL names."""

    @wraps(command)
    def run(*args: Any, **kwargs: Any) -> Any:
        with opened() as client:
            return command(*args, client=client, **kwargs)

    return cast("F", run)


def reason_option(command: F) -> F:
    return click.option("--reason", metavar="TEXT", help="Why; kept in the audit.")(command)


def limit_options(command: F) -> F:
    """`--limit` and `--all`, handed to the command as `limit`; None means all."""

    @wraps(command)
    def run(*args: Any, limit: int, everything: bool, **kwargs: Any) -> Any:
        return command(*args, limit=None if everything else limit, **kwargs)

    run = click.option("--all", "everything", is_flag=True, help="Everything there is.")(run)
    number = click.option(
        "--limit", type=click.IntRange(1), default=100, show_default=True, help="At most so many."
    )
    return cast("F", number(run))


def pairs(values: tuple[str, ...], option: str) -> dict[str, str]:
    """`KEY=VALUE` of each."""
    found: dict[str, str] = {}
    for value in values:
        key, equals, text = value.partition("=")
        if not equals or not key:
            raise click.BadParameter(f"{value!r} is not KEY=VALUE", param_hint=option)
        found[key] = text
    return found
