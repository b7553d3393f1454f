"""`mainspring schemas`: what the payloads of a handler must look like."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from mainspring.cli.confirmation import confirm, yes_option
from mainspring.cli.output import Column, Output, View, say, with_output
from mainspring.cli.remote import reason_option, with_client
from mainspring.client import Client
from mainspring.client.models import PayloadSchema
from mainspring.schema.errors import InvalidInput

_SCHEMAS: View[PayloadSchema] = View(
    (
        Column("handler", lambda schema, _: schema.handler),
        Column("changed", lambda schema, times: times.short(schema.updated_at)),
        Column("schema", lambda schema, _: json.dumps(schema.schema, ensure_ascii=False)),
    ),
    lambda schema: schema.handler,
)


@click.group("schemas")
def command() -> None:
    """JSON Schemas that the payloads of handlers are held against, when jobs are created and edited."""


@command.command("list")
@with_output
@with_client
def list_schemas(*, client: Client, output: Output) -> None:
    """List the handlers that have a schema."""
    output.show(_SCHEMAS, client.schemas.list())


@command.command("get")
@click.argument("handler")
@with_client
def get(handler: str, *, client: Client) -> None:
    """Print the schema of a handler's payloads."""
    click.echo(json.dumps(client.schemas.get(handler).schema, indent=2, ensure_ascii=False))


@command.command("put")
@click.argument("handler")
@click.argument("file", metavar="FILE")
@reason_option
@with_client
def put(handler: str, file: str, *, client: Client, reason: str | None) -> None:
    """Check the payloads of a handler against the schema in FILE (- is stdin). Needs an admin's key."""
    client.schemas.put(handler, _read(file), reason=reason)
    say(f"payloads of {handler} are checked from now on")


@command.command("delete")
@click.argument("handler")
@reason_option
@yes_option
@with_client
def delete(handler: str, *, client: Client, reason: str | None, yes: bool) -> None:
    """Check the payloads of a handler no longer. Needs an admin's key."""
    confirm(f"check the payloads of {handler} no longer?", yes=yes)
    client.schemas.delete(handler, reason=reason)
    say(f"payloads of {handler} are checked no longer")


def _read(file: str) -> Any:
    try:
        return json.loads(sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(file, f"cannot be read: {error}") from None
    except ValueError as error:
        raise InvalidInput(file, f"is not JSON: {error}") from None
