"""`mainspring`: imports a command when it is called, so that `mainspring next` loads no database driver.

Exit codes: 0 done, 1 it failed, 2 the request was wrong. Data goes to stdout, talk to stderr.
"""

from __future__ import annotations

import sys
from importlib.metadata import version

import click

from mainspring.cli.lazy import LazyGroup
from mainspring.schema.errors import InvalidInput, MainspringError

# Name on the command line → the module in this package that holds a click command called `command`.
COMMANDS = {
    "api": "api",
    "demo": "demo",
    "local": "local",
    "migrate": "migrate",
    "next": "next_times",
    "rebase": "rebase",
    "rehearse": "rehearse",
    "scheduler": "scheduler",
    "worker": "worker",
    "shards": "shards",
    "audit": "audit",
    "completion": "completion",
    "dead-letters": "dead_letters",
    "jobs": "jobs",
    "keys": "keys",
    "pools": "pools",
    "runs": "runs",
    "schemas": "schemas",
    "tenants": "tenants",
    "workers": "workers",
    "up": "up",
}


@click.group(
    cls=LazyGroup,
    lazy={name: f"mainspring.cli.{module}:command" for name, module in COMMANDS.items()},
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(version("mainspring"), prog_name="mainspring")
def cli() -> None:
    """Cron at scale: schedules in Postgres, leaders in etcd, each second's work onto Kafka."""


def main() -> None:
    """Run the command line; an expected error is one line on stderr, never a traceback."""
    try:
        cli(prog_name="mainspring")
    except InvalidInput as error:
        click.echo(f"mainspring: {error}", err=True)
        sys.exit(2)
    except MainspringError as error:
        click.echo(f"mainspring: {error}", err=True)
        sys.exit(1)
