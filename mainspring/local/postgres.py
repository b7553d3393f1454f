"""The embedded Postgres: as which user, with which data. `postgres_binaries.py` says which binaries.

Postgres refuses to run as root, so root's stack runs it as `nobody`. The data stays where the user wants it,
also below a directory that `nobody` cannot enter. Only the last two levels belong to `nobody`; the process is
started with its working directory set to the data, by root, before the user is switched, and is told that
its data is in `/proc/self/cwd`. The kernel follows that link to the directory itself, without walking the
path. No parent is opened for others, nothing is mounted. It is done the same way for an ordinary user: one
way, always tested.

fsync stays on: what a fault test finds after a kill must mean something. The server listens on 127.0.0.1
only, and the superuser has a generated password, because a loopback port is open to every user of the
machine.
"""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
from collections.abc import Callable, Mapping
from pathlib import Path

import asyncpg

from mainspring.local.failures import file_errors
from mainspring.local.member import Member
from mainspring.local.ports import HOST
from mainspring.local.postgres_binaries import SETTING, Binaries, find_binaries, reachable_binaries
from mainspring.local.probes import postgres_answers
from mainspring.local.process import Command, Identity, Spawner, server_environment
from mainspring.local.waiting import in_thread
from mainspring.schema.errors import LocalStackError

USER = "mainspring"
DATABASE = "mainspring"
_HERE = "/proc/self/cwd"

# For a machine of two cores that also carries Kafka and etcd. Anything else may be added by hand in
# postgresql.conf; the port and the address are given on the command line.
_CONFIGURATION = """
# --- mainspring local ---
max_connections = 200
shared_buffers = 256MB
max_wal_size = 4GB
wal_compression = off
timezone = 'UTC'
log_timezone = 'UTC'
cluster_name = 'mainspring local'
"""


def unprivileged() -> Identity | None:
    """Whom Postgres runs as when we are root; None for an ordinary user, who runs it himself."""
    if os.geteuid() != 0:
        return None
    try:
        entry = pwd.getpwnam("nobody")
    except KeyError:
        return Identity(user=65534, group=65534)
    return Identity(user=entry.pw_uid, group=entry.pw_gid)


def _give(path: Path, identity: Identity) -> None:
    try:
        os.chown(path, identity.user, identity.group)
    except OSError as error:
        raise LocalStackError(
            f"this root cannot give {path} to the user nobody, who runs Postgres for root ({error.strerror})",
            "start as an ordinary user, or set MAINSPRING_POSTGRES_DSN to another server",
        ) from error


class Postgres(Member):
    """The database server. `directory` holds `data/` and the superuser's `password`."""

    part = "postgres"
    # Fast shutdown: SIGTERM would wait for every client to leave.
    stop_signal = signal.SIGINT

    def __init__(
        self,
        directory: Path,
        port: int,
        spawner: Spawner,
        *,
        variables: Mapping[str, str],
        progress: Callable[[str], None],
    ) -> None:
        super().__init__("postgres", f"{HOST}:{port}", directory, spawner)
        self._port = port
        self._variables = variables
        self._progress = progress
        self._identity = unprivileged()
        self._binaries: Binaries | None = None
        self._database_made = False

    @property
    def data(self) -> Path:
        return self.directory / "data"

    @property
    def dsn(self) -> str:
        """How to connect as the superuser to the database `mainspring`."""
        return self._dsn(DATABASE)

    def _dsn(self, database: str) -> str:
        password = (self.directory / "password").read_text(encoding="ascii").strip()
        return f"postgresql://{USER}:{password}@{self.address}/{database}"

    async def prepare(self) -> None:
        if self._binaries is None:
            self._binaries = await in_thread(self._find)
        if not self.data.exists():
            self._progress("postgres: making the database")
            await self._initialise(self._binaries)
        self._check_major(self._binaries)

    def _find(self) -> Binaries:
        found = find_binaries(self._variables)
        return found if self._identity is None else reachable_binaries(found)

    async def _initialise(self, binaries: Binaries) -> None:
        """Run initdb beside the final place and rename: an interrupted one leaves no half-made database."""
        with file_errors(self.directory):
            staging = self._empty_staging()
        command = Command(
            argv=[
                str(binaries.directory / "initdb"),
                f"--pgdata={_HERE}",
                f"--username={USER}",
                f"--pwfile={_HERE}/../password",
                "--auth=scram-sha-256",
                "--encoding=UTF8",
                "--no-locale",
            ],
            directory=staging,
            identity=self._identity,
            environment=server_environment(),
        )
        await self.run_tool("initdb", command)
        with file_errors(self.directory):
            with (staging / "postgresql.conf").open("a", encoding="utf-8") as configuration:
                configuration.write(_CONFIGURATION)
            os.rename(staging, self.data)

    def _empty_staging(self) -> Path:
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        staging = self.directory / "data.new"
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir(mode=0o700)
        password = self.directory / "password"
        with open(
            os.open(password, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="ascii"
        ) as file:
            file.write(secrets.token_urlsafe(18) + "\n")
        if self._identity is not None:
            for path in (self.directory, staging, password):
                _give(path, self._identity)
        return staging

    def _check_major(self, binaries: Binaries) -> None:
        made_by = int((self.data / "PG_VERSION").read_text(encoding="ascii"))
        if made_by != binaries.major:
            raise LocalStackError(
                f"{self.data} was made by Postgres {made_by}, but {binaries.directory} is {binaries.major}",
                f"set {SETTING} to Postgres {made_by}, or remove {self.directory} to start empty",
            )

    def command(self) -> Command:
        assert self._binaries is not None
        settings = {"port": str(self._port), "listen_addresses": HOST, "unix_socket_directories": ""}
        argv = [str(self._binaries.directory / "postgres"), "-D", _HERE]
        for name, value in settings.items():
            argv += ["-c", f"{name}={value}"]
        return Command(
            argv=argv, directory=self.data, identity=self._identity, environment=server_environment()
        )

    def launch(self) -> None:
        """Start the process, without the pid file of one that was killed.

        After a reboot that pid may be somebody else's, and Postgres would refuse to start. Nobody else runs
        here: we hold the directory, and leftovers have been ended.
        """
        with file_errors(self.directory):
            (self.data / "postmaster.pid").unlink(missing_ok=True)
        super().launch()

    async def answers(self) -> bool:
        return await self._has_database() and await postgres_answers(self.dsn)

    async def _has_database(self) -> bool:
        """Whether the server answers and has the database `mainspring`, which its first start makes."""
        if self._database_made:
            return True
        try:
            connection = await asyncpg.connect(self._dsn("postgres"), timeout=5)
        except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
            return False
        try:
            if not await connection.fetchval("SELECT 1 FROM pg_database WHERE datname = $1", DATABASE):
                await connection.execute(f"CREATE DATABASE {DATABASE}")
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
            return False
        finally:
            connection.terminate()
        self._database_made = True
        return True
