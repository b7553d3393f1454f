"""Each server of a running stack fails alone and comes back where it was, with what it had."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from mainspring.local import LocalStack, procfs
from mainspring.local.member import Member
from mainspring.local.postgres import unprivileged
from mainspring.local.process import Command, Spawner
from mainspring.schema.errors import LocalStackError
from tests.integration.local import clients
from tests.integration.local.clients import until
from tests.integration.local.environments import own
from tests.unit.local.listener import listening

NAMES = ("postgres", "kafka-1", "etcd-1")
# For what does not depend on the kind of server: these two come back in half a second.
quick = pytest.mark.parametrize("member", ["postgres", "etcd-1"], indirect=True)


@pytest.fixture(scope="module")
def own_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStack]:
    """One that may be hurt; what stands in the environment does not matter to it."""
    directory = tmp_path_factory.mktemp("members") / "data"
    with asyncio.Runner() as runner:
        started = LocalStack(directory, environment=own())
        runner.run(started.start())
        try:
            yield started
        finally:
            runner.run(started.stop())


@pytest.fixture(params=NAMES)
async def member(own_stack: LocalStack, request: pytest.FixtureRequest) -> AsyncIterator[Member]:
    [found] = [each for each in own_stack.members if each.name == request.param]
    yield found
    if found.pid is not None:
        found.resume()
    await found.start()


async def others_answer(stack: LocalStack, member: Member) -> bool:
    return all([await other.answers() for other in stack.members if other is not member])


async def write_to(stack: LocalStack, member: Member, word: str) -> None:
    if member.part == "postgres":
        await clients.write_row(stack.environment()["MAINSPRING_POSTGRES_DSN"], word)
    elif member.part == "kafka":
        await clients.write_record(member.address, word)
    else:
        await clients.write_key(member.address, word)


async def read_from(stack: LocalStack, member: Member) -> set[str]:
    if member.part == "postgres":
        return await clients.read_rows(stack.environment()["MAINSPRING_POSTGRES_DSN"])
    if member.part == "kafka":
        return await clients.read_records(member.address)
    return await clients.read_keys(member.address)


async def test_a_stopped_member_is_gone_alone_and_comes_back_with_its_data(
    own_stack: LocalStack, member: Member
) -> None:
    await write_to(own_stack, member, "before the stop")
    address = member.address
    await member.stop()
    assert member.pid is None
    assert not await member.answers()
    assert await others_answer(own_stack, member)
    await member.start()
    assert member.address == address
    assert "before the stop" in await read_from(own_stack, member)


async def test_a_killed_member_leaves_no_process_and_comes_back_with_its_data(
    own_stack: LocalStack, member: Member
) -> None:
    await write_to(own_stack, member, "before the kill")
    pid = member.pid
    assert pid is not None
    everyone = [pid, *procfs.descendants(pid)]
    await member.kill()
    assert [one for one in everyone if procfs.started(one) is not None] == []
    assert await others_answer(own_stack, member)
    await member.start()
    assert member.pid not in (None, pid)
    assert "before the kill" in await read_from(own_stack, member)


async def test_a_paused_member_is_silent_until_it_is_resumed(own_stack: LocalStack, member: Member) -> None:
    pid = member.pid
    member.pause()
    assert not await member.answers()
    assert await others_answer(own_stack, member)
    assert member.pid == pid
    member.resume()
    await until(member.answers)
    assert member.pid == pid


async def test_a_paused_member_can_be_stopped(member: Member) -> None:
    member.pause()
    await member.stop()
    assert member.pid is None


@quick
async def test_a_paused_member_can_be_killed(member: Member) -> None:
    member.pause()
    await member.kill()
    assert member.pid is None


@quick
async def test_a_restarted_member_is_another_process_at_the_same_address(member: Member) -> None:
    pid, address = member.pid, member.address
    await member.restart()
    assert member.pid not in (None, pid)
    assert member.address == address
    assert await member.answers()


async def test_a_member_that_does_not_run_cannot_be_paused(own_stack: LocalStack) -> None:
    [etcd] = own_stack.etcd
    await etcd.stop()
    for verb in (etcd.pause, etcd.resume):
        with pytest.raises(LocalStackError, match=r"^etcd-1 does not run; start it first$"):
            verb()
    await etcd.start()


@quick
async def test_a_member_that_dies_is_reported_and_can_be_started_again(
    own_stack: LocalStack, member: Member
) -> None:
    """Postgres: backends may outlive a killed postmaster for a moment; the next start waits for their end."""
    assert member.pid is not None
    os.kill(member.pid, signal.SIGKILL)
    with pytest.raises(LocalStackError, match=rf"^{member.name} ended \(signal 9\); its log is ") as report:
        async with asyncio.timeout(20):
            await own_stack.watch()
    assert "\n" not in str(report.value)
    await member.start()
    assert await member.answers()


async def test_a_port_taken_meanwhile_is_one_line_that_names_it(member: Member) -> None:
    port = int(member.address.rpartition(":")[2])
    await member.stop()
    with (
        listening(port),
        pytest.raises(LocalStackError, match=rf"^{member.name} found its port {port} taken by another"),
    ):
        await member.start()


async def test_postgres_starts_although_its_old_pid_is_somebody_elses_now(
    own_stack: LocalStack, tmp_path: Path
) -> None:
    """As after a reboot: the file that a killed server left names a living process of the same user."""
    server = own_stack.postgres
    assert server is not None
    file = server.data / "postmaster.pid"
    pid, *rest = file.read_text().splitlines()
    await server.kill()
    spawner = Spawner()
    sleep = Command(argv=["/bin/sleep", "300"], directory=tmp_path, identity=unprivileged())
    stranger = spawner.spawn(sleep, tmp_path / "log")
    try:
        file.write_text("\n".join([str(stranger.pid), *rest, ""]))
        await server.start()
        assert server.pid != int(pid)
        assert stranger.running
    finally:
        await stranger.end()
        spawner.close()
