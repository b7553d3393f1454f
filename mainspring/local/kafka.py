"""The embedded Kafka: one node or three, each both broker and controller (KRaft).

The quorum's voters are written in every node's configuration rather than in its metadata log, so that a node
whose port was taken since the last start simply gets another one.
"""

from __future__ import annotations

import base64
import shlex
import shutil
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from mainspring.local.failures import file_errors
from mainspring.local.jars import LIST, JarStore, read_list
from mainspring.local.java import find_java
from mainspring.local.member import Member
from mainspring.local.ports import HOST
from mainspring.local.probes import brokers_seen
from mainspring.local.process import Command, Spawner, server_environment

JAVA_OPTIONS_SETTING = "MAINSPRING_LOCAL_KAFKA_JAVA_OPTIONS"
# The first compiler stage alone starts fastest and costs throughput: a benchmark gives its own options.
JAVA_OPTIONS = "-Xms512m -Xmx512m -XX:+UseSerialGC -XX:TieredStopAtLevel=1"

# The broker's own directory, without its name: a comma, a backslash or an umlaut in the user's path would
# mean something else in a list of directories, a properties file or a Java argument.
_HERE = "/proc/self/cwd"
_PROPERTIES = f"{_HERE}/server.properties"
# Java unpacks native libraries and writes counters into the system's temporary directory; when killed, it
# leaves them there.
_JAVA_FILES = (
    f"-Dlog4j2.configurationFile={_HERE}/log4j2.properties",
    f"-Djava.io.tmpdir={_HERE}/scratch",
    "-XX:-UsePerfData",
)

_LOGGING = """\
rootLogger.level = INFO
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{ISO8601} %p %c{1} %m%n
logger.configuration.name = org.apache.kafka.common.config
logger.configuration.level = WARN
"""


@dataclass(frozen=True)
class Runtime:
    """What runs a broker: a Java, its options, Kafka's jars."""

    java: Path
    options: list[str]
    jars: list[Path]

    def command(self, main_class: str, *arguments: str, directory: Path, heap: bool) -> Command:
        options = self.options if heap else ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        classpath = ":".join(map(str, self.jars))
        return Command(
            argv=[str(self.java), *options, *_JAVA_FILES, "-cp", classpath, main_class, *arguments],
            directory=directory,
            # Java reads its own arguments in the locale's encoding: a cache below /home/jörg must be found.
            environment=server_environment(LC_ALL="C.UTF-8"),
        )


def find_runtime(
    variables: Mapping[str, str], options: str | None, progress: Callable[[str], None]
) -> Runtime:
    """Find Java, then the jars, which are downloaded the first time. Blocks."""
    java = find_java(variables)
    chosen = options or variables.get(JAVA_OPTIONS_SETTING) or JAVA_OPTIONS
    jars = JarStore(variables, progress).classpath(read_list(LIST.read_text(encoding="ascii")))
    return Runtime(java, shlex.split(chosen), jars)


@dataclass(frozen=True)
class Node:
    """A node's number and its ports."""

    number: int
    client_port: int
    controller_port: int
    forwarded_port: int = 0
    forwarder: str = ""
    """Who forwards to `forwarded_port`: clients that come that way are told this address, not ours."""

    @property
    def address(self) -> str:
        return f"{HOST}:{self.client_port}"


