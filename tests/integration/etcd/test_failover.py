"""Members that die or hang while they are being asked."""

from __future__ import annotations

import pytest

from mainspring.etcd import EtcdClient
from mainspring.local.etcd import EtcdMember
from mainspring.local.ports import free_port
from mainspring.schema.errors import EtcdUnavailable
from mainspring.settings import EtcdSettings
from tests.integration.etcd.conftest import settings_for

pytestmark = pytest.mark.usefixtures("first_member_first")


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls give up soon, where the test is about giving up."""
    monkeypatch.setattr("mainspring.etcd.caller.CALL_SECONDS", 0.5)
    monkeypatch.setattr("mainspring.etcd.caller.ATTEMPT_SECONDS", 0.5)


async def test_a_write_that_could_not_be_sent_goes_to_the_next_member(etcd: EtcdMember, prefix: str) -> None:
    nobody = f"127.0.0.1:{free_port()}"
    async with EtcdClient(EtcdSettings(endpoints=(nobody, etcd.address))) as client:
        await client.put(prefix, b"1")

        found = await client.get(prefix)

    assert found is not None


async def test_reading_and_writing_go_on_when_the_member_in_use_is_killed(
    cluster: list[EtcdMember], prefix: str
) -> None:
    async with EtcdClient(settings_for(cluster)) as client:
        await client.put(prefix + "a", b"1")
        await cluster[0].kill()

        found = await client.get(prefix + "a")
        await client.put(prefix + "b", b"2")

        assert found is not None
        assert [item.value for item in (await client.range(prefix)).items] == [b"1", b"2"]


async def test_reading_goes_on_when_the_member_in_use_hangs(cluster: list[EtcdMember], prefix: str) -> None:
    async with EtcdClient(settings_for(cluster)) as client:
        await client.put(prefix, b"1")
        cluster[0].pause()

        assert await client.get(prefix) is not None


async def test_a_write_whose_answer_is_lost_is_not_sent_again(cluster: list[EtcdMember], prefix: str) -> None:
    async with EtcdClient(settings_for(cluster)) as client:
        await client.get(prefix)
        cluster[0].pause()

        with pytest.raises(EtcdUnavailable) as unanswered:
            await client.put(prefix + "a", b"1")
        assert unanswered.value.maybe_applied

        # The next call uses the next member; whether the first one happened is the caller's to look up.
        await client.put(prefix + "b", b"2")


@pytest.mark.usefixtures("hasty")
async def test_when_no_member_can_be_reached_nothing_has_happened(etcd: EtcdMember, prefix: str) -> None:
    async with EtcdClient(settings_for([etcd])) as client:
        await client.get(prefix)
        await etcd.kill()

        with pytest.raises(EtcdUnavailable) as unreachable:
            await client.put(prefix, b"1")
        assert not unreachable.value.maybe_applied

        with pytest.raises(EtcdUnavailable):
            await client.get(prefix)


async def test_a_member_that_comes_back_is_used_again(etcd: EtcdMember, prefix: str) -> None:
    async with EtcdClient(settings_for([etcd])) as client:
        await client.put(prefix, b"1")
        await etcd.kill()
        etcd.launch()

        # Nobody listens yet: the call goes on asking until the member is there.
        assert await client.get(prefix) is not None
