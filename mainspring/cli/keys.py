"""`mainspring keys`: API keys, through the API; the very first one directly on the database."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any, Protocol, TypeVar, cast

import click

from mainspring.cli import direct
from mainspring.cli.confirmation import confirm, yes_option
from mainspring.cli.output import Column, Format, Output, View, say, with_output
from mainspring.cli.remote import opened, reason_option
from mainspring.client.models import Key, NewKey
from mainspring.registry.edge import Pool
from mainspring.registry.keys import ApiKey, Keys, Role
from mainspring.schema.errors import NotFound

F = TypeVar("F", bound=Callable[..., Any])

_MOST = 100_000
_KEYS: View[Key] = View(
    (
        Column("id", lambda key, _: str(key.id), right=True),
        Column("name", lambda key, _: key.name),
        Column("role", lambda key, _: key.role),
        Column("handlers", lambda key, _: "every" if key.handlers is None else key.handlers),
        Column("status", lambda key, _: "active" if key.revoked_at is None else "revoked"),
        Column("created", lambda key, times: times.short(key.created_at)),
        Column("revoked", lambda key, times: times.short(key.revoked_at)),
    ),
    lambda key: key.name,
)


class KeyRing(Protocol):
    """Where keys are kept: behind the API, or in the database itself."""

    def list(self) -> Iterable[Key]: ...

    def create(
        self, name: str, role: str, *, handlers: Sequence[str] | None, reason: str | None
    ) -> NewKey: ...

    def revoke(self, key_id: int, *, reason: str | None) -> None: ...


class DirectKeys:
    """A tenant's keys in the database: the first key cannot be asked for with a key."""

    def __init__(self, dsn: str | None, tenant: str) -> None:
        self._dsn = dsn
        self._tenant = tenant

    def list(self) -> Iterable[Key]:
        async def work(pool: Pool) -> tuple[ApiKey, ...]:
            tenant_id = await direct.tenant_id(pool, self._tenant)
            return tuple(await Keys(pool).list(tenant_id, limit=_MOST))

        return [Key(**_fields(key)) for key in direct.on_database(self._dsn, work)]

    def create(self, name: str, role: str, *, handlers: Sequence[str] | None, reason: str | None) -> NewKey:
        async def work(pool: Pool) -> tuple[ApiKey, str]:
            tenant_id = await direct.tenant_id(pool, self._tenant)
            return await Keys(pool).create(tenant_id, name, role, handlers, by=direct.actor(reason))

        key, secret = direct.on_database(self._dsn, work)
        return NewKey(**_fields(key), secret=secret)

    def revoke(self, key_id: int, *, reason: str | None) -> None:
        async def work(pool: Pool) -> None:
            tenant_id = await direct.tenant_id(pool, self._tenant)
            await Keys(pool).revoke(tenant_id, key_id, by=direct.actor(reason))

        direct.on_database(self._dsn, work)


def with_keys(command: F) -> F:
    """`--direct`, `--dsn` and `--tenant`, handed to the command as `keys`."""

    @wraps(command)
    def run(*args: Any, directly: bool, dsn: str | None, tenant: str, **kwargs: Any) -> Any:
        if directly or dsn is not None:
            return command(*args, keys=DirectKeys(dsn, tenant), **kwargs)
        with opened() as client:
            return command(*args, keys=client.keys, **kwargs)

    run = click.option("--tenant", default="default", show_default=True, help="With --direct: whose keys.")(
        run
    )
    run = direct.dsn_option(run)
    on_database = click.option("--direct", "directly", is_flag=True, help="On the database, without the API.")
    return cast("F", on_database(run))


@click.group("keys")
def command() -> None:
    """API keys. The first one is made with --direct, on the database; every further one by an admin's key."""


@command.command("list")
@with_output
@with_keys
def list_keys(*, keys: KeyRing, output: Output) -> None:
    """List keys, revoked ones too."""
    output.show(_KEYS, keys.list())


@command.command("create")
@click.argument("name")
@click.option(
    "--role", type=click.Choice([role.value for role in Role]), required=True, help="What it may do."
)
@click.option("--handler", "handlers", multiple=True, help="A handler that it may use; default: every one.")
@reason_option
@with_output
@with_keys
def create(
    name: str, *, keys: KeyRing, output: Output, role: str, handlers: tuple[str, ...], reason: str | None
) -> None:
    """Make a key and print its secret, which cannot be had again."""
    key = keys.create(name, role, handlers=handlers or None, reason=reason)
    say(f"key {key.id} ({key.name}, {key.role}); its secret is shown this once")
    if output.format in (Format.TABLE, Format.NAME):
        click.echo(key.secret)
    else:
        output.show_one(_KEYS, key, ())


@command.command("revoke")
@click.argument("key")
@reason_option
@yes_option
@with_keys
def revoke(key: str, *, keys: KeyRing, reason: str | None, yes: bool) -> None:
    """Refuse a KEY, given by name or id, from now on."""
    found = next((each for each in keys.list() if key in (each.name, str(each.id))), None)
    if found is None:
        raise NotFound("key", key)
    confirm(f"revoke key {found.id} ({found.name}, {found.role})?", yes=yes)
    keys.revoke(found.id, reason=reason)
    say(f"revoked key {found.id} ({found.name})")


def _fields(key: ApiKey) -> dict[str, Any]:
    return {
        "id": key.id,
        "name": key.name,
        "role": key.role.value,
        "handlers": key.handlers,
        "created_at": key.created_at,
        "revoked_at": key.revoked_at,
    }
