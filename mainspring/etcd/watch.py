"""Watching a prefix across the failures of members.

The stream that etcd offers ends with its member, or does not end at all when the member merely hangs. So this
one pulses: each second it asks etcd for a sign of life (a progress request, answered by the member itself and
so a stronger proof than HTTP/2's ping), and a stream that has been silent for several pulses is left for the
next member. It is resumed from the revision after the last *event* handed out. The revisions in signs of life
are not used for that: etcd before 3.5.8 could send one ahead of events that belonged before it.

Before each stream the present revision is read. An etcd that has not reached what we have already seen is
another one (restored, or made anew); watching it would wait in silence for a revision years away. And a
stream never begins in the future, where etcd gives no sign of life: it begins at the present revision, and
what of that had been seen before is dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator

import structlog
from grpc import aio

from mainspring.etcd import wire_pb2 as wire
from mainspring.etcd.caller import Caller
from mainspring.etcd.methods import RANGE, WATCH
from mainspring.etcd.values import WatchBatch, prefix_range
from mainspring.schema.errors import EtcdRefused, EtcdUnavailable, HistoryLost

PULSE_SECONDS = 1.0
SILENCE_SECONDS = 4.0

log = structlog.get_logger(__name__)


class Watch:
    """One prefix, followed from one revision on."""

    def __init__(self, caller: Caller, prefix: str, from_revision: int) -> None:
        self._caller = caller
        self._prefix = prefix
        self._first, self._end = prefix_range(prefix)
        self._next_revision = from_revision
        self._pauses: Iterator[float] | None = None

    async def batches(self) -> AsyncGenerator[WatchBatch, None]:
        """See `EtcdClient.watch`."""
        while True:
            try:
                start = min(self._next_revision, await self._present_revision())
                async with self._caller.stream(WATCH, self._requests(start)) as stream:
                    while True:
                        batch = WatchBatch.read(await self._response(stream), self._next_revision)
                        if batch is not None:
                            self._next_revision = batch.revision + 1
                            yield batch
            except EtcdUnavailable as error:
                await self._pause(error)

    async def _present_revision(self) -> int:
        request = wire.RangeRequest(key=self._first, range_end=self._end, count_only=True)
        present = (await self._caller.call(RANGE, request)).header.revision
        if present < self._next_revision - 1:
            raise HistoryLost(self._next_revision, f"it is at revision {present}: not the etcd it was")
        return present

    async def _requests(self, start: int) -> AsyncIterator[wire.WatchRequest]:
        """What the stream sends; it runs beside the reading and ends with the stream."""
        yield wire.WatchRequest(
            create=wire.WatchCreateRequest(key=self._first, range_end=self._end, start_revision=start)
        )
        while True:
            await asyncio.sleep(PULSE_SECONDS)
            yield wire.WatchRequest(progress=wire.WatchProgressRequest())

    async def _response(
        self, stream: aio.StreamStreamCall[wire.WatchRequest, wire.WatchResponse]
    ) -> wire.WatchResponse:
        try:
            async with asyncio.timeout(SILENCE_SECONDS):
                response = await stream.read()
        except TimeoutError as error:
            raise EtcdUnavailable(f"a watch was silent for {SILENCE_SECONDS:g} s") from error
        if not isinstance(response, wire.WatchResponse):  # the end of the stream
            raise EtcdUnavailable("etcd ended a watch")
        if response.canceled:
            raise self._cancelled(response)
        self._recovered()
        return response

    def _cancelled(self, response: wire.WatchResponse) -> HistoryLost | EtcdRefused:
        if response.compact_revision:
            return HistoryLost(self._next_revision, f"compacted up to {response.compact_revision}")
        return EtcdRefused("CANCELLED", response.cancel_reason)

    async def _pause(self, error: EtcdUnavailable) -> None:
        if self._pauses is None:
            self._pauses = self._caller.pauses()
            log.warning("etcd_watch_interrupted", prefix=self._prefix, reason=error.reason)
        await asyncio.sleep(next(self._pauses))

    def _recovered(self) -> None:
        if self._pauses is not None:
            self._pauses = None
            log.info("etcd_watch_resumed", prefix=self._prefix, from_revision=self._next_revision)
