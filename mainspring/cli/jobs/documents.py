"""Jobs in files: YAML or JSON, one job or many, files, directories and stdin.

    a mapping             one job
    a list                jobs
    {jobs: [...]}         jobs
    several documents     each of these, separated by ---

YAML is read as people mean it: an instant stays the text that was written (the API reads it, in the job's
time zone), `on` and `no` are texts, `1:30` is no number, and a key that stands twice is an error instead of
the last one winning.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from mainspring.schema.errors import InvalidInput

SUFFIXES = (".yaml", ".yml", ".json")


@dataclass(frozen=True, slots=True)
class Document:
    """One job, and where it stands."""

    source: str
    fields: Mapping[str, Any]


class _Loader(yaml.SafeLoader):
    """YAML 1.2's core words, and no key twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002  (as its parent)
        seen = set[str]()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                line = key.start_mark.line + 1
                raise yaml.constructor.ConstructorError(
                    None, None, f"{key.value} stands twice, at line {line}"
                )
            seen.add(getattr(key, "value", "") if isinstance(key, yaml.ScalarNode) else "")
        return dict(super().construct_mapping(node, deep))


_Loader.yaml_implicit_resolvers = {}
for _tag, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+", list("-+0123456789")),
    (
        "float",
        r"[-+]?(?:\.[0-9]+|[0-9]+\.[0-9]*)(?:[eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+",
        list("-+.0123456789"),
    ),
    ("merge", r"<<", ["<"]),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"^(?:{_pattern})$"), _first)


def read_documents(places: Sequence[str]) -> list[Document]:
    """The jobs of files, of the files in directories, and of stdin (`-`), in order."""
    return [document for place in places for document in _read_place(place)]


def read_value(text: str, field: str) -> Any:
    """One value as YAML has it: `3`, `true`, `[a, b]`, `{gap: skip}`, or a text."""
    try:
        return yaml.load(text, _Loader)  # noqa: S506  (a safe loader)
    except yaml.YAMLError as error:
        raise InvalidInput(field, f"cannot be read: {_line(error)}") from None


def _read_place(place: str) -> Iterator[Document]:
    if place == "-":
        yield from _read_text(sys.stdin.read(), "stdin")
        return
    path = Path(place)
    if not path.is_dir():
        yield from _read_file(path)
        return
    files = sorted(each for each in path.rglob("*") if each.suffix in SUFFIXES and each.is_file())
    if not files:
        raise InvalidInput(place, f"has no files that end with {', '.join(SUFFIXES)}")
    for file in files:
        yield from _read_file(file)


def _read_file(path: Path) -> Iterator[Document]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(str(path), f"cannot be read: {error}") from None
    yield from _read_text(text, str(path))


def _read_text(text: str, source: str) -> Iterator[Document]:
    for content in _parse(text, source):
        if content is not None:
            yield from _jobs(content, source)


def _parse(text: str, source: str) -> list[Any]:
    """JSON first: it may have tabs, which YAML has not."""
    try:
        return [json.loads(text, object_pairs_hook=_unique)]
    except ValueError:
        pass
    try:
        return list(yaml.load_all(text, _Loader))
    except yaml.YAMLError as error:
        raise InvalidInput(source, f"is neither YAML nor JSON: {_line(error)}") from None


def _jobs(content: Any, source: str) -> Iterator[Document]:
    if isinstance(content, dict) and set(content) == {"jobs"}:
        content = content["jobs"]
    for number, fields in enumerate(content if isinstance(content, list) else [content], 1):
        place = f"{source}, job {number}" if isinstance(content, list) else source
        if not isinstance(fields, dict):
            raise InvalidInput(place, "is not a job: it has no fields")
        yield Document(place, fields)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    for name in names:
        if names.count(name) > 1:
            raise InvalidInput(name, "stands twice in one object")
    return dict(pairs)


def _line(error: yaml.YAMLError) -> str:
    return " ".join(str(error).split())
