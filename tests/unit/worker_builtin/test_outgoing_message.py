"""The payload of `kafka`: what is not as it should be is refused with the field and the rule."""

from __future__ import annotations

from typing import Any

import pytest

from mainspring.worker.builtin import InvalidPayload
from mainspring.worker.builtin.kafka import OutgoingMessage


def test_everything_given_is_taken() -> None:
    message = OutgoingMessage.from_payload(
        {"topic": "reports.wanted", "key": "ü", "value": {"n": [1, None]}, "headers": {"Source": "cron"}}
    )
    assert (message.topic, message.key, message.value) == ("reports.wanted", "ü".encode(), b'{"n":[1,null]}')
    assert message.headers == [("Source", b"cron")]


def test_a_value_may_be_null_or_an_empty_text() -> None:
    null = OutgoingMessage.from_payload({"topic": "t", "value": None, "key": None, "value_text": None})
    assert (null.value, null.key) == (b"null", None)
    assert OutgoingMessage.from_payload({"topic": "t", "value_text": ""}).value == b""


@pytest.mark.parametrize(
    ("changes", "field", "rule"),
    [
        ({"topic": None}, "topic", "is missing"),
        ({"topic": 5}, "topic", "is a number, not a text"),
        ({"topic": ""}, "topic", "0 characters"),
        ({"topic": "x" * 250}, "topic", "250 characters"),
        ({"topic": "a b"}, "topic", "letters, digits"),
        ({"topic": "ü"}, "topic", "letters, digits"),
        ({"topic": ".."}, "topic", "letters, digits"),
        ({"topic": "mainspring.default.normal"}, "topic", "begins with mainspring."),
        ({"topic": "mainspring."}, "topic", "begins with mainspring."),
        ({"topic": "__consumer_offsets"}, "topic", "begins with __"),
        ({"key": 5}, "key", "is a number, not a text"),
        ({"key": ""}, "key", "0 characters"),
        ({"value_text": "b"}, "value_text", "beside value"),
        ({"value": "\ud800"}, "value", "surrogate"),
        ({"headers": []}, "headers", "is a list, not an object"),
        ({"headers": {"a": None}}, "headers.a", "is null, not a text"),
        ({"headers": {"": "b"}}, "headers.", "0 characters"),
        ({"headers": {"Idempotency-Key": "b"}}, "headers.Idempotency-Key", "set by the handler"),
        ({"headers": {"mainspring-run": "b"}}, "headers.mainspring-run", "set by the handler"),
        ({"partition": 1}, "partition", "is not a field of the handler kafka"),
    ],
)
def test_what_breaks_a_rule_is_refused_by_field_and_rule(
    changes: dict[str, Any], field: str, rule: str
) -> None:
    with pytest.raises(InvalidPayload) as refused:
        OutgoingMessage.from_payload({"topic": "t", "value": 1} | changes)
    assert refused.value.field == field
    assert rule in refused.value.rule


def test_a_message_without_a_value_is_refused() -> None:
    with pytest.raises(InvalidPayload) as refused:
        OutgoingMessage.from_payload({"topic": "t"})
    assert refused.value.field == "value"
