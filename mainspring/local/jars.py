"""Kafka's jars: a committed list, fetched once per user, each file checked against its hash at every start.

`kafka-jars.txt` holds one `group:artifact:version sha256` per line: the runtime tree of
org.apache.kafka:kafka_2.13 as its own pom resolves, and log4j-slf4j-impl, which joins Kafka's logging to
log4j. Each is fetched alone. A resolver given several takes every one of them for a bill of materials, and
silently moves Kafka's own version.

The Maven client only warns about a bad checksum, and a cut download stays under its final name. So it works
in a directory of its own, and a file is moved into the cache only after its hash was right. A wrong one is
deleted and fetched once more, and so is a download that broke; the second failure is an error.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import traceback
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mainspring.local.cache import cache_directory, locked
from mainspring.local.failures import FILE_ERRORS, file_errors
from mainspring.schema.errors import LocalStackError

REPOSITORY_SETTING = "MAINSPRING_LOCAL_MAVEN"
LIST = Path(__file__).with_name("kafka-jars.txt")


@dataclass(frozen=True)
class Jar:
    """One line of the list."""

    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def filename(self) -> str:
        return f"{self.artifact}-{self.version}.jar"

    def __str__(self) -> str:
        return f"{self.group}:{self.artifact}:{self.version}"


def read_list(text: str) -> list[Jar]:
    """The jars of a list, in its order."""
    jars = []
    for line in text.splitlines():
        coordinate, sha256 = line.split()
        group, artifact, version = coordinate.split(":")
        jars.append(Jar(group, artifact, version, sha256))
    return jars


class JarStore:
    """The jars of one list in the user's cache. Its methods block: call them in a thread."""

    def __init__(self, variables: Mapping[str, str], progress: Callable[[str], None]) -> None:
        self._directory = cache_directory(variables) / "kafka-jars"
        self._repository = variables.get(REPOSITORY_SETTING)
        self._progress = progress

    def classpath(self, jars: list[Jar]) -> list[Path]:
        """Where all jars are, every one with the right content."""
        with locked(self._directory):
            for abandoned in self._directory.glob("fetch-*"):
                shutil.rmtree(abandoned, ignore_errors=True)
            wrong = [jar for jar in jars if not self._is_right(jar)]
            for number, jar in enumerate(wrong, start=1):
                self._progress(f"kafka: downloading {number} of {len(wrong)}: {jar.filename}")
                self._fetch_checked(jar)
        return [self._path(jar) for jar in jars]

    def _path(self, jar: Jar) -> Path:
        return self._directory / jar.filename

    def _is_right(self, jar: Jar) -> bool:
        """Whether the cached file is complete and untouched; a wrong one is deleted."""
        path = self._path(jar)
        if not path.exists():
            return False
        if sha256_of(path) == jar.sha256:
            return True
        self._progress(f"kafka: {jar.filename} in the cache is damaged, fetching it again")
        with file_errors(self._directory):
            path.unlink()
        return False

    def _fetch_checked(self, jar: Jar) -> None:
        try:
            self._fetch(jar)
        except _NotFetched as failure:
            self._progress(f"kafka: {jar.filename}: {failure}; trying once more")
            try:
                self._fetch(jar)
            except _NotFetched as again:
                raise LocalStackError(
                    f"{jar} cannot be downloaded: {again}",
                    f"check the network, or set {REPOSITORY_SETTING} to a Maven repository you trust",
                ) from again

    def _fetch(self, jar: Jar) -> None:
        with (
            file_errors(self._directory),
            tempfile.TemporaryDirectory(dir=self._directory, prefix="fetch-") as staging,
        ):
            fetched = _download(jar, Path(staging), self._repository)
            if sha256_of(fetched) != jar.sha256:
                raise _NotFetched("what came is not the expected content")
            os.replace(fetched, self._path(jar))


class _NotFetched(Exception):
    """One attempt failed; the text says how."""


def _download(jar: Jar, staging: Path, repository: str | None) -> Path:
    maven = _maven()
    remote = {"setting": repository.rstrip("/")} if repository else None
    context = maven.MavenContext(repo_cache=staging, remote_repos=remote)
    artifact = context.project(jar.group, jar.artifact).at_version(jar.version).artifact()
    try:
        return Path(artifact.resolve())
    # The client lets through whatever its HTTP library, the file system or itself raises.
    except Exception as error:
        # It closes no answer that is not a 200; forgetting its frames does, before the socket is collected.
        traceback.clear_frames(error.__traceback__)
        if isinstance(error, OSError) and error.errno in FILE_ERRORS:
            raise
        if isinstance(error, RuntimeError):
            raise _NotFetched("the repository did not send it") from error
        raise _NotFetched(f"the repository cannot be reached ({type(error).__name__})") from error


def _maven() -> Any:
    """The Maven client, imported late: it brings an HTTP stack that a warm start does not need."""
    try:
        with warnings.catch_warnings():
            # One of its dependencies warns at import about a missing XDG_RUNTIME_DIR, which nobody uses here.
            warnings.simplefilter("ignore")
            import jgo.maven as maven
    except ImportError as error:
        raise LocalStackError(
            "the Maven client that fetches Kafka is not installed", "run `pip install 'mainspring[local]'`"
        ) from error
    return maven


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
