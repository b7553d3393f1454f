"""A full disk: a real one of a few kilobytes where we may mount, else servers that say what real ones say.

Only root may mount, and not in every container. On a small disk Postgres and etcd do not even start; Kafka
starts in very little room, and ends when it has something to write.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from mainspring.local import LocalStack
from mainspring.schema.errors import LocalStackError
from tests.integration.local.environments import own

# Recorded on a real full disk.
POSTGRES_SAYS = 'FATAL:  could not write to file "pg_wal/xlogtemp.29": No space left on device'
ETCD_SAYS = '{"level":"fatal","msg":"discovery failed","error":"write wal/0.tmp: no space left on device"}'
KAFKA_SAYS = "Error while writing meta.properties file: java.io.IOException: No space left on device"


@dataclass(frozen=True)
class Disk:
    place: Path
    environment: dict[str, str]

    def fill(self) -> None:
        with suppress(OSError), (self.place / "filler").open("wb", buffering=0) as filler:
            while True:
                filler.write(bytes(512))


@pytest.fixture
def small_disk(tmp_path: Path, public_directory: Path) -> Iterator[Disk]:
    place = tmp_path / "disk"
    place.mkdir()
    if not _mount(place):
        yield Disk(place, _servers_without_room(public_directory / "programs"))
        return
    try:
        yield Disk(place, own())
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


def _mount(place: Path) -> bool:
    mount = shutil.which("mount")
    command = [mount or "false", "-t", "tmpfs", "-o", "size=500k", "tmpfs", str(place)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _servers_without_room(programs: Path) -> dict[str, str]:
    _program(programs / "initdb", "initdb (PostgreSQL) 18.6", POSTGRES_SAYS)
    _program(programs / "postgres", "postgres (PostgreSQL) 18.6", POSTGRES_SAYS)
    return own(
        MAINSPRING_LOCAL_POSTGRES_BIN=str(programs),
        MAINSPRING_LOCAL_ETCD=_program(programs / "etcd", "etcd Version: 3.6.16", ETCD_SAYS),
        MAINSPRING_JAVA=_program(programs / "java", 'openjdk version "21"', KAFKA_SAYS),
    )


def _program(path: Path, version: str, says: str) -> str:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\ncase $1 in *version) echo '{version}'; exit;; esac\necho '{says}'\nexit 1\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize("part", ["postgres", "kafka", "etcd"])
async def test_a_full_disk_is_one_line_that_says_what_to_do(small_disk: Disk, part: str) -> None:
    stack = LocalStack(
        small_disk.place / "data",
        postgres=part == "postgres",
        kafka=part == "kafka",
        etcd=1 if part == "etcd" else 0,
        environment=small_disk.environment,
    )
    told = rf"^the disk that holds {small_disk.place}/data is full; free some space and start again$"
    with pytest.raises(LocalStackError, match=told):
        await _run_until_it_fails(stack, small_disk)
    assert stack.members == []


async def _run_until_it_fails(stack: LocalStack, disk: Disk) -> None:
    async with stack, asyncio.timeout(60):
        disk.fill()
        client = AdminClient({"bootstrap.servers": stack.environment()["MAINSPRING_KAFKA"], "log_level": 0})
        client.create_topics([NewTopic("something-to-write", 1)])
        await stack.watch()
