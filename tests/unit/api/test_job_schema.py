"""The schema in the OpenAPI document says of each field what its reader does, and leaves no field out."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest

from mainspring.api.job_schema import job_changes, job_request, properties
from mainspring.registry import FIELDS
from mainspring.registry.definition import _READERS
from mainspring.schema.errors import InvalidInput
from tests.unit.registry.test_definition import EVERY_FIELD, WEEKLY_REPORT

NUMBERS = [name for name, schema in properties().items() if "minimum" in schema]
TEXTS = [name for name, schema in properties().items() if "maxLength" in schema]
WORDS = [name for name, schema in properties().items() if "enum" in schema]


def fits(name: str, value: Any) -> bool:
    return jsonschema.Draft202012Validator(properties()[name]).is_valid(value)


def is_read(name: str, value: Any) -> bool:
    try:
        _READERS[name](value)
    except InvalidInput:
        return False
    return True


def test_it_has_every_field_and_no_other() -> None:
    assert tuple(sorted(properties())) == tuple(sorted(FIELDS))


@pytest.mark.parametrize("name", NUMBERS)
def test_the_bounds_of_numbers_are_the_readers(name: str) -> None:
    low, high = properties()[name]["minimum"], properties()[name]["maximum"]
    for value in (low, high, low - 1, high + 1, True, "3", 1.5):
        assert fits(name, value) == is_read(name, value), value


@pytest.mark.parametrize("name", TEXTS)
def test_the_bounds_of_texts_are_the_readers(name: str) -> None:
    longest = properties()[name]["maxLength"]
    if name != "timezone":
        assert is_read(name, "a" * longest)
    for value in ("", "a" * (longest + 1), 3, True, ["a"]):
        assert not fits(name, value)
        if (name, value) != ("schedule", ""):  # refused later, as an expression
            assert not is_read(name, value), value


@pytest.mark.parametrize("name", WORDS)
def test_the_words_are_the_readers(name: str) -> None:
    for word in properties()[name]["enum"]:
        assert word is None or is_read(name, word)
    assert not is_read(name, "nonsense")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("priority", value) for value in (0, 9, 10, -1, "high", "normal", "low", "urgent", True)),
        *(
            ("dst", value)
            for value in ({}, {"gap": "skip"}, {"gap": None}, {"gap": "x"}, {"hole": "skip"}, 3)
        ),
        *(("after", value) for value in ([], ["a"], ["a"] * 101, [""], [1], "a")),
        *(("labels", value) for value in ({}, {"k": "v"}, {"k": ""}, {"": "v"}, {"k": 1}, {"k" * 64: "v"})),
        ("labels", {str(number): "v" for number in range(65)}),
        *(("pool", value) for value in ("a", "A", "a-", "a" * 63, "a" * 64)),
    ],
)
def test_everything_else_is_as_its_reader_takes_it(name: str, value: Any) -> None:
    if name == "after" and len(value) > 100:  # the reader drops repetitions after it has counted
        assert not fits(name, value)
    assert fits(name, value) == is_read(name, value)


def test_what_may_be_left_out_may_be_null() -> None:
    assert all(fits(name, None) for name in FIELDS)


def test_the_bodies_of_the_pages_fit() -> None:
    request = jsonschema.Draft202012Validator(job_request())
    for body in (WEEKLY_REPORT, EVERY_FIELD):
        assert request.is_valid(body)
    for body in (
        {},
        {"name": "x"},
        {"name": "x", "schedule": "@daily", "after": ["y"]},
        {"schedule": "@daily"},
    ):
        assert not request.is_valid(body)
    assert jsonschema.Draft202012Validator(job_changes()).is_valid({"priority": None})
