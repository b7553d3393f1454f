"""Cursors: opaque, of one list only, and never more than a refusal."""

from __future__ import annotations

import pytest

from mainspring.api import paging
from mainspring.schema.errors import InvalidInput
from mainspring.schema.ids import MAXIMUM_ID


@pytest.mark.parametrize("value", [1, 77, MAXIMUM_ID])
def test_a_cursor_comes_back(value: int) -> None:
    assert paging.decode_serial("jobs", paging.encode("jobs", value)) == value


@pytest.mark.parametrize(
    "cursor",
    [
        *("", "x", "é", "====", "am9iczo", "\0"),
        paging.encode("runs", 1),
        paging.encode("jobs", ""),
        paging.encode("jobs", "-1"),
        paging.encode("jobs", "x"),
        paging.encode("jobs", "\n1"),
        paging.encode("jobs", MAXIMUM_ID + 1),
        paging.encode("jobs", "1" * 50),
    ],
)
def test_what_is_no_cursor_of_this_list(cursor: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        paging.decode_serial("jobs", cursor)
    assert refused.value.field == "cursor"


def test_one_more_than_the_page_says_that_there_is_a_next() -> None:
    assert paging.cut([1, 2, 3], 2) == ([1, 2], 2)
    assert paging.cut([1, 2], 2) == ([1, 2], None)
