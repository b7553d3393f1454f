"""Logs are one JSON object a line off a terminal, readable on one."""

from __future__ import annotations

import io
import json
import logging
import os
from collections.abc import Iterator

import pytest
import structlog

from mainspring import logs
from mainspring.settings import LogSettings


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def restored_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers, root.level = handlers, level
    structlog.reset_defaults()


def test_off_a_terminal_every_event_is_one_json_object() -> None:
    stream = io.StringIO()
    logs.configure(LogSettings(), stream)
    structlog.get_logger("mainspring.test").info("bucket_published", shard=7, runs=812)
    (line,) = stream.getvalue().splitlines()
    event = json.loads(line)
    assert event.pop("timestamp").endswith("Z")
    assert event == {
        "event": "bucket_published",
        "level": "info",
        "logger": "mainspring.test",
        "shard": 7,
        "runs": 812,
    }


def test_a_terminal_gets_readable_lines() -> None:
    stream = Terminal()
    logs.configure(LogSettings(), stream)
    structlog.get_logger().info("bucket_published", shard=7)
    assert "bucket_published" in stream.getvalue()
    with pytest.raises(json.JSONDecodeError):
        json.loads(stream.getvalue())


def test_a_chosen_format_beats_the_terminal() -> None:
    stream = Terminal()
    logs.configure(LogSettings(format="json"), stream)
    structlog.get_logger().info("started")
    assert json.loads(stream.getvalue())["event"] == "started"


def test_the_level_holds_for_ours_and_for_libraries() -> None:
    stream = io.StringIO()
    logs.configure(LogSettings(level="warning"), stream)
    structlog.get_logger().info("quiet")
    logging.getLogger("library").info("quiet too")
    logging.getLogger("library").warning("said %s", "once")
    (line,) = stream.getvalue().splitlines()
    assert json.loads(line)["event"] == "said once"


def test_an_exception_is_data_in_json() -> None:
    stream = io.StringIO()
    logs.configure(LogSettings(), stream)
    try:
        os.environ["MAINSPRING_NO_SUCH_VARIABLE"]
    except KeyError:
        structlog.get_logger().exception("feed_failed")
    (line,) = stream.getvalue().splitlines()
    assert json.loads(line)["exception"][0]["exc_type"] == "KeyError"
