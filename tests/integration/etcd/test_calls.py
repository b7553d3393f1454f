"""Every call, on a real etcd."""

from __future__ import annotations

from datetime import timedelta

import pytest

from mainspring.etcd import Compare, Delete, EtcdClient, Get, Put, Range
from mainspring.schema.errors import EtcdRefused, LeaseLost
from tests.integration.etcd.conftest import until

TEN_SECONDS = timedelta(seconds=10)
NO_SUCH_LEASE = 77


async def test_a_key_is_put_read_and_deleted(client: EtcdClient, prefix: str) -> None:
    first = await client.put(prefix + "a", b"one")
    second = await client.put(prefix + "a", b"two")

    found = await client.get(prefix + "a")

    assert found is not None
    assert (found.key, found.value, found.lease) == (prefix + "a", b"two", 0)
    assert (found.create_revision, found.mod_revision) == (first, second)
    assert second == first + 1
    assert await client.delete(prefix + "a") is True
    assert await client.delete(prefix + "a") is False
    assert await client.get(prefix + "a") is None


async def test_a_range_is_the_prefix_and_nothing_beside_it(client: EtcdClient, prefix: str) -> None:
    inside = [prefix + name for name in ("", "a", "b/c", "ü", "\U0010ffff")]
    for key in [*inside, prefix[:-1], prefix[:-1] + "0"]:
        revision = await client.put(key, b"")

    snapshot = await client.range(prefix)

    assert [item.key for item in snapshot.items] == inside
    assert snapshot.revision == revision


async def test_the_empty_prefix_is_every_key(client: EtcdClient, prefix: str) -> None:
    await client.put("\x01", b"")
    await client.put(prefix, b"")

    keys = [item.key for item in (await client.range("")).items]

    assert "\x01" in keys
    assert prefix in keys


async def test_a_foreign_key_that_is_no_text_survives_the_reading(client: EtcdClient, prefix: str) -> None:
    foreign = prefix + b"\xff\xfe".decode("utf-8", "surrogateescape")
    await client.put(foreign, b"1")

    (item,) = (await client.range(prefix)).items

    assert item.key == foreign
    assert await client.delete(item.key)


async def test_only_the_first_takes_an_absent_key(client: EtcdClient, prefix: str) -> None:
    key = prefix + "shard"
    mine, theirs = await client.grant(TEN_SECONDS), await client.grant(TEN_SECONDS)

    won = await client.transact(compare=[Compare.absent(key)], success=[Put(key, b"me", mine.id)])
    lost = await client.transact(
        compare=[Compare.absent(key)], success=[Put(key, b"them", theirs.id)], failure=[Get(key)]
    )

    assert won.succeeded
    assert not lost.succeeded
    (holder,) = lost.responses[0].items
    assert (holder.value, holder.lease, holder.create_revision) == (b"me", mine.id, won.revision)
    assert lost.revision == won.revision


async def test_each_comparison_tells_what_is_from_what_was(client: EtcdClient, prefix: str) -> None:
    key = prefix + "a"
    lease = await client.grant(TEN_SECONDS)
    created = await client.put(key, b"old")
    modified = await client.put(key, b"new", lease=lease.id)

    async def holds(condition: Compare) -> bool:
        return (await client.transact(compare=[condition], success=[])).succeeded

    assert await holds(Compare.created_at(key, created))
    assert not await holds(Compare.created_at(key, modified))
    assert await holds(Compare.modified_at(key, modified))
    assert not await holds(Compare.modified_at(key, created))
    assert await holds(Compare.value_is(key, b"new"))
    assert not await holds(Compare.value_is(key, b"old"))
    assert await holds(Compare.held_by(key, lease.id))
    assert not await holds(Compare.held_by(key, 0))
    assert not await holds(Compare.absent(key))
    assert await holds(Compare.absent(prefix + "b"))
    assert not await holds(Compare.value_is(prefix + "b", b""))


async def test_one_condition_that_fails_fails_them_all(client: EtcdClient, prefix: str) -> None:
    await client.put(prefix + "a", b"1")
    conditions = [Compare.value_is(prefix + "a", b"1"), Compare.value_is(prefix + "a", b"2")]

    result = await client.transact(compare=conditions, success=[Delete(prefix + "a")])

    assert not result.succeeded
    assert await client.get(prefix + "a") is not None


async def test_a_transaction_answers_each_operation_in_order(client: EtcdClient, prefix: str) -> None:
    await client.put(prefix + "a", b"1")
    await client.put(prefix + "b", b"2")

    result = await client.transact(
        compare=[],
        success=[Put(prefix + "c", b"3"), Range(prefix), Delete(prefix + "a"), Get(prefix + "none")],
    )

    put, found, deleted, none = result.responses
    assert [item.value for item in found.items] == [b"1", b"2", b"3"]
    assert deleted.deleted == 1
    assert put.items == none.items == ()
    assert [item.key for item in (await client.range(prefix)).items] == [prefix + "b", prefix + "c"]


async def test_a_put_under_a_lease_that_is_gone_changes_nothing(client: EtcdClient, prefix: str) -> None:
    with pytest.raises(LeaseLost) as lost:
        await client.put(prefix + "a", b"1", lease=NO_SUCH_LEASE)
    with pytest.raises(LeaseLost):
        await client.transact(
            compare=[], success=[Put(prefix + "b", b"1"), Put(prefix + "c", b"1", NO_SUCH_LEASE)]
        )

    assert lost.value.lease_id == NO_SUCH_LEASE
    assert (await client.range(prefix)).items == ()


async def test_what_etcd_will_not_do_is_a_refusal(client: EtcdClient, prefix: str) -> None:
    with pytest.raises(EtcdRefused) as refused:
        await client.transact(compare=[], success=[Put(prefix, b"1"), Put(prefix, b"2")])

    assert refused.value.status == "INVALID_ARGUMENT"


async def test_a_lease_is_granted_in_whole_seconds_rounded_up(client: EtcdClient) -> None:
    lease = await client.grant(timedelta(seconds=4.2))

    assert lease.ttl == timedelta(seconds=5)
    assert await client.keep_alive(lease.id) == lease.ttl
    left = await client.time_to_live(lease.id)
    assert left is not None
    assert left <= lease.ttl


async def test_revoking_a_lease_deletes_its_keys_and_twice_is_no_error(
    client: EtcdClient, prefix: str
) -> None:
    lease = await client.grant(TEN_SECONDS)
    await client.put(prefix + "a", b"1", lease=lease.id)

    await client.revoke(lease.id)
    await client.revoke(lease.id)

    assert await client.get(prefix + "a") is None
    assert await client.time_to_live(lease.id) is None
    with pytest.raises(LeaseLost) as lost:
        await client.keep_alive(lease.id)
    assert lost.value.lease_id == lease.id


async def test_a_lease_that_nobody_renews_takes_its_keys_along(client: EtcdClient, prefix: str) -> None:
    lease = await client.grant(timedelta(seconds=1))
    await client.put(prefix + "a", b"1", lease=lease.id)

    async def gone() -> bool:
        return await client.get(prefix + "a") is None

    await until(gone)
