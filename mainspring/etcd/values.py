"""What etcd holds, as callers see it: keys are text, values bytes, durations `timedelta`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Self

from mainspring.etcd import wire_pb2 as wire
from mainspring.schema.errors import LeaseLost


@dataclass(frozen=True, slots=True)
class KeyValue:
    """One key. `lease` is 0 for a key that no lease holds."""

    key: str
    value: bytes
    create_revision: int
    mod_revision: int
    lease: int

    @classmethod
    def read(cls, found: wire.KeyValue) -> Self:
        return cls(decode_key(found.key), found.value, found.create_revision, found.mod_revision, found.lease)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All keys of a prefix at one revision; a watch from `revision + 1` misses nothing after it."""

    revision: int
    items: tuple[KeyValue, ...]


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease as granted; etcd may grant a longer one than was asked for."""

    id: int
    ttl: timedelta


@dataclass(frozen=True, slots=True)
class Event:
    """A key was put, or deleted: then `item` has nothing but the key and the revision of its deletion."""

    item: KeyValue
    deleted: bool


@dataclass(frozen=True, slots=True)
class WatchBatch:
    """Events in order. A revision is never split: `revision`, the last one, is here with all its events."""

    revision: int
    events: tuple[Event, ...]

    @classmethod
    def read(cls, found: wire.WatchResponse, from_revision: int) -> Self | None:
        """What of a response happened at `from_revision` or later; None if nothing did."""
        events = tuple(
            Event(KeyValue.read(each.kv), each.type == wire.Event.DELETE)
            for each in found.events
            if each.kv.mod_revision >= from_revision
        )
        return cls(events[-1].item.mod_revision, events) if events else None


def encode_key(key: str) -> bytes:
    return key.encode("utf-8", "surrogateescape")


def decode_key(key: bytes) -> str:
    """A foreign key below our prefix may be no UTF-8; it must not break the reader."""
    return key.decode("utf-8", "surrogateescape")


def prefix_range(prefix: str) -> tuple[bytes, bytes]:
    """The first key with this prefix and the first after the last; the empty prefix is every key."""
    first = encode_key(prefix)
    stem = first.rstrip(b"\xff")
    if not stem:
        return first or b"\0", b"\0"
    return first, stem[:-1] + bytes([stem[-1] + 1])


def whole_seconds(ttl: timedelta) -> int:
    """etcd counts leases in whole seconds: rounded up, so that nobody gets less than asked for."""
    return -(-ttl // timedelta(seconds=1))


def granted(answer: wire.LeaseGrantResponse) -> Lease:
    return Lease(answer.id, timedelta(seconds=answer.ttl))


def renewed(lease_id: int, answer: wire.LeaseKeepAliveResponse) -> timedelta:
    """The lease's new life. etcd says by a life of zero, not by an error, that it is gone."""
    if answer.ttl <= 0:
        raise LeaseLost(lease_id)
    return timedelta(seconds=answer.ttl)
