"""`mainspring scheduler` as an operator meets it: what it refuses, what it says, what it serves."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
from collections.abc import Iterator, Mapping
from http.client import HTTPConnection
from urllib.parse import urlsplit, urlunsplit

import pytest

from mainspring.local import LocalStack
from tests.acceptance.processes import MAINSPRING
from tests.acceptance.scheduler.cluster import Cluster
from tests.acceptance.test_migrate import assert_refused
from tests.acceptance.waiting import until


def run(variables: Mapping[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    bare = {name: value for name, value in os.environ.items() if not name.startswith("MAINSPRING_")}
    return subprocess.run(
        [MAINSPRING, "scheduler", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env=bare | {"MAINSPRING_LOG_LEVEL": "error"} | dict(variables),
    )


@pytest.fixture
def taken_port() -> Iterator[int]:
    """A port of this machine that somebody else listens on."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield taken.getsockname()[1]


@pytest.mark.parametrize("variable", ["MAINSPRING_POSTGRES_DSN", "MAINSPRING_KAFKA", "MAINSPRING_ETCD"])
def test_a_setting_that_is_missing_is_named(stack: LocalStack, variable: str) -> None:
    variables = {name: value for name, value in stack.environment().items() if name != variable}
    assert_refused(run(variables), 2, f"{variable}: is required and not set")


@pytest.mark.parametrize(
    ("variable", "value", "rule"),
    [
        ("MAINSPRING_ETCD_PREFIX", "/mainspring", "does not end with /"),
        ("MAINSPRING_LEASE_SECONDS", "1", "is not a whole number in 2–60"),
        ("MAINSPRING_STATUS", "9090", "is not host:port"),
        ("MAINSPRING_TOPIC_PARTITIONS", "none", "is not a whole number"),
        ("MAINSPRING_SHARDS", "0", "is not a whole number in 1–4096"),
    ],
)
def test_a_setting_that_is_wrong_is_named_with_its_rule(
    stack: LocalStack, variable: str, value: str, rule: str
) -> None:
    done = run(stack.environment() | {variable: value})
    assert_refused(done, 2, variable)
    assert rule in done.stderr


def test_a_database_without_the_schema_is_refused_in_one_line(stack: LocalStack, database: str) -> None:
    done = run(stack.environment() | {"MAINSPRING_POSTGRES_DSN": database})
    assert_refused(done, 1, "run `mainspring migrate`")


def test_another_number_of_shards_than_the_cluster_has_is_refused(stack: LocalStack, migrated: str) -> None:
    done = run(stack.environment() | {"MAINSPRING_POSTGRES_DSN": migrated, "MAINSPRING_SHARDS": "16"})
    assert_refused(done, 1, "this process expects 16 shards, but the cluster was created with 64")


def test_a_database_that_does_not_exist_is_one_line_without_the_password(
    stack: LocalStack, migrated: str
) -> None:
    parts = urlsplit(migrated)._replace(path="/no_such_database")
    done = run(stack.environment() | {"MAINSPRING_POSTGRES_DSN": urlunsplit(parts)})
    assert_refused(done, 1, 'database "no_such_database" does not exist')
    assert f":{parts.password}@" not in done.stderr


def test_a_status_port_that_is_taken_is_refused(stack: LocalStack, migrated: str, taken_port: int) -> None:
    variables = stack.environment() | {"MAINSPRING_POSTGRES_DSN": migrated}
    done = run(variables, "--status", f"127.0.0.1:{taken_port}")
    assert_refused(done, 2, f"127.0.0.1:{taken_port} cannot be listened on")


def test_help_says_what_it_does_and_what_it_takes() -> None:
    done = run({}, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    for word in ("Lead shards", "--status", "SIGTERM", "MAINSPRING_"):
        assert word in done.stdout


async def test_it_serves_its_health_and_its_numbers(cluster: Cluster) -> None:
    [process] = await cluster.start()
    alive = await asyncio.to_thread(_get, process.status_address, "/healthz")
    ready = await asyncio.to_thread(_get, process.status_address, "/readyz")
    assert alive == ready == (200, {"alive": True, "ready": True, "reasons": []})
    assert (await asyncio.to_thread(_request, process.status_address, "/"))[0] == 404
    await until(
        lambda: _numbers(process.status_address)["mainspring_scheduler_shards_led"] == 64, "it counts 64"
    )
    numbers = await asyncio.to_thread(_numbers, process.status_address)
    for shard, row in cluster.observer.shards.items():
        assert numbers[f'mainspring_scheduler_shard_epoch{{shard="{shard}"}}'] == row.epoch


async def test_its_settings_are_logged_without_the_password(cluster: Cluster) -> None:
    [process] = await cluster.start()
    [event] = process.events("settings")
    password = urlsplit(cluster.dsn).password
    assert password
    assert ":***@" in event.data["postgres.dsn"]
    assert f":{password}@" not in process.log.read_text()


@pytest.mark.parametrize("number", ["SIGTERM", "SIGINT"])
async def test_it_ends_in_order_when_asked(cluster: Cluster, number: str) -> None:
    [process] = await cluster.start()
    assert await process.terminate(number) == 0
    assert [event.name for event in process.events()][-1] == "scheduler_stopped"
    assert not process.faults()


def _get(address: str, path: str) -> tuple[int, object]:
    status, body = _request(address, path)
    return status, json.loads(body)


def _numbers(address: str) -> dict[str, float]:
    status, body = _request(address, "/metrics")
    assert status == 200
    lines = [line.rsplit(" ", 1) for line in body.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in lines}


def _request(address: str, path: str) -> tuple[int, str]:
    connection = HTTPConnection(address, timeout=30)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()
