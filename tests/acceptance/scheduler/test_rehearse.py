"""`mainspring rehearse`, as a process: what it prints for programs and people, and how it is stopped."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path
from uuid import uuid4

import asyncpg
import pytest

from mainspring.local import LocalStack
from mainspring.registry import JobRequest, Registry
from tests.acceptance.waiting import GENEROUS_SECONDS

FROM = "2031-01-01T00:00:00Z"
JOBS = 40
PROGRAM = Path(sys.executable).with_name("mainspring")


@pytest.fixture
async def environment(stack: LocalStack, migrated: str) -> dict[str, str]:
    """A cluster with some jobs of midnight, and some of every second, in a pool of this test's own."""
    pool = f"p{uuid4().hex}"
    requests = [
        JobRequest.from_mapping({"handler": "work", "pool": pool, "schedule": schedule})
        for schedule, count in (("@daily", JOBS), ("* * * * * *", 3))
        for _ in range(count)
    ]
    async with asyncpg.create_pool(migrated, min_size=1, max_size=2) as connections:
        await Registry(connections, shards=64).create_many(1, requests)
    return os.environ | stack.environment() | {"MAINSPRING_POSTGRES_DSN": migrated, "POOL": pool}


async def start(environment: dict[str, str], *options: str) -> Process:
    return await asyncio.create_subprocess_exec(
        PROGRAM, "rehearse", *options, env=environment, stdout=PIPE, stderr=PIPE
    )


async def ended(process: Process) -> tuple[int | None, str, str]:
    async with asyncio.timeout(GENEROUS_SECONDS):
        stdout, stderr = await process.communicate()
    return process.returncode, stdout.decode(), stderr.decode()


async def test_programs_get_every_second_and_people_the_largest(environment: dict[str, str]) -> None:
    code, text, said = await ended(await start(environment, "--from", FROM, "--seconds", "5", "--json"))
    assert code == 0, said
    found = json.loads(text)
    assert (found["messages"], found["complete"], found["refused"]) == (JOBS + 3 * 5, True, 0)
    assert found["lanes"] == {f"{environment['POOL']}.normal": JOBS + 15}
    assert found["largest"]["second"] == FROM
    assert [row["messages"] for row in found["by_second"]] == [JOBS + 3, 3, 3, 3, 3]
    assert all(row["bytes"] > 48 * row["messages"] for row in found["by_second"])
    code, text, said = await ended(await start(environment, "--from", FROM, "--seconds", "2"))
    assert code == 0, said
    assert f"{JOBS + 6} messages" in text
    assert "2031-01-01T00:00:00Z" in text
    assert "The clock would have to wait" in text


async def test_an_interrupt_prints_what_there_is(environment: dict[str, str]) -> None:
    process = await start(environment, "--from", FROM, "--seconds", "86400", "--json")
    assert process.stderr is not None
    async with asyncio.timeout(GENEROUS_SECONDS):
        assert (await process.stderr.readline()).startswith(b"through ")
    process.send_signal(signal.SIGINT)
    code, text, said = await ended(process)
    assert code == 130, said
    assert "Traceback" not in said
    found = json.loads(text)
    assert found["complete"] is False
    assert found["messages"] > JOBS


@pytest.mark.parametrize(
    ("options", "complaint"),
    [(("--from", "2001-01-01T00:00:00Z"), "in the past"), (("--from", "soon"), "--from")],
)
async def test_what_cannot_be_rehearsed_is_a_wrong_request(
    environment: dict[str, str], options: tuple[str, ...], complaint: str
) -> None:
    code, text, said = await ended(await start(environment, *options))
    assert (code, text) == (2, "")
    assert complaint in said
    assert "Traceback" not in said
