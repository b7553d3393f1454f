"""Reading a payload: every refusal names the field and the rule, and none shows a whole value.

A field that does not exist is refused, because one with a typing mistake in its name would silently not
apply. `null` counts as not given, except where any JSON value may stand.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from mainspring.registry.values import nearest
from mainspring.worker.builtin.failures import InvalidPayload

_JSON = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def read_payload(
    payload: Any, handler: str, known: Iterable[str], any_value: Iterable[str]
) -> dict[str, Any]:
    """The fields that were given; `any_value` names those for which `null` is a value."""
    if not isinstance(payload, Mapping):
        raise InvalidPayload("payload", f"is {kind_of(payload)}, not an object")
    names = tuple(known)
    for name in payload:
        if name not in names:
            rule = f"is not a field of the handler {handler}{nearest(str(name), names)}"
            raise InvalidPayload(shorten(str(name)), rule)
    kept = frozenset(any_value)
    return {name: value for name, value in payload.items() if value is not None or name in kept}


def read_text(field: str, value: Any, longest: int, shortest: int = 1) -> str:
    """A text that has an encoding, of so many characters."""
    if not isinstance(value, str):
        raise InvalidPayload(field, f"is {kind_of(value)}, not a text")
    if not shortest <= len(value) <= longest:
        raise InvalidPayload(field, f"has {len(value)} characters, not {shortest}–{longest}")
    encode_text(field, value)
    return value


def encode_text(field: str, value: str) -> bytes:
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise InvalidPayload(field, "holds half of a surrogate pair, which is no text") from None


def encode_json(field: str, value: Any) -> bytes:
    """The value as compact JSON."""
    try:
        return encode_text(field, _JSON.encode(value))
    except (TypeError, ValueError) as error:
        raise InvalidPayload(field, f"is not JSON: {error}") from None


def read_seconds(field: str, value: Any, longest: float) -> float:
    """A positive number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidPayload(field, f"is {kind_of(value)}, not a number of seconds")
    if not math.isfinite(value) or not 0 < value <= longest:
        raise InvalidPayload(field, f"is not more than 0 and at most {longest:g}")
    return float(value)


def read_object(field: str, value: Any, most: int) -> Mapping[str, Any]:
    """A JSON object with so many entries at most."""
    if not isinstance(value, Mapping):
        raise InvalidPayload(field, f"is {kind_of(value)}, not an object")
    if len(value) > most:
        raise InvalidPayload(field, f"has {len(value)} entries, more than {most}")
    return value


def one_of_both(given: Mapping[str, Any], value: str, text: str) -> bytes | None:
    """What is to be sent: a JSON value under one name or a text under the other, never both."""
    if value in given and text in given:
        raise InvalidPayload(text, f"is given beside {value}; only one of them can be sent")
    if value in given:
        return encode_json(value, given[value])
    if text in given:
        if not isinstance(given[text], str):
            raise InvalidPayload(text, f"is {kind_of(given[text])}, not a text")
        return encode_text(text, given[text])
    return None


def shorten(value: str, longest: int = 40) -> str:
    """A text as an error may show it."""
    return value if len(value) <= longest else value[: longest - 3] + "..."


def kind_of(value: Any) -> str:
    """What JSON calls a value."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true or false"
    names = {str: "a text", int: "a number", float: "a number", list: "a list", dict: "an object"}
    return names.get(type(value), f"a {type(value).__name__}")
