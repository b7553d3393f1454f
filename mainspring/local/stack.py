"""`LocalStack`: Postgres, Kafka and etcd as real processes of this machine, started and stopped together.

Who is authoritative: the lock on the data directory says who may run a stack in it; the object that holds
the lock owns every server in it. Servers never outlive that object's process (see `process.py`), so there
is nothing to reconcile at the next start, except a server that is still dying: those are ended before ours
are started.

Start: the three parts in parallel, each with its own preparation (binaries, database, format); the first
failure cancels the others, stops what runs and is raised itself. A cancelled start (Ctrl-C) does the same.
Stop: all members in parallel; each is asked, and killed after three seconds. The last of three brokers always
is: it waits for a quorum that has gone.

A part whose variable is set (MAINSPRING_POSTGRES_DSN, MAINSPRING_KAFKA, MAINSPRING_ETCD) is somebody else's
server: it must answer, is neither started nor stopped, and its variables are passed on as they are.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from mainspring.local.etcd import EtcdFinder, EtcdMember, Peer
from mainspring.local.failures import file_errors
from mainspring.local.hold import Hold
from mainspring.local.kafka import Broker, Node, Runtime, find_runtime
from mainspring.local.layout import Layout, Running, RunningMember
from mainspring.local.member import Member
from mainspring.local.outside import ETCD, KAFKA, PARTS, POSTGRES, outside_variables, require_answer
from mainspring.local.ports import HIGHEST
from mainspring.local.postgres import Postgres
from mainspring.local.process import Spawner, end_leftovers
from mainspring.local.throwaway import make_directory, throw_away
from mainspring.local.waiting import in_thread, to_the_end, together
from mainspring.schema.errors import InvalidInput, LocalStackError

_WATCH_SECONDS = 0.25


class LocalStack:
    """A Postgres, a Kafka cluster and an etcd cluster; `async with` starts and stops them.

    `directory` keeps the data between starts; None is a throw-away. `brokers` and `etcd` are 1 or 3.
    `environment` (default: os.environ) is where outside parts and MAINSPRING_LOCAL_… settings are looked up.
    `progress` hears one line for each slow step. Named ports belong to the first member; a second and third
    take the ones after it. `kafka_forwarder` is the address of somebody who forwards to a single broker's
    `forwarded_address`: whoever reaches the broker that way stays on it.
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
        kafka_forwarder: str | None = None,
    ) -> None:
        _refuse_unless("brokers", brokers, (1, 3) if kafka_forwarder is None else (1,))
        _refuse_unless("etcd", etcd, (0, 1, 3))
        self.directory = directory.absolute() if directory is not None else None
        self.postgres: Postgres | None = None
        self.brokers: list[Broker] = []
        self.etcd: list[EtcdMember] = []
        self._variables = dict(os.environ if environment is None else environment)
        self._outside = {part: outside_variables(part, self._variables) for part in PARTS}
        self._wanted = {
            POSTGRES: 1 if postgres and not self._outside[POSTGRES] else 0,
            KAFKA: brokers if kafka and not self._outside[KAFKA] else 0,
            ETCD: etcd if not self._outside[ETCD] else 0,
        }
        self._named_ports = self._name_ports(postgres_port, kafka_port, etcd_port)
        self._progress = progress or (lambda _: None)
        self._kafka_java_options = kafka_java_options
        self._kafka_forwarder = kafka_forwarder
        self._ephemeral = directory is None
        self._hold: Hold | None = None
        self._spawner: Spawner | None = None
        self._runtime: Runtime | None = None
        self._etcd_binary: Path | None = None
        self._beside: dict[str, str] = {}
        self._ready = False
        self._failed = False

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # The error names a log: it stays, also of a throw-away.
        self._failed = self._failed or isinstance(error, LocalStackError)
        await self.stop()

    @property
    def members(self) -> list[Member]:
        """Every server of this stack, whether it runs or not."""
        return [*([self.postgres] if self.postgres else []), *self.brokers, *self.etcd]

    def announce(self, variables: Mapping[str, str]) -> None:
        """Tell others these too: where that is which runs beside the servers."""
        self._beside = dict(variables)
        self._publish()

    def variables(self) -> dict[str, str]:
        """What `mainspring local env` tells."""
        return self.environment() | self._beside

    def environment(self) -> dict[str, str]:
        """The variables by which every Mainspring process finds this stack."""
        variables = self._outside[POSTGRES] | self._outside[KAFKA] | self._outside[ETCD]
        if self.postgres is not None:
            variables[POSTGRES.variable] = self.postgres.dsn
        if self.brokers:
            variables[KAFKA.variable] = ",".join(broker.address for broker in self.brokers)
        if self.etcd:
            variables[ETCD.variable] = ",".join(member.address for member in self.etcd)
        return variables

    async def start(self) -> None:
        """Start everything; returns when each server has answered a real request."""
        if self._hold is not None:
            raise LocalStackError("this stack runs already", "stop it first")
        self._failed = False
        try:
            directory = self._take_directory()
            with file_errors(directory):
                await end_leftovers(directory)
                self._spawner = Spawner()
                self._make_members(directory, self._spawner)
                await together(
                    self._ask_outside(),
                    self._start_postgres(),
                    self._start_kafka(),
                    self._start_etcd(self._spawner),
                )
                self._ready = True
                self._publish()
        except BaseException as error:
            self._failed = isinstance(error, LocalStackError)
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop everything, also after a failed or cancelled start; finishes even if cancelled meanwhile."""
        await to_the_end(self._stop())

    async def watch(self) -> None:
        """Return never; raise when a server ends that nobody stopped. A cluster may lose its minority."""
        try:
            while True:
                for member in self.members:
                    self._look_after(member)
                await asyncio.sleep(_WATCH_SECONDS)
        except LocalStackError:
            self._failed = True
            raise

    def _look_after(self, member: Member) -> None:
        try:
            member.refuse_the_dead()
        except LocalStackError as error:
            cluster = [each for each in self.members if each.part == member.part]
            if sum(each.pid is not None for each in cluster) * 2 <= len(cluster):
                raise
            self._progress(f"{error.problem}; the others go on without it")
            self._publish()

    def _name_ports(self, postgres: int | None, kafka: int | None, etcd: int | None) -> dict[str, int]:
        """The named ports by member; a part that is not started here needs none."""
        named = {}
        for part, first in ((POSTGRES, postgres), (KAFKA, kafka), (ETCD, etcd)):
            for number in range(1, self._wanted[part] + 1):
                if first is not None:
                    named[part.member(number)] = first + number - 1
        if len(set(named.values())) < len(named):
            raise InvalidInput("ports", f"{_listed(named)}: two servers cannot share one")
        if any(not 0 < port <= HIGHEST for port in named.values()):
            raise InvalidInput("ports", f"{_listed(named)}: not in 1–{HIGHEST}")
        return named

    def _take_directory(self) -> Path:
        if self._ephemeral:
            self.directory = make_directory()
        assert self.directory is not None
        self._hold = Hold.take(self.directory)
        return self.directory

    def _make_members(self, directory: Path, spawner: Spawner) -> None:
        layout = Layout.load(directory)
        layout.reserve(self._named_ports)
        if self._wanted[POSTGRES]:
            port = layout.port("postgres")
            self.postgres = Postgres(
                directory / "postgres", port, spawner, variables=self._variables, progress=self._progress
            )
        if self._wanted[KAFKA]:
            layout.settle("brokers", self._wanted[KAFKA], directory)
            self.brokers = self._make_brokers(directory, layout, spawner)
        if self._wanted[ETCD]:
            layout.settle("etcd", self._wanted[ETCD], directory)
            self.etcd = self._make_etcd(directory, layout, spawner)
        layout.save(directory)
        for member in self.members:
            member.on_change = self._publish

    def _make_brokers(self, directory: Path, layout: Layout, spawner: Spawner) -> list[Broker]:
        nodes = [
            Node(number, layout.port(f"kafka-{number}"), layout.port(f"kafka-{number}-controller"))
            for number in range(1, self._wanted[KAFKA] + 1)
        ]
        if self._kafka_forwarder is not None:
            port = layout.port("kafka-1-forwarded")
            nodes = [replace(nodes[0], forwarded_port=port, forwarder=self._kafka_forwarder)]
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
        count = self._wanted[ETCD]
        peers = [
            Peer(number, layout.port(f"etcd-{number}"), layout.port(f"etcd-{number}-peer", fixed=count > 1))
            for number in range(1, count + 1)
        ]
        return [
            EtcdMember(directory / peer.name, peer, peers, spawner, binary=self._found_etcd) for peer in peers
        ]

    def _found_runtime(self) -> Runtime:
        assert self._runtime is not None
        return self._runtime

    def _found_etcd(self) -> Path:
        assert self._etcd_binary is not None
        return self._etcd_binary

    async def _ask_outside(self) -> None:
        parts = [part for part, variables in self._outside.items() if variables]
        for part in parts:
            self._progress(f"{part.name}: using the one that {part.variable} names")
        await together(*(require_answer(part, self._outside[part]) for part in parts))

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
        variables = self.variables() if self._ready else {}
        told = Running(pid=os.getpid(), ready=self._ready, environment=variables, members=members)
        told.save(self.directory)

    async def _stop(self) -> None:
        self._ready = False
        for member in self.members:
            member.on_change = lambda: None
        await asyncio.gather(*(member.stop() for member in self.members))
        if self._spawner is not None:
            self._spawner.close()
            self._spawner = None
        self.postgres, self.brokers, self.etcd = None, [], []
        self._beside = {}
        if self._hold is not None and self.directory is not None:
            Running.forget(self.directory)
            if self._ephemeral:
                await in_thread(partial(throw_away, self.directory, keep_logs=self._failed))
            self._hold.release()
            self._hold = None


def _refuse_unless(field: str, value: int, allowed: tuple[int, ...]) -> None:
    if value not in allowed:
        raise InvalidInput(field, f"{value} is not one of {', '.join(map(str, allowed))}")


def _listed(named: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {port}" for name, port in named.items())
