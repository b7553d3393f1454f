"""Run Mainspring as an ordinary user, also when the tests are root's.

An ordinary user must read the interpreter, the installed packages and the checkout, and any of them may lie
below a directory that is closed to others, such as /root. Whatever does is linked (copied, where links are
impossible) into a directory that everybody can enter: the same files, reached by another path. Where the
tests run as an ordinary user already, nobody is switched.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import click

import mainspring
from mainspring.local.cache import cache_directory
from mainspring.local.postgres import unprivileged
from mainspring.local.postgres_binaries import others_reach
from tests.integration.local.environments import own

_MAIN = "from mainspring.cli.main import main; main()"


@dataclass(frozen=True)
class OrdinaryUser:
    """Somebody who is not root, with a home of his own."""

    user: int
    group: int
    home: Path
    python: Path
    import_path: str

    def start(self, *arguments: str, stderr: IO[bytes], **variables: str) -> subprocess.Popen[bytes]:
        """`mainspring ARGUMENT…` as this user."""
        root = os.geteuid() == 0
        return subprocess.Popen(
            [str(self.python), "-c", _MAIN, *arguments],
            cwd=self.home,
            env=self._environment() | variables,
            stderr=stderr,
            user=self.user if root else None,
            group=self.group if root else None,
            extra_groups=[] if root else None,
        )

    def _environment(self) -> dict[str, str]:
        variables = own(HOME=str(self.home), PYTHONPATH=self.import_path, PYTHONDONTWRITEBYTECODE="1")
        variables.pop("XDG_CACHE_HOME", None)
        libraries = self.python.parent.parent / "lib"
        if any(libraries.glob("libpython*")):
            variables["LD_LIBRARY_PATH"] = str(libraries)
        return variables


def make_ordinary_user(public: Path) -> OrdinaryUser:
    who = unprivileged()
    user, group = (os.getuid(), os.getgid()) if who is None else (who.user, who.group)
    packages = _reachable(Path(click.__file__).parents[1], public / "packages")
    checkout = _reachable(Path(mainspring.__file__).parent, public / "checkout" / "mainspring").parent
    home = public / "home"
    _give_downloads(home)
    for path in (home, *home.rglob("*")):
        os.chown(path, user, group)
    return OrdinaryUser(user, group, home, _reachable_python(public / "python"), f"{packages}:{checkout}")


def _give_downloads(home: Path) -> None:
    """What this machine has downloaded and built already need not be fetched again."""
    home.mkdir(mode=0o700)
    cache = cache_directory(os.environ)
    if cache.exists():
        shutil.copytree(cache, home / ".cache" / "mainspring")


def _reachable_python(copy: Path) -> Path:
    python = Path(sys.executable).resolve()
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    library = Path(sys.base_prefix) / "lib" / version
    if _is_reachable(python) and _is_reachable(library):
        return python
    _link_tree(library, copy / "lib" / version, "site-packages", "test")
    for shared in library.parent.glob("libpython*"):
        link(str(shared), str(copy / "lib" / shared.name))
    (copy / "bin").mkdir()
    link(str(python), str(copy / "bin" / python.name))
    return copy / "bin" / python.name


def _reachable(tree: Path, copy: Path) -> Path:
    if not _is_reachable(tree):
        _link_tree(tree, copy)
        return copy
    return tree


def _is_reachable(path: Path) -> bool:
    return os.geteuid() != 0 or others_reach(path)


def _link_tree(tree: Path, copy: Path, *left_out: str) -> None:
    shutil.copytree(tree, copy, symlinks=True, copy_function=link, ignore=shutil.ignore_patterns(*left_out))
    copy.chmod(0o755)


def link(source: str, target: str) -> None:
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        shutil.copy2(source, target, follow_symlinks=False)
