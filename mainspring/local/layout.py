"""What a data directory remembers between starts, and what it says about the stack that runs in it.

    layout.json    how many brokers and etcd members there are, their ports, Kafka's cluster id
    running.json   written while a stack runs: members, addresses, the variables for clients
    held-by.json   the lock, see hold.py
    postgres/  kafka-1/  etcd-1/ …  and one .log beside each

Ports are kept so that addresses survive a restart. One that was taken meanwhile is replaced, except between
the members of an etcd cluster: those know each other by their ports for good.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Self

from mainspring.local.failures import file_errors
from mainspring.local.hold import Holder
from mainspring.local.kafka import new_cluster_id
from mainspring.local.ports import free_port, is_free, require_free
from mainspring.schema.errors import LocalStackError


def write_json(path: Path, content: object) -> None:
    """Replace a file in one step; for our eyes only, since it may hold a password."""
    staging = path.with_name(path.name + ".new")
    with file_errors(path):
        descriptor = os.open(staging, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            json.dump(content, file, indent=2)
        os.replace(staging, path)


@dataclass
class Layout:
    """The shape of the stack in one directory."""

    brokers: int = 0
    etcd: int = 0
    cluster_id: str = field(default_factory=new_cluster_id)
    ports: dict[str, int] = field(default_factory=dict)

    @classmethod
    def load(cls, directory: Path) -> Self:
        try:
            return cls(**json.loads((directory / "layout.json").read_text(encoding="utf-8")))
        except FileNotFoundError:
            return cls()
        except (ValueError, TypeError) as error:
            raise LocalStackError(
                f"{directory / 'layout.json'} cannot be read", f"remove {directory} to start empty"
            ) from error

    def save(self, directory: Path) -> None:
        write_json(directory / "layout.json", asdict(self))

    def settle(self, part: str, count: int, directory: Path) -> None:
        """Write down how many members a part has; the data of one number cannot be used with another."""
        known = getattr(self, part)
        if known not in (0, count):
            option = "--brokers" if part == "brokers" else "--etcd"
            raise LocalStackError(
                f"the data in {directory} was made with {option} {known}",
                f"start it with {option} {known}, or choose another --directory",
            )
        setattr(self, part, count)

    def reserve(self, named: Mapping[str, int]) -> None:
        """Write down the ports that the user named; a listener that had one of them will get another."""
        for name, port in named.items():
            require_free(name, port)
        kept = {name: port for name, port in self.ports.items() if port not in named.values()}
        self.ports = kept | dict(named)

    def port(self, name: str, *, fixed: bool = False) -> int:
        """The port of one listener: the one it was given or had, when that is free; else another one."""
        known = self.ports.get(name)
        if known is None or not is_free(known):
            if known is not None and fixed:
                raise LocalStackError(
                    f"port {known}, by which the other members know {name}, is taken",
                    "stop the program that listens there, or choose another --directory",
                )
            self.ports[name] = free_port(avoid=self.ports.values())
        return self.ports[name]


@dataclass(frozen=True, kw_only=True)
class RunningMember:
    """One server as others may see it."""

    name: str
    part: str
    address: str
    pid: int | None
    log: str


@dataclass(frozen=True, kw_only=True)
class Running:
    """What the process that runs a stack tells others."""

    pid: int
    ready: bool
    environment: Mapping[str, str]
    members: list[RunningMember]

    @classmethod
    def load(cls, directory: Path, holder: Holder | None) -> Self | None:
        """What the holder of the directory tells; None while it, or nobody, has said anything.

        A stack that was killed could not take back what it told: only the holder's own words count.
        """
        try:
            content = json.loads((directory / "running.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        if holder is None or content["pid"] != holder.pid:
            return None
        members = [RunningMember(**member) for member in content.pop("members")]
        return cls(members=members, **content)

    def save(self, directory: Path) -> None:
        write_json(directory / "running.json", asdict(self))

    @staticmethod
    def forget(directory: Path) -> None:
        (directory / "running.json").unlink(missing_ok=True)
