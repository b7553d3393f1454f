"""`mainspring local`: a Postgres, Kafka and etcd of this machine, without containers."""

from __future__ import annotations

import asyncio
import json
import shlex
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import click

from mainspring.local import LocalStack, procfs
from mainspring.local.detached import start_detached
from mainspring.local.foreground import run_until_signalled
from mainspring.local.hold import Holder, holder_of
from mainspring.local.layout import Running, RunningMember
from mainspring.local.outside import ETCD, KAFKA, PARTS, POSTGRES
from mainspring.local.probes import brokers_seen, etcd_answers, postgres_answers
from mainspring.local.waiting import together
from mainspring.schema.errors import LocalStackError

_DEFAULT = Path(".mainspring")
# `mainspring up` has workers, schedulers and an api to stop before the servers; killing it kills all of them.
_STOP_SECONDS = 45.0
_POLL_SECONDS = 0.05

_directory = click.option(
    "--directory",
    type=click.Path(path_type=Path, file_okay=False),
    default=_DEFAULT,
    show_default=True,
    help="Where the stack keeps its data.",
)
_port = click.IntRange(1, 65535)


@click.group("local")
def command() -> None:
    """Run a real Postgres, Kafka and etcd on this machine."""


@command.command()
@_directory
@click.option("--ephemeral", is_flag=True, help="Throw the data away at the end.")
@click.option("--brokers", type=click.Choice(["1", "3"]), default="1", show_default=True, help="Kafka nodes.")
@click.option("--etcd", type=click.Choice(["1", "3"]), default="1", show_default=True, help="etcd members.")
@click.option("--postgres-port", type=_port, help="Default: the last one, or a free one.")
@click.option("--kafka-port", type=_port, help="The first broker's; the others take the ones after it.")
@click.option("--etcd-port", type=_port, help="The first member's; the others take the ones after it.")
@click.option("--detach", is_flag=True, help="Return when the stack is ready and leave it running.")
def up(
    directory: Path,
    brokers: str,
    etcd: str,
    postgres_port: int | None,
    kafka_port: int | None,
    etcd_port: int | None,
    *,
    ephemeral: bool,
    detach: bool,
) -> None:
    """Start the stack; it stays in the foreground until Ctrl-C."""
    if detach and ephemeral:
        raise click.UsageError("--detach needs a directory that others can find; leave out --ephemeral")
    if detach:
        _detach(directory)
        return
    place = None if ephemeral else directory
    stack = LocalStack(
        place,
        brokers=int(brokers),
        etcd=int(etcd),
        postgres_port=postgres_port,
        kafka_port=kafka_port,
        etcd_port=etcd_port,
        progress=say,
    )
    keep_up(stack, place)


class Beside(Protocol):
    """What runs beside the servers of a stack."""

    async def watch(self) -> None:
        """Return never; raise when it cannot go on."""

    def addresses(self) -> Sequence[tuple[str, str]]:
        """Names and addresses, to be shown with the servers'."""


class _Nothing:
    async def watch(self) -> None:
        await asyncio.Event().wait()

    def addresses(self) -> Sequence[tuple[str, str]]:
        return ()


@asynccontextmanager
async def servers_alone(_: LocalStack) -> AsyncIterator[Beside]:
    yield _Nothing()


def keep_up(
    stack: LocalStack,
    directory: Path | None,
    beside: Callable[[LocalStack], AbstractAsyncContextManager[Beside]] = servers_alone,
) -> None:
    """Run a stack in the foreground until a signal ends it: start, show where it is, watch.

    Ending what was up is what Ctrl-C is for; an interrupted start is not a success.
    """
    was_up = False

    async def stay() -> None:
        nonlocal was_up
        async with stack, beside(stack) as others:
            was_up = True
            show_addresses(stack, directory, others.addresses())
            await together(stack.watch(), others.watch())

    ended_by = run_until_signalled(stay())
    say("stopped")
    if ended_by is not None and not was_up:
        sys.exit(128 + ended_by)


@command.command()
@_directory
def down(directory: Path) -> None:
    """Stop the stack that runs in a directory."""
    holder = holder_of(directory)
    if holder is None:
        say(f"nothing runs in {directory}")
        return
    procfs.send_exactly(holder.pid, holder.started, signal.SIGTERM)
    if not _released(directory, holder):
        say(f"process {holder.pid} did not stop within {_STOP_SECONDS:.0f} s; killing it")
        procfs.send_exactly(holder.pid, holder.started, signal.SIGKILL)
        if not _released(directory, holder):
            raise LocalStackError(
                f"process {holder.pid} cannot be stopped from here", "stop it where it was started"
            )
    say("stopped")


