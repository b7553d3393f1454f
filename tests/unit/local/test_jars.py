"""Jars against a Maven repository of our own on 127.0.0.1, through the real client."""

from __future__ import annotations

import hashlib
import threading
from collections import deque
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from mainspring.local.jars import LIST, Jar, JarStore, read_list
from mainspring.local.ports import free_port
from mainspring.schema.errors import LocalStackError

CONTENT = b"the jar's bytes" * 1000


class Quiet(SimpleHTTPRequestHandler):
    """Serves files; sends half of one and hangs up when there is a `broken` answer to give."""

    def __init__(self, *arguments: Any, broken: deque[dict[str, str]], **options: Any) -> None:
        self.broken = broken
        super().__init__(*arguments, **options)

    def do_GET(self) -> None:
        if not self.path.endswith(".jar") or not self.broken:
            super().do_GET()
            return
        self.send_response(200)
        for name, value in self.broken.popleft().items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(CONTENT[: len(CONTENT) // 2])

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


class Repository:
    """A Maven repository with one jar in it."""

    def __init__(self, root: Path) -> None:
        self.jar = Jar("org.example", "thing", "1.2", hashlib.sha256(CONTENT).hexdigest())
        self.file = root / "org" / "example" / "thing" / "1.2" / "thing-1.2.jar"
        self.file.parent.mkdir(parents=True)
        self.file.write_bytes(CONTENT)
        self._broken: deque[dict[str, str]] = deque()
        handler = partial(Quiet, directory=str(root), broken=self._broken)
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def break_next(self, headers: dict[str, str]) -> None:
        """Hang up in the middle of the next download."""
        self._broken.append(headers)


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[Repository]:
    repository = Repository(tmp_path / "repository")
    thread = threading.Thread(target=repository.server.serve_forever, args=(0.01,))
    thread.start()
    yield repository
    repository.server.shutdown()
    thread.join()
    repository.server.server_close()


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def store(tmp_path: Path, repository: Repository, said: list[str]) -> JarStore:
    variables = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "MAINSPRING_LOCAL_MAVEN": repository.url}
    return JarStore(variables, said.append)


def test_a_jar_is_downloaded_once(store: JarStore, repository: Repository, said: list[str]) -> None:
    [path] = store.classpath([repository.jar])
    assert path.read_bytes() == CONTENT
    assert said == ["kafka: downloading 1 of 1: thing-1.2.jar"]
    repository.file.unlink()
    assert store.classpath([repository.jar]) == [path]
    assert len(said) == 1


@pytest.mark.parametrize("damage", [CONTENT[:100], CONTENT[:-1] + b"!", b""])
def test_a_truncated_or_tampered_jar_in_the_cache_is_fetched_again(
    store: JarStore, repository: Repository, said: list[str], damage: bytes
) -> None:
    [path] = store.classpath([repository.jar])
    path.write_bytes(damage)
    assert store.classpath([repository.jar]) == [path]
    assert path.read_bytes() == CONTENT
    assert "kafka: thing-1.2.jar in the cache is damaged, fetching it again" in said


def test_a_damaged_jar_that_cannot_be_fetched_again_is_one_line(
    store: JarStore, repository: Repository
) -> None:
    [path] = store.classpath([repository.jar])
    path.write_bytes(b"damaged")
    repository.file.unlink()
    with pytest.raises(
        LocalStackError,
        match=r"^org\.example:thing:1\.2 cannot be downloaded: the repository did not send it; check the",
    ) as error:
        store.classpath([repository.jar])
    assert "\n" not in str(error.value)
    assert not path.exists()


def test_a_repository_that_serves_other_bytes_is_refused(store: JarStore, repository: Repository) -> None:
    repository.file.write_bytes(b"evil")
    with pytest.raises(LocalStackError, match="what came is not the expected content; check the network"):
        store.classpath([repository.jar])


@pytest.mark.parametrize("headers", [{"Content-Length": str(len(CONTENT))}, {}])
def test_a_download_that_breaks_is_tried_once_more(
    store: JarStore, repository: Repository, said: list[str], headers: dict[str, str]
) -> None:
    repository.break_next(headers)
    [path] = store.classpath([repository.jar])
    assert path.read_bytes() == CONTENT
    assert len([line for line in said if line.endswith("; trying once more")]) == 1


def test_a_download_that_breaks_twice_is_one_line(store: JarStore, repository: Repository) -> None:
    repository.break_next({"Content-Length": str(len(CONTENT))})
    repository.break_next({"Content-Length": str(len(CONTENT))})
    with pytest.raises(LocalStackError, match=r"thing:1\.2 cannot be downloaded") as error:
        store.classpath([repository.jar])
    assert "\n" not in str(error.value)


def test_a_repository_out_of_reach_is_one_line(tmp_path: Path, repository: Repository) -> None:
    nobody = f"http://127.0.0.1:{free_port()}"
    unreachable = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "MAINSPRING_LOCAL_MAVEN": nobody}
    with pytest.raises(LocalStackError, match=r"the repository cannot be reached \(ConnectionError\); check"):
        JarStore(unreachable, print).classpath([repository.jar])


def test_nothing_half_fetched_is_left_behind(store: JarStore, repository: Repository, tmp_path: Path) -> None:
    repository.file.write_bytes(b"evil")
    with pytest.raises(LocalStackError):
        store.classpath([repository.jar])
    assert [path.name for path in (tmp_path / "cache").rglob("*") if path.is_file()] == [".lock"]


def test_what_a_killed_fetch_left_behind_is_cleared_away(
    store: JarStore, repository: Repository, tmp_path: Path
) -> None:
    abandoned = tmp_path / "cache" / "mainspring" / "kafka-jars" / "fetch-abandoned"
    abandoned.mkdir(parents=True)
    (abandoned / "half.jar").touch()
    store.classpath([repository.jar])
    assert not abandoned.exists()


def test_two_processes_worth_of_fetching_at_once_agree(store: JarStore, repository: Repository) -> None:
    found: list[list[Path]] = []
    threads = [
        threading.Thread(target=lambda: found.append(store.classpath([repository.jar]))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert {path.read_bytes() for [path] in found} == {CONTENT}


def test_the_committed_list_is_complete_and_pinned() -> None:
    jars = read_list(LIST.read_text())
    names = {jar.artifact for jar in jars}
    assert {"kafka_2.13", "kafka-clients", "log4j-api", "log4j-core", "log4j-slf4j-impl"} <= names
    assert {jar.version for jar in jars if jar.group == "org.apache.kafka"} == {"4.3.1"}
    assert len({jar.filename for jar in jars}) == len(jars)
    assert all(len(jar.sha256) == 64 for jar in jars)
