"""The database behind a command: for what must work before there is an API key, and for what no key may
do."""

from __future__ import annotations

import asyncio
import getpass
import os
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import click

from mainspring.postgres import connect, make_pool
from mainspring.registry.audit import Actor
from mainspring.registry.edge import Pool, connected
from mainspring.schema.cluster import verify_shards
from mainspring.schema.errors import NotFound
from mainspring.schema.queries import query
from mainspring.settings import PREFIX, PostgresSettings

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

_DSN = f"{PREFIX}POSTGRES_DSN"
_COMMAND_SECONDS = 30.0


def dsn_option(command: F) -> F:
    return click.option("--dsn", help=f"Where Postgres is; default: {_DSN}.")(command)


def on_database(dsn: str | None, work: Callable[[Pool], Awaitable[T]]) -> T:
    """Run this with a pool on a migrated database."""
    return asyncio.run(_run(_settings(dsn), work))


def actor(reason: str | None = None) -> Actor:
    """Who sits at this terminal, for the audit: the login is all that is known."""
    return Actor(name=f"cli:{_login()}", reason=reason)


async def tenant_id(pool: Pool, name: str) -> int:
    async with connected(pool) as connection:
        row = await connection.fetchrow(query("tenant_by_name"), name)
    if row is None:
        raise NotFound("tenant", name)
    return int(row["id"])


async def _run(settings: PostgresSettings, work: Callable[[Pool], Awaitable[T]]) -> T:
    connection = await connect(settings, application="mainspring cli")
    try:
        await verify_shards(connection, None)
    finally:
        await connection.close()
    pool = make_pool(settings, application="mainspring cli", size=1, command_seconds=_COMMAND_SECONDS)
    async with pool:
        return await work(pool)


def _settings(dsn: str | None) -> PostgresSettings:
    variables = dict(os.environ)
    if dsn is not None:
        variables.pop(f"{_DSN}_FILE", None)
        variables[_DSN] = dsn
    return PostgresSettings.from_environment(variables)


def _login() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container without a name for its user
        return str(os.getuid())
