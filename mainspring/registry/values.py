"""Single values of a request: each reader takes what JSON brought and gives its meaning, or refuses it.

A reader is made for a field and called with the value alone; `null` never reaches one, because it means that
the field was not given. A boolean is no number here, and neither is a number in a text.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from enum import StrEnum
from typing import Any, TypeVar

from mainspring.schema.errors import InvalidInput
from mainspring.schema.ids import parse_job_id

LONGEST_NAME = 200
MOST_PARENTS = 100
MOST_LABELS = 64
LONGEST_LABEL_KEY = 63
LONGEST_LABEL_VALUE = 200
DEEPEST_PAYLOAD = 64
"""Levels of nesting: far below the limit at which a worker's JSON reader gives up."""

_JSON = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_UNREADABLE = frozenset({"Cc", "Cs", "Zl", "Zp"})  # control characters, lone surrogates, line separators
Choice = TypeVar("Choice", bound=StrEnum)


def text(field: str, longest: int) -> Callable[[Any], str]:
    """A text that a person can read in one line."""

    def read(value: Any) -> str:
        return check_text(field, value, longest)

    return read


def whole_number(field: str, low: int, high: int) -> Callable[[Any], int]:
    """An integer within bounds."""

    def read(value: Any) -> int:
        if type(value) is not int:
            raise InvalidInput(field, f"{_shorten(value)} is not a whole number")
        if not low <= value <= high:
            raise InvalidInput(field, f"{_shorten(value)} is not in {low}–{high}")
        return value

    return read


def one_of(field: str, choices: type[Choice]) -> Callable[[Any], Choice]:
    """One of a few words, exactly as they are written."""

    def read(value: Any) -> Choice:
        try:
            return choices(value)
        except ValueError:
            known = ", ".join(choice.value for choice in choices)
            raise InvalidInput(field, f"{_shorten(value)} is not one of {known}") from None

    return read


def check_text(field: str, value: Any, longest: int) -> str:
    """A text of 1 to `longest` characters in one line, not padded with white space."""
    if not isinstance(value, str):
        raise InvalidInput(field, f"{_shorten(value)} is not a text")
    if not 1 <= len(value) <= longest:
        raise InvalidInput(field, f"has {len(value)} characters, not 1–{longest}")
    if not value.isprintable():
        _refuse_control_characters(field, value)
    if value != value.strip():
        raise InvalidInput(field, f"{_shorten(value)} begins or ends with white space")
    return value


def check_name(value: Any) -> str:
    """A job's name; not one that reads like a job's id, or a look-up could mean either."""
    name = check_text("name", value, LONGEST_NAME)
    if is_job_id(name):
        raise InvalidInput("name", f"{name!r} is spelled like a job id")
    return name


def is_name(value: str) -> bool:
    """Whether a job can have this name; Postgres cannot even be asked about some that it cannot."""
    try:
        check_name(value)
    except InvalidInput:
        return False
    return True


def is_job_id(value: str) -> bool:
    """Whether a text is a job's id in its canonical spelling."""
    if not value.startswith("j_"):
        return False
    try:
        parse_job_id(value)
    except InvalidInput:
        return False
    return True


def read_parents(value: Any) -> tuple[str, ...]:
    """Ids or names of other jobs, each once, in the order given."""
    if not isinstance(value, list | tuple):
        raise InvalidInput("after", f"{_shorten(value)} is not a list of job ids or names")
    if len(value) > MOST_PARENTS:
        raise InvalidInput("after", f"names {len(value)} jobs, more than {MOST_PARENTS}")
    return tuple(dict.fromkeys(check_text("after", parent, LONGEST_NAME) for parent in value))


def read_labels(value: Any) -> dict[str, str]:
    """Short texts by short keys."""
    labels = read_object("labels", value)
    if len(labels) > MOST_LABELS:
        raise InvalidInput("labels", f"has {len(labels)} entries, more than {MOST_LABELS}")
    return {
        check_text("labels", key, LONGEST_LABEL_KEY): _read_label(key, label) for key, label in labels.items()
    }


def read_object(field: str, value: Any) -> Mapping[str, Any]:
    """A JSON object."""
    if not isinstance(value, Mapping):
        raise InvalidInput(field, f"{_shorten(value)} is not an object")
    return value


def write_payload(value: Any) -> bytes:
    """The payload as compact JSON; refused if it is none, or is nested deeper than a worker should read."""
    _check_nesting(value)
    try:
        return _JSON.encode(value).encode()
    except UnicodeEncodeError:
        raise InvalidInput("payload", "holds half of a surrogate pair, which is no text") from None
    except (TypeError, ValueError) as error:
        raise InvalidInput("payload", f"is not JSON: {error}") from None


def nearest(word: str, known: Iterable[str]) -> str:
    """`; did you mean …?`, or nothing where no known word is close."""
    close = get_close_matches(word.lower()[:64], list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""


def _check_nesting(value: Any) -> None:
    level = [value]
    for _ in range(DEEPEST_PAYLOAD + 1):
        containers = [item for item in level if isinstance(item, dict | list | tuple)]
        if not containers:
            return
        level = [child for container in containers for child in _children(container)]
    raise InvalidInput("payload", f"is nested deeper than {DEEPEST_PAYLOAD} levels")


def _children(container: dict[Any, Any] | list[Any] | tuple[Any, ...]) -> Iterable[Any]:
    if not isinstance(container, dict):
        return container
    for key in container:
        if not isinstance(key, str):
            raise InvalidInput("payload", f"the key {_shorten(key)} is not a text")
    return container.values()


def _read_label(key: str, value: Any) -> str:
    try:
        return "" if value == "" else check_text("labels", value, LONGEST_LABEL_VALUE)
    except InvalidInput as refusal:
        raise InvalidInput("labels", f"{key}: {refusal.rule}") from None


def _refuse_control_characters(field: str, value: str) -> None:
    for character in value:
        if unicodedata.category(character) in _UNREADABLE:
            raise InvalidInput(field, f"holds the control character U+{ord(character):04X}")


def _shorten(value: Any) -> str:
    """A value as an error may show it: never long, and never by walking through a structure."""
    if isinstance(value, str):
        return repr(value if len(value) <= 40 else value[:37] + "...")
    if value is None or isinstance(value, bool | float) or (isinstance(value, int) and abs(value) < 2**64):
        return repr(value)
    return f"a value of type {type(value).__name__}"
