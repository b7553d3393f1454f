"""Requests, read: bodies within their limit and in JSON, single values checked before Postgres sees them.

Python's JSON reader takes NaN, and numbers and nesting without end: those are refused here, as what is no
JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from fastapi import Request

from mainspring.api.problems import BadRequest, TooLarge, WrongMediaType
from mainspring.registry import values
from mainspring.schedule import parse_instant
from mainspring.schema.errors import InvalidInput, NotFound
from mainspring.schema.ids import MAXIMUM_ID, RunKey, parse_job_id, parse_run_id

_FRACTION = re.compile(r"(.*T.*:\d\d)\.(\d{1,9})(.*)", re.ASCII)
_JSON_TYPES = ("application/json", "application/merge-patch+json")


async def read_body(request: Request, limit: int) -> bytes:
    """The body, if it is not too large: the rest of one that is, is not read."""
    declared = request.headers.get("content-length", "0")
    if declared.isdigit() and int(declared) > limit:
        raise _too_large(limit)
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > limit:
            raise _too_large(limit)
    return bytes(body)


async def read_object(request: Request, *, required: bool = True) -> tuple[bytes, dict[str, Any]]:
    """The body as a JSON object, and its bytes; an empty one is an empty object where none is required."""
    body = await read_body(request, request.app.state.services.settings.body_bytes)
    if not body and not required:
        return body, {}
    check_media_type(request, _JSON_TYPES)
    value = parse_json(body)
    if not isinstance(value, dict):
        raise InvalidInput("body", "is not a JSON object")
    return body, value


def check_media_type(request: Request, known: Collection[str]) -> None:
    """Refuse a body that does not say what it is.

    A page of a stranger can let a browser send a body without a type, or as a form, but not as JSON.
    """
    given = request.headers.get("content-type", "")
    if given.partition(";")[0].strip().lower() not in known:
        raise WrongMediaType("Content-Type", f"is not {' or '.join(known)}")


def parse_json(body: bytes | bytearray | memoryview) -> Any:
    """JSON in UTF-8."""
    try:
        return _DECODER.decode(str(body, "utf-8"))
    except (ValueError, RecursionError) as error:
        raise BadRequest("body", f"is not JSON: {str(error)[:200]}") from None


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


def only(given: Mapping[str, Any], known: Collection[str]) -> None:
    """Refuse a body with a field that means nothing here."""
    for name in given:
        if name not in known:
            raise InvalidInput(name[:100], f"is not a field of this request{values.nearest(name, known)}")


def flag(given: Mapping[str, Any], name: str, *, default: bool) -> bool:
    value = given.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise InvalidInput(name, "is neither true nor false")
    return value


def number(given: Mapping[str, Any], name: str, low: int, high: int, default: int) -> int:
    value = given.get(name)
    return default if value is None else values.whole_number(name, low, high)(value)


def text(given: Mapping[str, Any], name: str, longest: int) -> str | None:
    value = given.get(name)
    return None if value is None else values.check_text(name, value, longest)


def instant(given: Mapping[str, Any], name: str) -> datetime | None:
    value = given.get(name)
    return None if value is None else read_instant(name, values.check_text(name, value, 64))


def read_instant(name: str, value: str) -> datetime:
    """An RFC 3339 instant that Postgres and Python both have."""
    matched = _FRACTION.fullmatch(values.check_text(name, value, 64))
    parsed = parse_instant(value if matched is None else matched[1] + matched[3], field=name)
    if matched is not None:  # schedules have whole seconds; triggers, and clocks, have not
        parsed = parsed.replace(microsecond=int(matched[2].ljust(6, "0")[:6]))
    if not 1970 <= parsed.year <= 9998:
        raise InvalidInput(name, "is not between the years 1970 and 9998")
    return parsed


def job_id_of(name: str, value: str) -> int:
    """A job's id that was given as a filter."""
    try:
        return parse_job_id(value)
    except InvalidInput as refusal:
        raise InvalidInput(name, refusal.rule) from None


def run_key(value: str) -> RunKey:
    """A run's key out of a path: what cannot be an id is not found."""
    try:
        return parse_run_id(value)
    except InvalidInput:
        raise NotFound("run", ascii(value[:60])) from None


def serial(what: str, value: str) -> int:
    """A number out of a path, as Postgres counts rows."""
    if not (value.isascii() and value.isdigit() and len(value) <= 19 and 1 <= int(value) <= MAXIMUM_ID):
        raise NotFound(what, ascii(value[:60]))
    return int(value)


def _too_large(limit: int) -> TooLarge:
    return TooLarge("body", f"has more than {limit} bytes")
