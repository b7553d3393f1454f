"""Pages: at most so many things, and an opaque cursor behind which the next page begins.

A cursor names the last thing of its page, not a number of things to pass over: what is inserted or removed
meanwhile neither repeats nor hides anything.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Annotated, Any, TypeVar

from fastapi import Query

from mainspring.schema.errors import InvalidInput
from mainspring.schema.ids import MAXIMUM_ID

LARGEST_PAGE = 1000
DEFAULT_PAGE = 100
LONGEST_CURSOR = 400

Limit = Annotated[int, Query(ge=1, le=LARGEST_PAGE, description="How many at most.")]
Cursor = Annotated[
    str | None, Query(max_length=LONGEST_CURSOR, description="`next_cursor` of the page before.")
]
Item = TypeVar("Item")


def encode(kind: str, value: str | int) -> str:
    """A cursor of a list of this kind."""
    return base64.urlsafe_b64encode(f"{kind}:{value}".encode()).decode("ascii").rstrip("=")


def decode(kind: str, cursor: str) -> str:
    """The value in a cursor; refused if it is none, or another list's."""
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        found, _, value = base64.b64decode(padded, altchars=b"-_", validate=True).decode().partition(":")
    except (ValueError, binascii.Error):
        raise _refusal() from None
    if found != kind or not value or not value.isprintable():
        raise _refusal()
    return value


def decode_serial(kind: str, cursor: str | None, start: int = 0) -> int:
    """A cursor that is a number; `start` where there is none."""
    if cursor is None:
        return start
    value = decode(kind, cursor)
    if not (value.isascii() and value.isdigit() and len(value) <= 19 and int(value) <= MAXIMUM_ID):
        raise _refusal()
    return int(value)


def cut(found: Sequence[Item], limit: int) -> tuple[Sequence[Item], Item | None]:
    """Of one more than the page holds: the page, and its last item if there is a next page."""
    return (found[:limit], found[limit - 1]) if len(found) > limit else (found, None)


def page(items: list[Any], cursor: str | None, **more: Any) -> dict[str, Any]:
    """The answer of a list."""
    return {"items": items, "next_cursor": cursor, **more}


def _refusal() -> InvalidInput:
    return InvalidInput("cursor", "is not a cursor of this list")
