"""What a transaction compares and does, as values.

    won = await client.transact(
        compare=[Compare.absent(key)],
        success=[Put(key, me, lease)],
        failure=[Get(key)],
    )

etcd takes at most 128 operations in one transaction (its `--max-txn-ops`), and one write per key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self, TypeAlias

from mainspring.etcd import wire_pb2 as wire
from mainspring.etcd.values import KeyValue, encode_key, prefix_range


@dataclass(frozen=True, slots=True)
class Compare:
    """A condition on one key; a transaction takes its `success` branch when all of them hold."""

    message: wire.Compare

    @classmethod
    def absent(cls, key: str) -> Self:
        """The key does not exist."""
        return cls.created_at(key, 0)

    @classmethod
    def created_at(cls, key: str, create_revision: int) -> Self:
        """It is still the key that was created then: neither deleted nor made anew since."""
        return cls(
            wire.Compare(key=encode_key(key), target=wire.Compare.CREATE, create_revision=create_revision)
        )

    @classmethod
    def modified_at(cls, key: str, mod_revision: int) -> Self:
        """Nobody has put the key since."""
        return cls(wire.Compare(key=encode_key(key), target=wire.Compare.MOD, mod_revision=mod_revision))

    @classmethod
    def value_is(cls, key: str, value: bytes) -> Self:
        """The key exists and has this value."""
        return cls(wire.Compare(key=encode_key(key), target=wire.Compare.VALUE, value=value))

    @classmethod
    def held_by(cls, key: str, lease: int) -> Self:
        """The key is attached to this lease. An absent key counts as attached to lease 0."""
        return cls(wire.Compare(key=encode_key(key), target=wire.Compare.LEASE, lease=lease))


@dataclass(frozen=True, slots=True)
class Put:
    """Set a key; with a lease, it is deleted when the lease ends."""

    key: str
    value: bytes
    lease: int = 0

    def message(self) -> wire.RequestOperation:
        return wire.RequestOperation(
            put=wire.PutRequest(key=encode_key(self.key), value=self.value, lease=self.lease)
        )


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete a key, if it exists."""

    key: str

    def message(self) -> wire.RequestOperation:
        return wire.RequestOperation(delete_range=wire.DeleteRangeRequest(key=encode_key(self.key)))


@dataclass(frozen=True, slots=True)
class Get:
    """Read one key."""

    key: str

    def message(self) -> wire.RequestOperation:
        return wire.RequestOperation(range=wire.RangeRequest(key=encode_key(self.key)))


@dataclass(frozen=True, slots=True)
class Range:
    """Read all keys of a prefix; mind that `shards/1` is a prefix of `shards/10`."""

    prefix: str

    def message(self) -> wire.RequestOperation:
        first, end = prefix_range(self.prefix)
        return wire.RequestOperation(range=wire.RangeRequest(key=first, range_end=end))


Operation: TypeAlias = Put | Delete | Get | Range


@dataclass(frozen=True, slots=True)
class OperationResult:
    """What one operation found (`items`, of a Get or Range) or `deleted` (of a Delete)."""

    items: tuple[KeyValue, ...] = ()
    deleted: int = 0

    @classmethod
    def read(cls, found: wire.ResponseOperation) -> Self:
        return cls(tuple(map(KeyValue.read, found.range.kvs)), found.delete_range.deleted)


@dataclass(frozen=True, slots=True)
class TransactionResult:
    """Which branch was taken, and one result for each of its operations, in order."""

    succeeded: bool
    revision: int
    responses: tuple[OperationResult, ...]

    @classmethod
    def read(cls, found: wire.TransactionResponse) -> Self:
        return cls(found.succeeded, found.header.revision, tuple(map(OperationResult.read, found.responses)))


def transaction_request(
    compare: Sequence[Compare], success: Sequence[Operation], failure: Sequence[Operation]
) -> wire.TransactionRequest:
    return wire.TransactionRequest(
        compare=[each.message for each in compare],
        success=[each.message() for each in success],
        failure=[each.message() for each in failure],
    )


def leases_in(operations: Sequence[Operation]) -> set[int]:
    """The leases that these operations attach keys to."""
    return {each.lease for each in operations if isinstance(each, Put) and each.lease}
