"""`LocalStack`: Postgres, Kafka and etcd as real processes of this machine, started and stopped together.

Who is authoritative: the lock on the data directory says who may run a stack in it; the object that holds
the lock owns every server in it. Servers never outlive that object's process (see `process.py`), so there
is nothing to reconcile at the next start, except a server that is still dying: those are ended before ours
are started.

Start: the three parts in parallel, each with its own preparation (binaries, database, format); the first
failure cancels the others, stops what runs and is raised itself. A cancelled start (Ctrl-C) does the same.
Stop: all members in parallel; each is asked, and killed after four seconds.

A part whose variable is set (MAINSPRING_POSTGRES_DSN, MAINSPRING_KAFKA, MAINSPRING_ETCD) is somebody else's
server: it is used, neither started nor stopped, and its variables are passed on as they are.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from mainspring.local import procfs
from mainspring.local.etcd import EtcdFinder, EtcdMember, Peer
from mainspring.local.failures import ended, file_errors
from mainspring.local.hold import Hold
from mainspring.local.kafka import Broker, Node, Runtime, find_runtime
from mainspring.local.layout import Layout, Running, RunningMember
from mainspring.local.member import Member
from mainspring.local.postgres import Postgres
from mainspring.local.process import Spawner, in_thread, together
from mainspring.schema.errors import InvalidInput, LocalStackError

POSTGRES_VARIABLE = "MAINSPRING_POSTGRES_DSN"
KAFKA_VARIABLE = "MAINSPRING_KAFKA"
ETCD_VARIABLE = "MAINSPRING_ETCD"

_PROGRAMS = frozenset({"postgres", "java", "etcd"})
_EPHEMERAL_PREFIX = "mainspring-ephemeral-"
# A throw-away directory is abandoned when nobody holds it and it is older than the moment of its making.
_ABANDONED_AFTER_SECONDS = 60.0
_WATCH_SECONDS = 0.25


class LocalStack:
    """A Postgres, a Kafka cluster and an etcd cluster; `async with` starts and stops them.

    `directory` keeps the data between starts; None is a throw-away. `brokers` and `etcd` are 1 or 3.
    `environment` (default: os.environ) is where outside parts and MAINSPRING_LOCAL_… settings are looked up.
    `progress` hears one line for each slow step. Named ports belong to the first member; a second and third
    take the ones after it.
    """

    def __init__(
        self,
        directory: Path | None = None,
        *,
        brokers: int = 1,
        etcd: int = 1,
        postgres: bool = True,
        kafka: bool = True,
        environment: Mapping[str, str] | None = None,
        progress: Callable[[str], None] | None = None,
        postgres_port: int | None = None,
        kafka_port: int | None = None,
        etcd_port: int | None = None,
        kafka_java_options: str | None = None,
    ) -> None:
        _refuse_unless("brokers", brokers, (1, 3))
        _refuse_unless("etcd", etcd, (0, 1, 3))
        self.directory = directory.absolute() if directory is not None else None
        self.postgres: Postgres | None = None
        self.brokers: list[Broker] = []
        self.etcd: list[EtcdMember] = []
        self._variables = dict(os.environ if environment is None else environment)
        self._outside = outside_parts(self._variables)
        self._wanted = {
            "postgres": 1 if postgres and not self._is_outside("POSTGRES") else 0,
            "kafka": brokers if kafka and not self._is_outside("KAFKA") else 0,
            "etcd": etcd if not self._is_outside("ETCD") else 0,
        }
        self._named_ports = {"postgres": postgres_port, "kafka": kafka_port, "etcd": etcd_port}
        self._progress = progress or (lambda _: None)
        self._kafka_java_options = kafka_java_options
        self._ephemeral = directory is None
        self._hold: Hold | None = None
        self._spawner: Spawner | None = None
        self._runtime: Runtime | None = None
        self._etcd_binary: Path | None = None
        self._ready = False

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def members(self) -> list[Member]:
        """Every server of this stack, whether it runs or not."""
        return [*([self.postgres] if self.postgres else []), *self.brokers, *self.etcd]

    def environment(self) -> dict[str, str]:
        """The variables by which every Mainspring process finds this stack."""
        variables = dict(self._outside)
        if self.postgres is not None:
            variables[POSTGRES_VARIABLE] = self.postgres.dsn
        if self.brokers:
            variables[KAFKA_VARIABLE] = ",".join(broker.address for broker in self.brokers)
        if self.etcd:
            variables[ETCD_VARIABLE] = ",".join(member.address for member in self.etcd)
        return variables

    async def start(self) -> None:
        """Start everything; returns when each server has answered a real request."""
        if self._hold is not None:
            raise LocalStackError("this stack runs already", "stop it first")
        try:
            directory = self._take_directory()
            await _end_leftovers(directory)
            self._spawner = Spawner()
            self._make_members(directory, self._spawner)
            await together(self._start_postgres(), self._start_kafka(), self._start_etcd(self._spawner))
        except BaseException:
            await self.stop()
            raise
        self._ready = True
        self._publish()

    async def stop(self) -> None:
        """Stop everything, also after a failed or cancelled start; finishes even if cancelled meanwhile."""
        stopping = asyncio.ensure_future(self._stop())
        try:
            await asyncio.shield(stopping)
        except asyncio.CancelledError:
            await stopping
            raise

    async def watch(self) -> None:
        """Return never; raise when a server ends that nobody stopped."""
        while True:
            for member in self.members:
                if member.died and member.process is not None:
                    raise ended(member.name, member.log, exit_code=member.process.exit_code or 0)
            await asyncio.sleep(_WATCH_SECONDS)

    def _is_outside(self, part: str) -> bool:
        return any(name.startswith(f"MAINSPRING_{part}") for name in self._outside)

    def _take_directory(self) -> Path:
        if self._ephemeral:
            _sweep_abandoned()
            with file_errors(Path(tempfile.gettempdir())):
                self.directory = Path(tempfile.mkdtemp(prefix=_EPHEMERAL_PREFIX))
        assert self.directory is not None
        self._hold = Hold.take(self.directory)
        return self.directory

    def _make_members(self, directory: Path, spawner: Spawner) -> None:
        layout = Layout.load(directory)
        if self._wanted["postgres"]:
            port = layout.port("postgres", wanted=self._named_ports["postgres"])
            self.postgres = Postgres(
                directory / "postgres", port, spawner, variables=self._variables, progress=self._progress
            )
        if self._wanted["kafka"]:
            layout.settle("brokers", self._wanted["kafka"], directory)
            self.brokers = self._make_brokers(directory, layout, spawner)
        if self._wanted["etcd"]:
            layout.settle("etcd", self._wanted["etcd"], directory)
            self.etcd = self._make_etcd(directory, layout, spawner)
        layout.save(directory)
        for member in self.members:
            member.on_change = self._publish

    def _make_brokers(self, directory: Path, layout: Layout, spawner: Spawner) -> list[Broker]:
        nodes = [
            Node(
                number,
                layout.port(f"kafka-{number}", wanted=self._named_port("kafka", number)),
                layout.port(f"kafka-{number}-controller"),
            )
            for number in range(1, self._wanted["kafka"] + 1)
        ]
        return [
            Broker(
                directory / f"kafka-{node.number}",
                node,
                nodes,
                spawner,
                cluster_id=layout.cluster_id,
                runtime=self._found_runtime,
                progress=self._progress,
            )
            for node in nodes
        ]

    def _make_etcd(self, directory: Path, layout: Layout, spawner: Spawner) -> list[EtcdMember]:
        count = self._wanted["etcd"]
        peers = [
            Peer(
                number,
                layout.port(f"etcd-{number}", wanted=self._named_port("etcd", number)),
                layout.port(f"etcd-{number}-peer", fixed=count > 1),
            )
            for number in range(1, count + 1)
        ]
        return [
            EtcdMember(directory / peer.name, peer, peers, spawner, binary=self._found_etcd) for peer in peers
        ]

    def _named_port(self, part: str, number: int) -> int | None:
        first = self._named_ports[part]
        return None if first is None else first + number - 1

    def _found_runtime(self) -> Runtime:
        assert self._runtime is not None
        return self._runtime

    def _found_etcd(self) -> Path:
        assert self._etcd_binary is not None
        return self._etcd_binary

    async def _start_postgres(self) -> None:
        if self.postgres is not None:
            await self._start_part([self.postgres])

    async def _start_kafka(self) -> None:
        if not self.brokers:
            return
        self._runtime = await in_thread(
            lambda: find_runtime(self._variables, self._kafka_java_options, self._progress)
        )
        await self._start_part(self.brokers)
        everyone = {broker.address for broker in self.brokers}
        await together(*(broker.wait_ready(partial(broker.sees, everyone)) for broker in self.brokers))

    async def _start_etcd(self, spawner: Spawner) -> None:
        if self.etcd:
            self._etcd_binary = await EtcdFinder(self._variables, spawner, self._progress).find()
            await self._start_part(self.etcd)

    async def _start_part(self, members: list[Postgres] | list[Broker] | list[EtcdMember]) -> None:
        """Start the members of one part at once: a cluster answers only when its majority runs."""
        await together(*(member.prepare() for member in members))
        for member in members:
            self._progress(f"{member.name}: starting on {member.address}")
            member.launch()
        await together(*(member.wait_ready() for member in members))

    def _publish(self) -> None:
        """Tell `mainspring local status`, `env` and `down` what runs here."""
        if self.directory is None or self._hold is None:
            return
        members = [
            RunningMember(
                name=member.name,
                part=member.part,
                address=member.address,
                pid=member.pid,
                log=str(member.log),
            )
            for member in self.members
        ]
        variables = self.environment() if self._ready else {}
        Running(ready=self._ready, environment=variables, members=members).save(self.directory)

    async def _stop(self) -> None:
        self._ready = False
        for member in self.members:
            member.on_change = lambda: None
        await asyncio.gather(*(member.stop() for member in self.members))
        if self._spawner is not None:
            self._spawner.close()
            self._spawner = None
        self.postgres, self.brokers, self.etcd = None, [], []
        if self._hold is not None and self.directory is not None:
            Running.forget(self.directory)
            if self._ephemeral:
                await in_thread(lambda: shutil.rmtree(self.directory or "", ignore_errors=True))
            self._hold.release()
            self._hold = None


def outside_parts(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables of the servers that somebody else runs; an empty one counts as not set."""
    names = (POSTGRES_VARIABLE, f"{POSTGRES_VARIABLE}_FILE", KAFKA_VARIABLE, ETCD_VARIABLE)
    return {name: variables[name] for name in names if variables.get(name)}


def _refuse_unless(field: str, value: int, allowed: tuple[int, ...]) -> None:
    if value not in allowed:
        raise InvalidInput(field, f"{value} is not one of {', '.join(map(str, allowed))}")


async def _end_leftovers(directory: Path) -> None:
    """End what a holder killed a moment ago left dying: we hold the directory, so it belongs to nobody."""
    while leftovers := procfs.running_in(directory, _PROGRAMS):
        for pid in leftovers:
            procfs.send(pid, signal.SIGKILL)
        await asyncio.sleep(0.02)


def _sweep_abandoned() -> None:
    """Remove throw-away directories whose process was killed and so could not."""
    for place in Path(tempfile.gettempdir()).glob(f"{_EPHEMERAL_PREFIX}*"):
        try:
            found = place.stat()
            if found.st_uid != os.geteuid() or time.time() - found.st_mtime < _ABANDONED_AFTER_SECONDS:
                continue
            hold = Hold.take(place)
        except (LocalStackError, OSError):
            continue
        shutil.rmtree(place, ignore_errors=True)
        hold.release()