@command.command()
@_directory
@click.option("--json", "as_json", is_flag=True, help="Print an object instead of a table.")
def status(directory: Path, *, as_json: bool) -> None:
    """Ask every server a real request; exits 1 unless all of them answer."""
    holder, running = _look(directory)
    if holder is None:
        say(f"nothing runs in {directory}; start it with `{_spelt('up', directory)}`")
    report = asyncio.run(_report(directory, holder, running))
    if as_json:
        click.echo(json.dumps(report, indent=2))
    elif holder is not None:
        say(f"{directory} is held by process {holder.pid} since {holder.since}")
        for row in _table(report):
            click.echo(row)
    if not report["ready"] or not all(member["answers"] for member in report["members"]):
        sys.exit(1)


@command.command()
@_directory
def env(directory: Path) -> None:
    """Print the variables of the running stack: eval "$(mainspring local env)"."""
    _, running = _look(directory)
    if running is None or not running.ready:
        raise LocalStackError(
            f"no stack is ready in {directory}", f"start it with `{_spelt('up', directory)}`"
        )
    for name, value in running.environment.items():
        click.echo(f"export {name}={shlex.quote(value)}")


def say(line: str) -> None:
    """Talk goes to stderr, so that stdout stays data."""
    click.echo(line, err=True)


def show_addresses(stack: LocalStack, directory: Path | None, others: Sequence[tuple[str, str]] = ()) -> None:
    """Where the servers are; a throw-away, which `env` cannot find, shows its variables instead."""
    say("")
    rows = [(member.name, member.address) for member in stack.members] if directory is not None else []
    if directory is None:
        for name, value in stack.variables().items():
            say(f"  export {name}={shlex.quote(value)}")
        if others:
            say("")
    _show([*rows, *others])
    if directory is not None:
        say(f'\nIn another terminal: eval "$({_spelt("env", directory)})"')
    say("Ready. Ctrl-C stops everything.")


def _show(rows: Sequence[tuple[str, str]]) -> None:
    width = max([10, *(len(name) for name, _ in rows)])
    for name, address in rows:
        say(f"  {name:<{width}} {address}")


def _spelt(verb: str, directory: Path) -> str:
    """The command as somebody in this place would type it."""
    option = "" if directory == _DEFAULT else f" --directory {shlex.quote(str(directory))}"
    return f"mainspring local {verb}{option}"


def _detach(directory: Path) -> None:
    argv = [sys.executable, *(word for word in sys.argv if word != "--detach")]
    code = start_detached(argv, directory, say)
    holder, running = _look(directory)
    if code != 0 or holder is None or running is None:
        sys.exit(code or 1)
    say("")
    _show([(member.name, member.address) for member in running.members])
    say(f'\nIn another terminal: eval "$({_spelt("env", directory)})"')
    say(f"Ready. Process {holder.pid} keeps it running; `{_spelt('down', directory)}` stops it.")


def _released(directory: Path, holder: Holder) -> bool:
    """Wait until the holder has let the directory go."""
    deadline = time.monotonic() + _STOP_SECONDS
    while time.monotonic() < deadline:
        if holder_of(directory) != holder:
            return True
        time.sleep(_POLL_SECONDS)
    return False


def _look(directory: Path) -> tuple[Holder | None, Running | None]:
    holder = holder_of(directory)
    return holder, Running.load(directory, holder)


async def _report(directory: Path, holder: Holder | None, running: Running | None) -> dict[str, Any]:
    """What `status` tells, every member asked at once."""
    members = running.members if running else []
    answers = await asyncio.gather(*(_answers(member, running) for member in members if running))
    return {
        "directory": str(directory),
        "running": holder is not None,
        "ready": running is not None and running.ready,
        "pid": holder.pid if holder else None,
        "since": holder.since if holder else None,
        "members": [
            {
                "name": member.name,
                "address": member.address,
                "pid": member.pid,
                "answers": answer,
                "log": member.log,
            }
            for member, answer in zip(members, answers, strict=True)
        ],
        "outside": _outside(running),
    }


async def _answers(member: RunningMember, running: Running) -> bool:
    if member.part == KAFKA.name:
        return member.address in await brokers_seen(member.address)
    if member.part == ETCD.name:
        return await etcd_answers(member.address)
    dsn = running.environment.get(POSTGRES.variable)
    return dsn is not None and await postgres_answers(dsn)


def _outside(running: Running | None) -> list[str]:
    """The parts that are used and not started here."""
    if running is None:
        return []
    ours = {member.part for member in running.members}
    return [
        part.name
        for part in PARTS
        if part.name not in ours and any(name.startswith(part.variable) for name in running.environment)
    ]


def _table(report: dict[str, Any]) -> list[str]:
    rows = [("member", "address", "pid", "state")]
    for member in report["members"]:
        state = "answers" if member["answers"] else "does not answer"
        rows.append((member["name"], member["address"], str(member["pid"] or "-"), state))
    rows += [(name, "-", "-", "outside: not asked") for name in report["outside"]]
    return [f"{name:<10} {address:<22} {pid:>8}  {state}" for name, address, pid, state in rows]
