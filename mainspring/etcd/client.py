"""The asyncio client: what Mainspring asks of etcd, one method each."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Self

from mainspring.clock import Clock, SystemClock
from mainspring.etcd import wire_pb2 as wire
from mainspring.etcd.caller import Caller
from mainspring.etcd.methods import DELETE, GRANT, KEEP_ALIVE, PUT, RANGE, REVOKE, TIME_TO_LIVE, TRANSACT
from mainspring.etcd.transactions import (
    Compare,
    Operation,
    TransactionResult,
    leases_in,
    transaction_request,
)
from mainspring.etcd.values import (
    KeyValue,
    Lease,
    Snapshot,
    WatchBatch,
    encode_key,
    granted,
    prefix_range,
    renewed,
    whole_seconds,
)
from mainspring.etcd.watch import Watch
from mainspring.schema.errors import LeaseLost
from mainspring.settings import EtcdSettings


class EtcdClient:
    """etcd through whichever member answers; one per process and event loop, used by any number of tasks.

    Every method raises EtcdUnavailable when no member answered in time (some eight seconds at most) and
    EtcdRefused when etcd will not do it. Reads are linearizable: they see every change answered before.

    `put`, `delete` and `transact` are sent at most once. If the answer is lost they raise EtcdUnavailable
    with `maybe_applied` set: it may have happened, or may yet, for the few seconds that a request can wait
    inside etcd. Read the key again before deciding, and rely on a `Compare` rather than on what was read.
    """

    def __init__(self, settings: EtcdSettings, *, clock: Clock | None = None) -> None:
        self._caller = Caller(settings, clock or SystemClock())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections. Calls and watches still under way are cancelled: end their tasks first."""
        await self._caller.close()

    async def get(self, key: str) -> KeyValue | None:
        """The key as it is now, None if it does not exist."""
        found = await self._caller.call(RANGE, wire.RangeRequest(key=encode_key(key)))
        return KeyValue.read(found.kvs[0]) if found.kvs else None

    async def range(self, prefix: str) -> Snapshot:
        """All keys of a prefix, in order, at one revision."""
        first, end = prefix_range(prefix)
        found = await self._caller.call(RANGE, wire.RangeRequest(key=first, range_end=end))
        return Snapshot(found.header.revision, tuple(map(KeyValue.read, found.kvs)))

    async def put(self, key: str, value: bytes, *, lease: int = 0) -> int:
        """Set a key and answer the revision of the change. Raises LeaseLost when `lease` is gone."""
        request = wire.PutRequest(key=encode_key(key), value=value, lease=lease)
        return (await self._caller.call(PUT, request, lease=lease)).header.revision

    async def delete(self, key: str) -> bool:
        """Delete a key; whether there was one."""
        answer = await self._caller.call(DELETE, wire.DeleteRangeRequest(key=encode_key(key)))
        return answer.deleted > 0

    async def transact(
        self,
        *,
        compare: Sequence[Compare],
        success: Sequence[Operation],
        failure: Sequence[Operation] = (),
    ) -> TransactionResult:
        """Do `success` if all of `compare` hold, else `failure`: at once, or not at all.

        Raises LeaseLost, with nothing changed, when a Put names a lease that is gone.
        """
        request = transaction_request(compare, success, failure)
        lease = min(leases_in([*success, *failure]), default=0)
        return TransactionResult.read(await self._caller.call(TRANSACT, request, lease=lease))

    async def grant(self, ttl: timedelta) -> Lease:
        """A new lease, in whole seconds rounded up; etcd grants no less than two."""
        return granted(await self._caller.call(GRANT, wire.LeaseGrantRequest(ttl=whole_seconds(ttl))))

    async def keep_alive(self, lease_id: int) -> timedelta:
        """Renew a lease once; it now lasts this long, counted from when the call was *made*.

        Raises LeaseLost when it is gone. A lease that must live uses `LeaseKeeper`.
        """
        request = wire.LeaseKeepAliveRequest(id=lease_id)
        return renewed(lease_id, await self._caller.call(KEEP_ALIVE, request, lease=lease_id))

    async def time_to_live(self, lease_id: int) -> timedelta | None:
        """What is left of a lease, None when it is gone."""
        answer = await self._caller.call(TIME_TO_LIVE, wire.LeaseTimeToLiveRequest(id=lease_id))
        return timedelta(seconds=answer.ttl) if answer.ttl >= 0 else None

    async def revoke(self, lease_id: int) -> None:
        """End a lease and delete its keys; a lease already gone is no error."""
        try:
            await self._caller.call(REVOKE, wire.LeaseRevokeRequest(id=lease_id), lease=lease_id)
        except LeaseLost:
            return

    def watch(self, prefix: str, from_revision: int) -> AsyncGenerator[WatchBatch, None]:
        """Every change below `prefix` from `from_revision` on, in order, none lost and none twice.

        Read first, then watch from the next revision:

            snapshot = await client.range(prefix)
            async with aclosing(client.watch(prefix, snapshot.revision + 1)) as batches:
                async for batch in batches: ...

        It goes on by itself when members fail, for as long as that takes. It raises HistoryLost when that
        cannot be done without a gap (the revision was compacted meanwhile, or etcd was replaced): begin again
        with the reading. It raises EtcdRefused when the user may not read the prefix.

        As with any async generator, cancelling the wait for a batch ends the watch: who also waits for
        something else gives it a task of its own.
        """
        return Watch(self._caller, prefix, from_revision).batches()
