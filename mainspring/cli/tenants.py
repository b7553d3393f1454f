"""`mainspring tenants`: tenants and their limits, on the database: no key may change them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from mainspring.cli import direct
from mainspring.cli.output import Column, Output, View, say, with_output
from mainspring.cli.remote import reason_option
from mainspring.registry.edge import Pool
from mainspring.registry.tenants import LIMITS, Tenant, Tenants
from mainspring.schema.errors import InvalidInput

F = TypeVar("F", bound=Callable[..., Any])

_TENANTS: View[Tenant] = View(
    (
        Column("tenant", lambda tenant, _: tenant.name),
        Column("maximum jobs", lambda tenant, _: tenant.maximum_jobs, right=True),
        Column("maximum running", lambda tenant, _: tenant.maximum_running, right=True),
        Column("requests per second", lambda tenant, _: tenant.requests_per_second, right=True),
        Column("created", lambda tenant, times: times.short(tenant.created_at)),
    ),
    lambda tenant: tenant.name,
)


def limit_options(command: F) -> F:
    """One for each limit; `none` takes a limit away."""
    helps = {
        "maximum_jobs": "Jobs that it may have",
        "maximum_running": "Runs at the same time",
        "requests_per_second": "Requests to each API process",
    }
    for name in LIMITS:
        option = f"--{name.replace('_', '-')}"
        command = click.option(option, name, metavar="N|none", help=f"{helps[name]}.")(command)
    return command


@click.group("tenants")
def command() -> None:
    """Tenants and their limits. Needs the database: MAINSPRING_POSTGRES_DSN, or --dsn."""


@command.command("list")
@direct.dsn_option
@with_output
def list_tenants(*, output: Output, dsn: str | None) -> None:
    """List tenants with their limits."""

    async def work(pool: Pool) -> list[Tenant]:
        return await Tenants(pool).list()

    output.show(_TENANTS, direct.on_database(dsn, work))


@command.command("create")
@click.argument("name")
@limit_options
@direct.dsn_option
@reason_option
@with_output
def create(name: str, *, output: Output, dsn: str | None, reason: str | None, **given: str | None) -> None:
    """Make a tenant; then make its first key: mainspring keys create … --direct --tenant NAME."""
    limits = _limits(given)

    async def work(pool: Pool) -> Tenant:
        return await Tenants(pool).create(name, limits, by=direct.actor(reason))

    output.show(_TENANTS, [direct.on_database(dsn, work)])


@command.command("limit")
@click.argument("name")
@limit_options
@direct.dsn_option
@reason_option
@with_output
def limit(name: str, *, output: Output, dsn: str | None, reason: str | None, **given: str | None) -> None:
    """Change limits of a tenant, those that are given; they hold from the next request and claim on."""
    limits = _limits(given)
    if not limits:
        raise click.UsageError("give a limit, such as --maximum-jobs 1000")

    async def work(pool: Pool) -> Tenant:
        return await Tenants(pool).limit(name, limits, by=direct.actor(reason))

    output.show(_TENANTS, [direct.on_database(dsn, work)])
    say(f"{name} has other limits from now on")


def _limits(given: dict[str, str | None]) -> dict[str, int | None]:
    return {name: _number(name, text) for name, text in given.items() if text is not None}


def _number(name: str, text: str) -> int | None:
    if text == "none":
        return None
    if not (text.isascii() and text.isdigit()):
        raise InvalidInput(name, f"{text!r} is neither a number nor none")
    return int(text)