def configuration(node: Node, nodes: list[Node]) -> str:
    """server.properties of one node. Three nodes keep three copies of everything and need two to write."""
    copies = min(3, len(nodes))
    in_sync = 2 if copies == 3 else 1
    voters = ",".join(f"{other.number}@{HOST}:{other.controller_port}" for other in nodes)
    clients = {"CLIENTS": (node.address, node.address)}
    if node.forwarder:
        clients["FORWARDED"] = (f"{HOST}:{node.forwarded_port}", node.forwarder)
    listeners = [f"{name}://{address}" for name, (address, _) in clients.items()]
    settings = {
        "process.roles": "broker,controller",
        "node.id": node.number,
        "controller.quorum.voters": voters,
        "controller.listener.names": "CONTROLLER",
        "listeners": ",".join([*listeners, f"CONTROLLER://{HOST}:{node.controller_port}"]),
        "advertised.listeners": ",".join(f"{name}://{told}" for name, (_, told) in clients.items()),
        "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in (*clients, "CONTROLLER")),
        "inter.broker.listener.name": "CLIENTS",
        "log.dirs": f"{_HERE}/data",
        # A misspelt topic is an error, not a new topic with the wrong number of partitions.
        "auto.create.topics.enable": "false",
        "default.replication.factor": copies,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": copies,
        "offsets.topic.num.partitions": 8,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": in_sync,
        "transaction.state.log.num.partitions": 8,
        "share.coordinator.state.topic.replication.factor": copies,
        "share.coordinator.state.topic.min.isr": in_sync,
        "share.coordinator.state.topic.num.partitions": 8,
        # A killed node may come back only when its last session is over: by default after nine seconds.
        "broker.session.timeout.ms": 4000,
        "broker.heartbeat.interval.ms": 1000,
        # The first consumer of a group need not wait for others: they are on this machine.
        "group.initial.rebalance.delay.ms": 0,
        # 128 MB of the heap by default, for compacting topics that a local stack hardly has.
        "log.cleaner.dedupe.buffer.size": 16 * 1024 * 1024,
    }
    return "".join(f"{name}={value}\n" for name, value in settings.items())


def new_cluster_id() -> str:
    """A random id in the form Kafka uses: 16 bytes in URL-safe base64, no padding.

    One that begins with a hyphen is drawn again: Kafka's own tool would take it for an option.
    """
    while True:
        drawn = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not drawn.startswith("-"):
            return drawn


class Broker(Member):
    """One Kafka node. `directory` holds its configuration and `data/`."""

    part = "kafka"

    def __init__(
        self,
        directory: Path,
        node: Node,
        nodes: list[Node],
        spawner: Spawner,
        *,
        cluster_id: str,
        runtime: Callable[[], Runtime],
        progress: Callable[[str], None],
    ) -> None:
        super().__init__(f"kafka-{node.number}", node.address, directory, spawner)
        self._node = node
        self._nodes = nodes
        self._cluster_id = cluster_id
        self._runtime = runtime
        self._progress = progress

    @property
    def forwarded_address(self) -> str:
        """Where a forwarder has to connect to."""
        return f"{HOST}:{self._node.forwarded_port}"

    async def prepare(self) -> None:
        with file_errors(self.directory):
            (self.directory / "data").mkdir(mode=0o700, parents=True, exist_ok=True)
            shutil.rmtree(self.directory / "scratch", ignore_errors=True)
            (self.directory / "scratch").mkdir(mode=0o700)
            text = configuration(self._node, self._nodes)
            (self.directory / "server.properties").write_text(text, encoding="ascii")
            (self.directory / "log4j2.properties").write_text(_LOGGING, encoding="ascii")
        if not (self.directory / "data" / "meta.properties").exists():
            self._progress(f"{self.name}: formatting its storage")
            await self._format()

    async def _format(self) -> None:
        command = self._runtime().command(
            "kafka.tools.StorageTool",
            *("format", "--ignore-formatted", "-t", self._cluster_id, "-c", _PROPERTIES),
            directory=self.directory,
            heap=False,
        )
        await self.run_tool(f"{self.name}'s storage format", command)

    def command(self) -> Command:
        return self._runtime().command("kafka.Kafka", _PROPERTIES, directory=self.directory, heap=True)

    async def answers(self) -> bool:
        """Whether it answers a metadata request and counts itself among the brokers."""
        return self.address in await brokers_seen(self.address)

    async def sees(self, addresses: set[str]) -> bool:
        """Whether it knows all of these brokers."""
        return addresses <= await brokers_seen(self.address)
