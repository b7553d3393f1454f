"""docs/jobs.md knows every field, placeholder and refusal."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mainspring.registry import FIELDS, PLACEHOLDERS
from mainspring.schema import errors

PAGE = (Path(__file__).parents[3] / "docs" / "jobs.md").read_text(encoding="utf-8")
FIRST_COLUMN = re.findall(r"^\| (`[^|]*`) \|", PAGE, re.MULTILINE)
LISTED = {word for cell in FIRST_COLUMN for word in re.findall(r"`([^`]+)`", cell)}


@pytest.mark.parametrize("field", FIELDS)
def test_every_field_has_its_row(field: str) -> None:
    assert field in LISTED


@pytest.mark.parametrize("word", PLACEHOLDERS)
def test_every_placeholder_has_its_row(word: str) -> None:
    assert f"{{{{{word}}}}}" in LISTED


# The client has conflicts of its own, which are there if another test has imported it.
OURS = [each for each in errors.Conflict.__subclasses__() if each.__module__ == errors.__name__]


@pytest.mark.parametrize("conflict", OURS)
def test_every_conflict_has_its_row(conflict: type[errors.Conflict]) -> None:
    assert conflict.__name__ in LISTED
