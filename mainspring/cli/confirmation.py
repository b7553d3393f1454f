"""Asking before something is done that cannot be undone, or is done to many: the count first, then yes or
no."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import click

from mainspring.cli.output import say
from mainspring.schema.errors import MainspringError

F = TypeVar("F", bound=Callable[..., Any])


def yes_option(command: F) -> F:
    return click.option("-y", "--yes", is_flag=True, help="Do not ask; for scripts.")(command)


def dry_run_option(command: F) -> F:
    return click.option("--dry-run", is_flag=True, help="Show and count what would be done; change nothing.")(
        command
    )


def confirm(question: str, *, yes: bool) -> None:
    """Return if the answer is yes; where nobody can be asked, the answer must have been given before."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"{question} Nobody can be asked here: give --yes, or look with --dry-run.")
    if not click.confirm(question, err=True):
        raise click.ClickException("nothing was changed")


def act_on_each(things: Iterable[str], act: Callable[[str], str]) -> None:
    """Do it to one after the other and say what was done; who is refused is named, and it goes on."""
    refused = 0
    for thing in things:
        try:
            say(act(thing))
        except MainspringError as error:
            refused += 1
            say(f"mainspring: {thing}: {error}")
    if refused:
        raise click.exceptions.Exit(1)


def counted(number: int, thing: str) -> str:
    """`1 job`, `1,234 jobs`."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"
