"""The generated messages: of this .proto, and for the oldest protobuf that is supported."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from mainspring.etcd import wire_pb2 as wire

PROJECT = Path(__file__).parents[3]
PROTO = (PROJECT / "mainspring/etcd/wire.proto").read_text(encoding="utf-8")
GENERATED = (PROJECT / "mainspring/etcd/wire_pb2.py").read_text(encoding="utf-8")


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(".")]


def test_the_messages_were_generated_from_this_proto() -> None:
    for name, body in re.findall(r"^message (\w+) {\n(.*?)^}", PROTO, re.MULTILINE | re.DOTALL):
        without_enums = re.sub(r"enum \w+ {.*?}", "", body, flags=re.DOTALL)
        written = {
            field: int(number)
            for field, number in re.findall(r"^\s+[\w ]+ (\w+) = (\d+);", without_enums, re.MULTILINE)
        }
        message = wire.DESCRIPTOR.message_types_by_name[name]
        assert {field.name: field.number for field in message.fields} == written


def test_the_messages_load_with_the_oldest_supported_protobuf() -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (floor,) = (each.removeprefix("protobuf>=") for each in project["dependencies"] if "protobuf" in each)
    found = re.search(r"Protobuf Python Version: ([\d.]+)", GENERATED)
    assert found is not None

    assert numbers(found[1]) <= [*numbers(floor), 0]
