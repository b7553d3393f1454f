"""The processes of Mainspring beside a local stack: started, watched, started again, stopped in order.

**Who is authoritative.** Not this module. Which shard is led by whom etcd and Postgres decide, which run is
whose a claim does; a supervisor only sees to it that as many processes run as were asked for. So it needs to
know nothing of what they do: each is a command, `mainspring …`, with a log of its own in the data directory.
The one who holds the data directory owns its processes, as it owns the servers (`stack.py`).

**When a child dies** it is started again after half a second; after a second, two, four … at most ten when
it does not stay for half a minute. One line says so. Its shards and runs are somebody else's by then:
another scheduler takes the shards when the lease ends, and the reaper gives the runs their next attempt. One
that ends before it was ever ready (no such app, a port that is taken) is no accident but a mistake: the
start fails with what it said.

**When we are told to stop**, in this order: workers, which let runs end within their grace and hand back the
rest; schedulers, which resign, so that nobody waits for their leases; the api. All of one kind at once, and
each is killed when it takes longer than it may. The servers come last, by the stack.

**When we are killed** (`kill -9`) the kernel kills every child with us, see `process.py`. Nothing is written
down that a next start would have to clean up: to the database it looks as if a machine had lost its power.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from mainspring.local import procfs
from mainspring.local.failures import ended, file_errors
from mainspring.local.probes import says_ready
from mainspring.local.process import Command, Process, Spawner
from mainspring.local.waiting import to_the_end, together
from mainspring.schema.errors import LocalStackError

READY_SECONDS = 120.0
_WATCH_SECONDS = 0.1
_PROBE_SECONDS = 0.05
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 10.0
_STEADY_SECONDS = 30.0


@dataclass(frozen=True, kw_only=True)
class Program:
    """One process to keep running: its name, what follows `mainspring`, where it says that it is ready."""

    name: str
    arguments: Sequence[str]
    status: str
    stop_seconds: float
    variables: Mapping[str, str] = field(default_factory=dict)


class Child:
    """A program and the process that runs it now."""

    def __init__(self, program: Program, log: Path) -> None:
        self.program = program
        self.log = log
        self.process: Process | None = None
        self.begun = 0.0
        self.log_start = 0
        self.deaths = 0
        """In a row: since it last stayed for a while."""
        self.due: float | None = None
        """When it is to be started again."""

    @property
    def name(self) -> str:
        return self.program.name

    @property
    def pid(self) -> int | None:
        return self.process.pid if self.process is not None and self.process.running else None

    def death(self) -> LocalStackError | None:
        """Why it ended, by its log; None while it runs, and of one that was stopped here."""
        code = None if self.process is None else self.process.exit_code
        return None if code is None else ended(self.name, self.log, exit_code=code, start=self.log_start)

    def refuse_the_dead(self) -> None:
        if (death := self.death()) is not None:
            raise death

    def listens(self) -> bool:
        """Whether it is this one that answers: another program may have taken the port meanwhile."""
        port = int(self.program.status.rpartition(":")[2])
        return self.pid is not None and procfs.listens(self.pid, port)

    def pause_seconds(self, now: float) -> float:
        """How long to wait after this death."""
        self.deaths = 1 if now - self.begun > _STEADY_SECONDS else self.deaths + 1
        return min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** (self.deaths - 1))


class Processes:
    """Programs in groups; `async with` starts all of them and stops them group by group, the last first.

    `variables` is the whole environment of every child. Inside the block `watch` must run for those that die
    to come back.
    """

    def __init__(
        self,
        groups: Sequence[Sequence[Program]],
        *,
        logs: Path,
        variables: Mapping[str, str],
        say: Callable[[str], None],
    ) -> None:
        self._groups = [
            [Child(program, logs / f"{program.name}.log") for program in group] for group in groups
        ]
        self._variables = variables
        self._say = say
        self._spawner = Spawner()

    async def __aenter__(self) -> Self:
        try:
            for child in self.children:
                self._launch(child)
            await together(*(self._ready(child) for child in self.children))
        except BaseException:
            await to_the_end(self._stop())
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await to_the_end(self._stop())

    @property
    def children(self) -> list[Child]:
        """Every one, in the order of their programs."""
        return [child for group in self._groups for child in group]

    def child(self, name: str) -> Child:
        return next(child for child in self.children if child.name == name)

    async def watch(self) -> None:
        """Return never; start again what has ended."""
        while True:
            for child in self.children:
                self._look_after(child)
            await asyncio.sleep(_WATCH_SECONDS)

    async def kill(self, name: str) -> None:
        """SIGKILL, and it stays dead until `start`."""
        child = self.child(name)
        process, child.process, child.due = child.process, None, None
        if process is not None:
            await to_the_end(process.end())

    def start(self, name: str) -> None:
        """Start one that was killed; no effect when it runs."""
        child = self.child(name)
        if child.pid is None:
            self._launch(child)

    def _look_after(self, child: Child) -> None:
        now = asyncio.get_running_loop().time()
        if child.due is not None and now >= child.due:
            self._launch(child)
        elif (death := child.death()) is not None:
            pause = child.pause_seconds(now)
            self._say(f"{death.problem}; starting it again in {pause:g} s")
            child.process, child.due = None, now + pause

    def _launch(self, child: Child) -> None:
        command = Command(
            # Without -P the current directory would be searched first: a worker's app may lie there, but
            # nothing in it may stand in for what we import.
            argv=[sys.executable, "-P", "-m", "mainspring", *child.program.arguments],
            directory=Path.cwd(),
            environment={**self._variables, **child.program.variables},
        )
        with file_errors(child.log):
            child.log_start = child.log.stat().st_size if child.log.exists() else 0
            child.process = self._spawner.spawn(command, child.log)
        child.begun, child.due = asyncio.get_running_loop().time(), None

    async def _ready(self, child: Child) -> None:
        """Wait for the first good answer."""
        try:
            async with asyncio.timeout(READY_SECONDS):
                while not (child.listens() and await says_ready(child.program.status)):
                    child.refuse_the_dead()
                    await asyncio.sleep(_PROBE_SECONDS)
        except TimeoutError as error:
            raise LocalStackError(
                f"{child.name} was not ready within {READY_SECONDS:.0f} s", f"its log is {child.log}"
            ) from error

    async def _stop(self) -> None:
        for group in reversed(self._groups):
            await asyncio.gather(*(self._end(child) for child in group))
        self._spawner.close()

    async def _end(self, child: Child) -> None:
        process, child.process, child.due = child.process, None, None
        if process is not None:
            await process.stop(signal.SIGTERM, child.program.stop_seconds)
