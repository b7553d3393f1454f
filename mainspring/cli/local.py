"""`mainspring local`: a Postgres, Kafka and etcd of this machine, without containers."""

from __future__ import annotations

import asyncio
import json
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import click

from mainspring.local import LocalStack, procfs
from mainspring.local.failures import file_errors, tail, telling_line
from mainspring.local.foreground import run_until_signalled
from mainspring.local.hold import Holder, holder_of
from mainspring.local.layout import Running, RunningMember
from mainspring.local.probes import brokers_seen, etcd_answers, postgres_answers
from mainspring.local.stack import POSTGRES_VARIABLE
from mainspring.schema.errors import LocalStackError

_STOP_SECONDS = 15.0
_POLL_SECONDS = 0.05

_directory = click.option(
    "--directory",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(".mainspring"),
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
    stack = LocalStack(
        None if ephemeral else directory,
        brokers=int(brokers),
        etcd=int(etcd),
        postgres_port=postgres_port,
        kafka_port=kafka_port,
        etcd_port=etcd_port,
        progress=_say,
    )
    was_up = False

    async def stay() -> None:
        nonlocal was_up
        async with stack:
            was_up = True
            _show_addresses(stack, None if ephemeral else directory)
            await stack.watch()

    ended_by = run_until_signalled(stay())
    _say("stopped")
    # Ending a stack that was up is what Ctrl-C is for; an interrupted start is not a success.
    if ended_by is not None and not was_up:
        sys.exit(128 + ended_by)


@command.command()
@_directory
def down(directory: Path) -> None:
    """Stop the stack that runs in a directory."""
    holder = holder_of(directory)
    if holder is None:
        _say(f"nothing runs in {directory}")
        return
    procfs.send_exactly(holder.pid, holder.started, signal.SIGTERM)
    if not _released(directory, holder):
        _say(f"process {holder.pid} did not stop within {_STOP_SECONDS:.0f} s; killing it")
        procfs.send_exactly(holder.pid, holder.started, signal.SIGKILL)
        _released(directory, holder)
    _say("stopped")


@command.command()
@_directory
@click.option("--json", "as_json", is_flag=True, help="Print an object instead of a table.")
def status(directory: Path, *, as_json: bool) -> None:
    """Ask every server a real request; exits 1 unless all of them answer."""
    holder, running = _look(directory)
    answers = asyncio.run(_ask(running)) if running else {}
    members = running.members if running else []
    if as_json:
        click.echo(json.dumps(_status_object(directory, holder, members, answers), indent=2))
    elif holder is None:
        _say(f"nothing runs in {directory}; start it with `mainspring local up`")
    else:
        _say(f"{directory} is held by process {holder.pid} since {holder.since}")
        for row in _table(members, answers):
            click.echo(row)
    if holder is None or not members or not all(answers.values()):
        sys.exit(1)


@command.command()
@_directory
def env(directory: Path) -> None:
    """Print the variables of the running stack: eval "$(mainspring local env)"."""
    _, running = _look(directory)
    if running is None or not running.ready:
        raise LocalStackError(f"no stack is ready in {directory}", "start it with `mainspring local up`")
    for name, value in running.environment.items():
        click.echo(f"export {name}={shlex.quote(value)}")


def _say(line: str) -> None:
    click.echo(line, err=True)


def _show_addresses(stack: LocalStack, directory: Path | None) -> None:
    _say("")
    if directory is None:
        for name, value in stack.environment().items():
            _say(f"  export {name}={shlex.quote(value)}")
    else:
        for member in stack.members:
            _say(f"  {member.name:<10} {member.address}")
        suffix = "" if directory == Path(".mainspring") else f" --directory {shlex.quote(str(directory))}"
        _say(f'\nIn another terminal: eval "$(mainspring local env{suffix})"')
    _say("Ready. Ctrl-C stops everything.")


def _detach(directory: Path) -> None:
    """Start the same command once more, without --detach, in a session of its own; wait until it is ready."""
    log = directory / "up.log"
    with file_errors(directory):
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with log.open("wb") as output:
            child = subprocess.Popen(
                [sys.executable, *(word for word in sys.argv if word != "--detach")],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
    while child.poll() is None:
        holder, running = _look(directory)
        if holder is not None and holder.pid == child.pid and running is not None and running.ready:
            _say(f"ready; process {child.pid} keeps it running, `mainspring local down` stops it")
            return
        time.sleep(_POLL_SECONDS)
    reason = telling_line(tail(log)).removeprefix("mainspring: ")
    raise LocalStackError(reason, f"all of it is in {log}")


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
    return holder, Running.load(directory) if holder is not None else None


async def _ask(running: Running) -> dict[str, bool]:
    """Every member's answer to a real request, all asked at once."""
    names = [member.name for member in running.members]
    answers = await asyncio.gather(*(_answers(member, running) for member in running.members))
    return dict(zip(names, answers, strict=True))


async def _answers(member: RunningMember, running: Running) -> bool:
    if member.part == "postgres":
        return await postgres_answers(running.environment.get(POSTGRES_VARIABLE, ""))
    if member.part == "kafka":
        return member.address in await brokers_seen(member.address)
    return await etcd_answers(member.address)


def _status_object(
    directory: Path, holder: Holder | None, members: list[RunningMember], answers: dict[str, bool]
) -> dict[str, object]:
    return {
        "directory": str(directory),
        "running": holder is not None,
        "pid": holder.pid if holder else None,
        "since": holder.since if holder else None,
        "members": [
            {
                "name": member.name,
                "address": member.address,
                "pid": member.pid,
                "answers": answers[member.name],
                "log": member.log,
            }
            for member in members
        ],
    }


def _table(members: list[RunningMember], answers: dict[str, bool]) -> list[str]:
    rows = [("member", "address", "pid", "state")]
    for member in members:
        state = "answers" if answers[member.name] else "does not answer"
        rows.append((member.name, member.address, str(member.pid or "-"), state))
    return [f"{name:<10} {address:<22} {pid:>8}  {state}" for name, address, pid, state in rows]
