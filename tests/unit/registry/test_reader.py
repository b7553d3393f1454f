"""A reader of many makes of each body what `from_mapping` makes of it, or refuses what it refuses."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from mainspring.registry import JobRequest
from mainspring.registry.reader import RequestReader
from mainspring.schema.errors import InvalidInput

NAMES = st.sampled_from(["a", "b", "", " a", 3, None, "j_0000000000001", "x" * 201])
BODIES = st.fixed_dictionaries(
    {},
    optional={
        "name": NAMES,
        "handler": st.sampled_from(["h", None, ""]),
        "schedule": st.sampled_from(["@daily", "every 5m", "2030-01-01T00:00:00Z", None]),
        "payload": st.sampled_from([None, 1, {"a": [1]}, float("nan"), "x" * 600_000, "x" * 1_000_000]),
        "idempotency_key_template": st.sampled_from(["{{name}}-{{date}}", "{{week}}", "{{no}}"]),
        "max_retries": st.sampled_from([0, 1, True, 1.0, "1"]),
        "after": st.sampled_from([[], ["p"], None]),
        "labels": st.sampled_from([{}, {"k": "v"}]),
    },
)


def read(reader: Any, body: dict[str, Any]) -> Any:
    try:
        return reader(body)
    except InvalidInput as refusal:
        return refusal.field, refusal.rule


@settings(max_examples=300, deadline=None)
@given(st.lists(BODIES, min_size=1, max_size=8))
def test_it_is_from_mapping_whatever_came_before(bodies: list[dict[str, Any]]) -> None:
    reader = RequestReader()
    for body in bodies * 2:
        asked, expected = read(reader.read, body), read(JobRequest.from_mapping, body)
        if isinstance(expected, JobRequest) or isinstance(asked, JobRequest):
            assert asked == expected
        else:  # of several rules that are broken, another one may be named
            assert isinstance(asked, tuple)


def test_what_is_alike_is_read_once() -> None:
    reader = RequestReader()
    first = reader.read({"name": "a", "schedule": "@daily", "labels": {"k": "v"}})
    second = reader.read({"name": "b", "schedule": "@daily", "labels": {"k": "v"}, "payload": 2})
    assert second.labels is first.labels
    assert (second.name, second.handler, second.payload_json) == ("b", "b", b"2")
