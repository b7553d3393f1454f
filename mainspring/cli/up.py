"""`mainspring up`: the local stack with its schema brought forward and the processes on it, in one command.

`mainspring/local/processes.py` says who is authoritative, and what happens when a process dies or this one
is killed.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import click

from mainspring.cli.local import Beside, keep_up, say, servers_alone
from mainspring.local import LocalStack
from mainspring.local.processes import Processes, Program
from mainspring.local.programs import Fleet, development
from mainspring.postgres import connect
from mainspring.schema.migrate import MigrationResult, migrate
from mainspring.schema.sharding import MAXIMUM_SHARDS
from mainspring.settings import PREFIX, Environment, PostgresSettings

URL = "MAINSPRING_URL"

shards_option = click.option(
    "--shards",
    type=click.IntRange(1, MAXIMUM_SHARDS),
    help=f"Number of shards of a new cluster, fixed from then on; default: {PREFIX}SHARDS, or 64.",
)
api_option = click.option(
    "--api",
    metavar="HOST:PORT",
    help="Where the API listens, on loopback; default: 127.0.0.1:8080, or a free port if that is taken.",
)


@click.command("up")
@click.option(
    "--directory",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(".mainspring"),
    show_default=True,
    help="Where the data stays.",
)
@click.option("--ephemeral", is_flag=True, help="Throw the data away at the end.")
@shards_option
@click.option("--schedulers", type=click.IntRange(0, 16), default=2, show_default=True)
@click.option("--workers", type=click.IntRange(0, 16), default=2, show_default=True)
@click.option(
    "--app", metavar="MODULE:NAME", help="The workers' handlers; without it only the built-in ones are there."
)
@api_option
@click.option("--no-processes", is_flag=True, help="The servers alone, migrated.")
def command(
    directory: Path,
    shards: int | None,
    schedulers: int,
    workers: int,
    app: str | None,
    api: str | None,
    *,
    ephemeral: bool,
    no_processes: bool,
) -> None:
    """Start a real Postgres, Kafka and etcd, an API, schedulers and workers; Ctrl-C stops everything.

    A server whose variable is set (MAINSPRING_POSTGRES_DSN, MAINSPRING_KAFKA, MAINSPRING_ETCD) is used
    instead of being started. For development: the API asks for no keys, and listens on loopback only. A
    process that dies is started again; what each says is in a file of the directory.
    """
    wanted = wanted_shards(shards)
    place = None if ephemeral else directory
    fleet = Fleet(schedulers=schedulers, workers=workers, app=app, api=api)
    groups = [] if no_processes else fleet.groups(os.environ)

    @asynccontextmanager
    async def beside(stack: LocalStack) -> AsyncIterator[Beside]:
        say(await bring_forward(stack, wanted, os.environ))
        processes = servers_alone(stack) if no_processes else processes_on(stack, groups, os.environ)
        async with processes as others:
            yield others

    keep_up(LocalStack(place, progress=say), place, beside)


class Shown:
    """Processes with the addresses to show for them."""

    def __init__(self, processes: Processes, logs: Path) -> None:
        self.processes = processes
        self.watch = processes.watch
        self._programs = [child.program for child in processes.children]
        self._logs = logs

    def addresses(self) -> Sequence[tuple[str, str]]:
        api, *others = self._programs
        return [
            (api.name, f"{url_of(api)}/api/v1   keys are off: everybody on this machine is admin"),
            *((program.name, f"http://{program.status}/readyz") for program in others),
            ("logs", str(self._logs / "*.log")),
        ]


@asynccontextmanager
async def processes_on(
    stack: LocalStack,
    groups: Sequence[Sequence[Program]],
    variables: Mapping[str, str],
    note: Callable[[str], None] = say,
) -> AsyncIterator[Shown]:
    """Every program beside a stack that is ready; the API is the first of them."""
    assert stack.directory is not None
    names = [program.name for group in groups for program in group]
    say(f"starting {', '.join(names)}")
    everything = development(variables) | stack.environment()
    async with Processes(groups, logs=stack.directory, variables=everything, say=note) as processes:
        stack.announce(announced(groups))
        yield Shown(processes, stack.directory)


def announced(groups: Sequence[Sequence[Program]]) -> Mapping[str, str]:
    """By which clients and commands find the API."""
    return {URL: url_of(groups[0][0])}


def url_of(program: Program) -> str:
    return f"http://{program.status}"


def wanted_shards(given: int | None) -> int | None:
    return Environment(os.environ).integer("SHARDS", 1, MAXIMUM_SHARDS) if given is None else given


async def bring_forward(stack: LocalStack, shards: int | None, variables: Mapping[str, str]) -> str:
    """Migrate; what that did."""
    settings = PostgresSettings.from_environment({**variables, **stack.environment()})
    connection = await connect(settings, application="mainspring up")
    try:
        return _summary(await migrate(connection, shards=shards))
    finally:
        await connection.close()


def _summary(result: MigrationResult) -> str:
    did = f"applied {len(result.applied)} migrations, " if result.applied else ""
    return f"schema: {did}at {result.version:04} with {result.shards} shards"
