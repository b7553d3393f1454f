"""`mainspring audit`: who changed what, when and why."""

from __future__ import annotations

import json
from itertools import islice
from typing import Any

import click

from mainspring.cli.output import Column, Output, View, watchable, with_output
from mainspring.cli.remote import limit_options, with_client
from mainspring.client import Client
from mainspring.client.models import AuditRow

_ROWS: View[AuditRow] = View(
    (
        Column("at", lambda row, times: times.short(row.at)),
        Column("actor", lambda row, _: row.actor),
        Column("action", lambda row, _: row.action),
        Column("subject", lambda row, _: row.subject),
        Column("after", lambda row, _: _short(row.after)),
        Column("reason", lambda row, _: row.reason),
    ),
    lambda row: row.id,
)


@click.command("audit")
@click.option("--subject", metavar="ID", help="A job's id, a run's id, key:… .")
@click.option("--actor", metavar="KEY", help="The name of a key.")
@click.option("--action", help="Such as create, edit, pause, redrive.")
@click.option("--since", metavar="ISO", help="Since this instant.")
@limit_options
@watchable
@with_output
@with_client
def command(*, client: Client, output: Output, limit: int | None, **filters: Any) -> None:
    """List changes, newest first; -o json has what was before and after. Needs an admin's key."""
    if limit is None or limit >= 1000:
        output.show(_ROWS, islice(client.audit(**filters), limit))
    else:
        output.show(_ROWS, client.audit_page(None, limit, **filters).items)


def _short(value: Any) -> str | None:
    return None if value is None else json.dumps(value, ensure_ascii=False)
