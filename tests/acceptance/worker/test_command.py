"""`mainspring worker` as an operator meets it: what it refuses, what it says, what it serves."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from mainspring.local import LocalStack
from tests.acceptance.processes import MAINSPRING
from tests.acceptance.test_migrate import assert_refused
from tests.acceptance.worker.fleet import ROOT, Fleet
from tests.acceptance.worker.status import ask, numbers
from tests.integration.worker_builtin.receiver import Receiver, reply


def run(variables: Mapping[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    bare = {name: value for name, value in os.environ.items() if not name.startswith("MAINSPRING_")}
    return subprocess.run(
        [MAINSPRING, "worker", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env=bare | {"MAINSPRING_LOG_LEVEL": "error", "PYTHONPATH": str(ROOT)} | dict(variables),
    )


def test_help_says_what_it_does_and_what_it_takes() -> None:
    done = run({}, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    for word in ("Execute what is due", "--app", "--lanes", "--concurrency", "--grace", "SIGTERM"):
        assert word in done.stdout


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--app", "app"], "app: 'app' is not written as package.module:app"),
        (["--app", "no.such.module:app"], "app: there is no module 'no'"),
        (["--app", "tests.acceptance.worker.app:ap"], "has no ap; did you mean app?"),
        (["--app", "tests.acceptance.worker.journal:VARIABLE"], "app: "),
        (["--lanes", "high,lwo"], "lanes: 'lwo' is not one of high, normal, low, catchup"),
        (["--pool", "Default"], "pool: 'Default' is not 1–63 lower-case letters"),
        (["--status", "9090"], "--status: '9090' is not host:port"),
    ],
)
def test_a_wrong_option_is_named_with_its_rule(stack: LocalStack, arguments: list[str], line: str) -> None:
    assert_refused(run(stack.environment(), *arguments), 2, line)


@pytest.mark.parametrize("option", ["--concurrency", "--grace"])
def test_a_number_out_of_range_exits_2(stack: LocalStack, option: str) -> None:
    done = run(stack.environment(), option, "-1")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"Error: Invalid value for '{option}': -1" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("variable", "value", "rule"),
    [
        ("MAINSPRING_POSTGRES_DSN", "", "is required and not set"),
        ("MAINSPRING_KAFKA", "", "is required and not set"),
        ("MAINSPRING_WORKER_CONCURRENCY", "0", "'0' is not a whole number in 1–10000"),
        ("MAINSPRING_WORKER_GRACE_SECONDS", "soon", "'soon' is not a whole number"),
        ("MAINSPRING_HTTP_ALLOW_PRIVATE", "localhost", "'localhost' is neither all nor a network"),
    ],
)
def test_a_setting_that_is_wrong_is_named_with_its_rule(
    stack: LocalStack, variable: str, value: str, rule: str
) -> None:
    assert_refused(run(stack.environment() | {variable: value}), 2, f"{variable}: {rule}")


def test_a_database_without_the_schema_is_refused_in_one_line(stack: LocalStack, database: str) -> None:
    done = run(stack.environment() | {"MAINSPRING_POSTGRES_DSN": database})
    assert_refused(done, 1, "run `mainspring migrate`")


async def test_it_serves_its_health_and_its_numbers(fleet: Fleet) -> None:
    worker = await fleet.start()
    alive = {"alive": True, "ready": True, "reasons": []}
    assert await ask(worker, "/healthz") == await ask(worker, "/readyz") == (200, alive)
    occurrences = await fleet.register(7, payload={"seconds": 0.1})
    (await fleet.verdict(occurrences)).assert_all_succeeded()
    counted = await numbers(worker)
    assert counted['mainspring_worker_runs_ended_total{handler="work",outcome="succeeded"}'] == 7
    assert counted["mainspring_worker_runs_claimed_total"] == 7
    assert counted["mainspring_worker_runs_in_flight"] in range(8)
    fleet.assert_sound()


async def test_without_an_app_the_built_in_handlers_are_there(fleet: Fleet) -> None:
    worker = fleet.launch(app=None, variables={"MAINSPRING_HTTP_ALLOW_PRIVATE": "127.0.0.0/8"})
    await worker.introduced()
    assert worker.events("worker_started")[0].data["handlers"] == ["http", "kafka"]
    async with Receiver() as receiver:
        receiver.on("/hook", reply(200, b"thanks"))
        occurrences = await fleet.register(
            handler="http", payload={"url": f"http://127.0.0.1:{receiver.port}/hook", "body": {"a": 1}}
        )
        await fleet.settled(occurrences)
        [request] = receiver.requests
    assert (request.method, request.body) == ("POST", b'{"a":1}')
    assert request.headers["x-mainspring-attempt"] == "1"
    assert [run.status for run in await fleet.books.runs()] == ["succeeded"]
    fleet.assert_sound()


async def test_handlers_beside_the_command_are_found(fleet: Fleet, tmp_path: Path) -> None:
    lines = [
        "from mainspring.worker import Mainspring",
        "app = Mainspring()",
        "@app.handler('local')",
        "def local(context): return context.attempt",
    ]
    (tmp_path / "my_handlers.py").write_text("\n".join(lines))
    await fleet.launch(app="my_handlers:app").introduced()
    await fleet.settled(await fleet.register(handler="local"))
    assert [run.status for run in await fleet.books.runs()] == ["succeeded"]
    fleet.assert_sound()
