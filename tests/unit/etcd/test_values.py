"""Keys, prefixes and durations on their way to etcd and back."""

from __future__ import annotations

from datetime import timedelta

import pytest

from mainspring.etcd import wire_pb2 as wire
from mainspring.etcd.transactions import Compare, Delete, Get, Put, leases_in
from mainspring.etcd.values import WatchBatch, decode_key, encode_key, prefix_range, whole_seconds


@pytest.mark.parametrize(
    ("prefix", "expected"),
    [
        ("shards/", (b"shards/", b"shards0")),
        ("ü", (b"\xc3\xbc", b"\xc3\xbd")),
        ("", (b"\0", b"\0")),
        (decode_key(b"a\xff"), (b"a\xff", b"b")),
        (decode_key(b"\xff\xff"), (b"\xff\xff", b"\0")),
    ],
)
def test_a_prefix_is_the_range_up_to_the_next_key_that_has_it_not(
    prefix: str, expected: tuple[bytes, bytes]
) -> None:
    assert prefix_range(prefix) == expected


@pytest.mark.parametrize("key", [b"plain", "größe".encode(), b"\xff\x00\xfe"])
def test_every_key_survives_the_way_back(key: bytes) -> None:
    assert encode_key(decode_key(key)) == key


@pytest.mark.parametrize(("seconds", "expected"), [(3, 3), (2.001, 3), (0.2, 1), (0, 0)])
def test_a_lease_is_never_shorter_than_asked_for(seconds: float, expected: int) -> None:
    assert whole_seconds(timedelta(seconds=seconds)) == expected


def test_absent_means_never_created() -> None:
    assert Compare.absent("key").message == Compare.created_at("key", 0).message
    # The zero must be on the wire: without it etcd compares with nothing at all.
    assert Compare.absent("key").message.WhichOneof("expected") == "create_revision"


def test_the_leases_of_a_transaction_are_those_of_its_puts() -> None:
    assert leases_in([Put("a", b"", 7), Put("b", b""), Delete("c"), Get("d")]) == {7}


def test_events_seen_before_are_dropped_from_a_response() -> None:
    response = wire.WatchResponse(
        events=[wire.Event(kv=wire.KeyValue(key=b"a", mod_revision=number)) for number in (4, 5, 5, 6)]
    )

    batch = WatchBatch.read(response, 5)

    assert batch is not None
    assert [event.item.mod_revision for event in batch.events] == [5, 5, 6]
    assert batch.revision == 6
    assert WatchBatch.read(response, 7) is None
    assert WatchBatch.read(wire.WatchResponse(), 1) is None
