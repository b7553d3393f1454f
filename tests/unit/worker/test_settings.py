"""A worker's options: what the command line says, then the variables, then the defaults."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from mainspring.schema.errors import InvalidInput, InvalidSetting
from mainspring.schema.states import Lane
from mainspring.worker.process import WorkerOptions
from mainspring.worker.settings import read_lanes, read_options


def read(variables: dict[str, str] | None = None, **given: Any) -> WorkerOptions:
    """Variables without their prefix; options that are not given are None, as the command line has them."""
    options: dict[str, Any] = {
        "pool": "default",
        "lanes": None,
        "concurrency": None,
        "grace_seconds": None,
        "status": None,
    }
    prefixed = {f"MAINSPRING_{name}": value for name, value in (variables or {}).items()}
    return read_options(prefixed, **(options | given))


def test_nothing_said_is_the_defaults() -> None:
    assert read() == WorkerOptions()
    options = WorkerOptions()
    assert (options.concurrency, options.grace_seconds, options.transactions) == (100, 30.0, 10)
    assert options.lanes == tuple(Lane)


def test_the_variables_are_read() -> None:
    options = read(
        {
            "STATUS": "0.0.0.0:9465",
            "WORKER_CONCURRENCY": "7",
            "WORKER_GRACE_SECONDS": "90",
            "WORKER_TRANSACTIONS": "3",
            "TOPIC_PARTITIONS": "12",
            "TOPIC_RETENTION_HOURS": "48",
        }
    )
    assert (options.status_address, options.concurrency) == ("0.0.0.0:9465", 7)
    assert (options.grace_seconds, options.transactions) == (90.0, 3)
    assert (options.topics.partitions, options.topics.retention) == (12, timedelta(hours=48))


def test_the_command_line_comes_before_the_variables() -> None:
    variables = {"STATUS": "0.0.0.0:9465", "WORKER_CONCURRENCY": "7", "WORKER_GRACE_SECONDS": "90"}
    options = read(variables, pool="mail", concurrency=9, grace_seconds=0.0, status="[::1]:0")
    assert (options.pool, options.concurrency, options.grace_seconds) == ("mail", 9, 0.0)
    assert options.status_address == "[::1]:0"


def test_a_grace_of_zero_is_no_grace_and_not_the_default() -> None:
    assert read({"WORKER_GRACE_SECONDS": "0"}).grace_seconds == 0.0


@pytest.mark.parametrize(
    ("text", "lanes"),
    [
        ("high", (Lane.HIGH,)),
        ("low,high", (Lane.LOW, Lane.HIGH)),
        (" high , catchup ", (Lane.HIGH, Lane.CATCHUP)),
        ("high,high", (Lane.HIGH,)),
    ],
)
def test_lanes_are_read_in_their_order_each_once(text: str, lanes: tuple[Lane, ...]) -> None:
    assert read_lanes(text) == lanes
    assert read(lanes=text).lanes == lanes


@pytest.mark.parametrize(
    ("text", "wrong"), [("urgent", "urgent"), ("high,,low", ""), ("", ""), ("HIGH", "HIGH")]
)
def test_a_lane_that_is_none_is_refused_with_those_that_are(text: str, wrong: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read(lanes=text)
    assert caught.value.field == "lanes"
    assert caught.value.rule == f"{wrong!r} is not one of high, normal, low, catchup"


@pytest.mark.parametrize("pool", ["", "Mail", "a.b", "-a", "x" * 64])
def test_a_pool_that_no_topic_can_be_named_after_is_refused(pool: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read(pool=pool)
    assert caught.value.field == "pool"
    assert "1–63 lower-case letters" in caught.value.rule


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("WORKER_CONCURRENCY", "0", "'0' is not a whole number in 1–10000"),
        ("WORKER_CONCURRENCY", "10001", "'10001' is not a whole number in 1–10000"),
        ("WORKER_CONCURRENCY", "many", "'many' is not a whole number in 1–10000"),
        ("WORKER_GRACE_SECONDS", "-1", "'-1' is not a whole number in 0–86400"),
        ("WORKER_GRACE_SECONDS", "1.5", "'1.5' is not a whole number in 0–86400"),
        ("WORKER_TRANSACTIONS", "0", "'0' is not a whole number in 1–1000"),
        ("STATUS", "9465", "'9465' is not host:port; all interfaces are 0.0.0.0:port"),
        ("STATUS", "localhost:http", "'localhost:http' does not end in a port of 0–65535"),
    ],
)
def test_a_refusal_names_the_variable_and_the_rule(name: str, value: str, rule: str) -> None:
    with pytest.raises(InvalidSetting) as caught:
        read({name: value})
    assert (caught.value.field, caught.value.rule) == (f"MAINSPRING_{name}", rule)


def test_a_retention_of_topics_that_outlives_the_runs_is_refused_by_its_variable() -> None:
    with pytest.raises(InvalidSetting) as caught:
        read({"TOPIC_RETENTION_HOURS": "720"})
    assert caught.value.field == "MAINSPRING_TOPIC_RETENTION_HOURS"
    assert "shorter than runs are kept (30 days)" in caught.value.rule


def test_a_bad_address_on_the_command_line_is_refused_by_the_option() -> None:
    with pytest.raises(InvalidSetting) as caught:
        read({"STATUS": "127.0.0.1:9465"}, status="nowhere")
    assert caught.value.field == "--status"
