"""`mainspring demo`, which is `make demo`: everything, with sample jobs, on a throw-away stack."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import click

from mainspring.cli.local import say
from mainspring.cli.up import api_option, bring_forward, processes_on, url_of
from mainspring.demo import app
from mainspring.demo.api import Api
from mainspring.demo.stage import KILL_SECONDS, SHORTEST_SECONDS, Demo
from mainspring.demo.view import Screen
from mainspring.local import LocalStack
from mainspring.local.foreground import run_until_signalled
from mainspring.local.processes import Processes
from mainspring.local.programs import Fleet
from mainspring.local.waiting import beside
from mainspring.settings import PREFIX

_GRACE_SECONDS = 1
_WHERE_PROGRAMS_ARE = (f"{PREFIX}LOCAL_", f"{PREFIX}JAVA")


def _long_enough(_: click.Context, __: click.Parameter, seconds: int | None) -> int | None:
    if seconds is not None and seconds < SHORTEST_SECONDS:
        raise click.BadParameter(
            f"{seconds} is too short: a leader is killed after {KILL_SECONDS} s, and to show what becomes of"
            f" it takes ten more; at least {SHORTEST_SECONDS}"
        )
    return seconds


@click.command("demo")
@click.option(
    "--seconds",
    type=int,
    callback=_long_enough,
    help="End by itself after so many seconds with everything running; default: at Ctrl-C.",
)
@api_option
def command(seconds: int | None, api: str | None) -> None:
    """Show everything at work: sample jobs of every kind, live, and a leader that is killed.

    Starts Postgres, Kafka and etcd, an API, two schedulers and two workers, all thrown away at the end. After
    fifteen seconds a scheduler is killed, and another one takes its shards. In the end, or at Ctrl-C, what
    was promised is compared with what happened; exit code 0 only if all of it did.
    """
    fleet = Fleet(app=f"{app.__name__}:app", api=api, grace_seconds=_GRACE_SECONDS)
    performance = _Performance(seconds, fleet)
    ended_by = run_until_signalled(performance.run(), performance.interrupt)
    say("stopped")
    if ended_by is not None:
        sys.exit(128 + ended_by)
    sys.exit(0 if performance.kept else 1)


def _own_alone(variables: Mapping[str, str]) -> dict[str, str]:
    """None of somebody's Postgres, Kafka or etcd: no sample job may get there. Where programs are stays."""
    return {
        name: value
        for name, value in variables.items()
        if not name.startswith(PREFIX) or name.startswith(_WHERE_PROGRAMS_ARE)
    }


class _Performance:
    """A stack, the processes on it, the demo; ended by itself or by a signal."""

    def __init__(self, seconds: int | None, fleet: Fleet) -> None:
        self._seconds = seconds
        self._groups = fleet.groups(_own_alone(os.environ))
        self._demo: Demo | None = None
        self.kept = False

    def interrupt(self) -> bool:
        return self._demo is not None and self._demo.interrupt()

    async def run(self) -> None:
        """From the first server's start to the last one's end."""
        variables = _own_alone(os.environ)
        async with LocalStack(environment=variables, progress=say) as stack:
            say(await bring_forward(stack, None, variables))
            assert stack.directory is not None
            journal = stack.directory / "journal"
            journal.touch(mode=0o600)
            variables = variables | {app.JOURNAL: str(journal)}
            async with processes_on(stack, self._groups, variables, self._note) as others:
                self.kept = await beside(self._play(others.processes, journal), stack.watch(), others.watch())
                say("stopping")

    async def _play(self, processes: Processes, journal: Path) -> bool:
        url = url_of(self._groups[0][0])
        async with Api.at(url) as api:
            self._demo = Demo(api, processes, journal, Screen(sys.stdout), url=url, seconds=self._seconds)
            return await self._demo.run()

    def _note(self, line: str) -> None:
        (say if self._demo is None else self._demo.note)(line)
