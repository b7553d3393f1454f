"""kill -9 of the process that runs a stack: what it leaves behind, and who clears up."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path

from mainspring.local import LocalStack, procfs
from mainspring.local.probes import etcd_answers
from tests.integration.local.clients import until
from tests.integration.local.environments import own

PARENT = """
import asyncio, json, sys
from pathlib import Path
from mainspring.local import LocalStack

async def main():
    async with LocalStack(Path(sys.argv[1])) as stack:
        for member in stack.members:
            member.pause()
        print(json.dumps([member.pid for member in stack.members]), flush=True)
        sys.stdin.readline()

asyncio.run(main())
"""


async def test_kill_9_while_everything_is_paused_leaves_nothing_behind(tmp_path: Path) -> None:
    """A stopped Postgres backend cannot notice that its postmaster is gone."""
    with subprocess.Popen(  # noqa: ASYNC220
        [sys.executable, "-c", PARENT, str(tmp_path / "data")],
        env=own(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as parent:
        assert parent.stdout is not None
        members = json.loads(await asyncio.to_thread(parent.stdout.readline))
        everyone = [*members, *(below for pid in members for below in procfs.descendants(pid))]
        assert len(everyone) > len(members)
        parent.kill()

    async def all_gone() -> bool:
        return all(procfs.started(pid) is None for pid in everyone)

    await until(all_gone)


async def test_a_server_that_lost_its_parent_is_ended_by_the_next_holder(tmp_path: Path) -> None:
    """It keeps its files locked and its port taken; who holds the directory knows that it is nobody's."""
    first = LocalStack(tmp_path / "data", postgres=False, kafka=False, environment=own())
    async with first:
        [member] = first.etcd
        command, address = member.command(), member.address
    with subprocess.Popen(command.argv, cwd=command.directory, stderr=subprocess.DEVNULL) as orphan:  # noqa: ASYNC220
        try:
            await until(lambda: etcd_answers(address))
            async with LocalStack(tmp_path / "data", postgres=False, kafka=False, environment=own()) as heir:
                assert orphan.poll() == -signal.SIGKILL
                assert heir.etcd[0].address == address
        finally:
            orphan.kill()
