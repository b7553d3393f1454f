"""Intake: messages of the pool's lanes, kept ready in small numbers until they are claimed.

Each lane is a topic with a consumer of its own, in the group of the same name, so that one lane can be
read and another left alone. A reader keeps at most a few thousand messages; what Kafka holds beyond that
stays there. Offsets are committed only for what a claim has brought into the books, in the order of the
claims.

**Nothing is lost by a rebalance.** What was read and not claimed is simply read again by the next owner
of its partition; what was claimed and not committed is read again too, and found to be a copy.

**Leaving.** With no free slot for a while, a worker leaves its groups, so that its partitions go to
workers that have one. It joins again when there is room. In the middle of a rebalance its partitions may
still be its own when it comes back; then the consumer would go on where it was, past what had been read and
was dropped at leaving. So that is noted: it is read again, and until then nothing beyond it is committed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

import structlog
from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from mainspring.schema.messages import peek_second
from mainspring.schema.states import Lane, topic_of
from mainspring.settings import KafkaSettings
from mainspring.worker.batches import Record

KEPT = 20_000
"""Messages a reader holds ready at most."""

_WAIT_SECONDS = 0.25
_PREFIX = 48
_LONG_FULL = 40  # reads, a second: what was fetched ahead has to be fetched again after a pause
_LEAVING_FETCHES = 40  # the first is enough, unless Kafka is away

T = TypeVar("T")

log = structlog.get_logger()


class LaneReader:
    """One lane's consumer; its calls happen on a thread of its own."""

    def __init__(self, settings: KafkaSettings, pool: str, lane: Lane, client_id: str) -> None:
        self.lane = lane
        self._topic = topic_of(pool, lane)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"mainspring-{lane}")
        self._consumer = Consumer(
            settings.librdkafka()
            | {
                "group.id": self._topic,
                "client.id": client_id,
                "auto.offset.reset": "earliest",  # what came before the first worker counts too
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "partition.assignment.strategy": "cooperative-sticky",
                "session.timeout.ms": 10_000,
                "fetch.queue.backoff.ms": 20,
                "fetch.wait.max.ms": 100,
                "queued.max.messages.kbytes": 32_768,
                "topic.metadata.refresh.interval.ms": 10_000,  # a topic made later is seen soon
                "reconnect.backoff.max.ms": 1000,
                "log_level": 0,
            }
        )
        self._kept: deque[Record] = deque()
        self._ends: dict[int, int] = {}  # of what is in the books, and not committed
        self._dropped: dict[
            int, int
        ] = {}  # the first offset that was read, and not claimed, of partitions kept
        self._joined = False
        self._full = 0
        """Reads in a row for whose messages there was no room."""
        self._paused: set[int] = set()
        self.lag = 0
        """Messages of our partitions that no claim has taken yet."""
        self.fault = ""
        """What Kafka said last, if it was a complaint."""

    @property
    def waiting(self) -> int:
        return len(self._kept)

    def oldest_wait(self, now: float) -> float:
        """Seconds since the first message that waits here was due."""
        if not self._kept or len(self._kept[0].value) < _PREFIX:
            return 0.0
        return max(0.0, now - peek_second(self._kept[0].value))

    def take(self, count: int) -> list[Record]:
        return [self._kept.popleft() for _ in range(min(count, len(self._kept)))]

    async def join(self) -> None:
        if not self._joined:
            self._joined = True
            await self._call(self._join, dict(self._dropped))

    async def leave(self) -> None:
        """Give the partitions to others; what is kept is theirs too."""
        if self._joined:
            self._joined = False
            fetched = await self._call(self._leave, self._take_ends())
            if fetched is None:
                self._dropped.clear()
            else:
                self._note_dropped([*self._kept, *filter(None, map(self._record, fetched))])
            self._kept.clear()

    async def read(self) -> bool:
        """Fetch what there is, waiting a moment for the first; whether there was something."""
        room = KEPT - len(self._kept)
        self._full = self._full + 1 if room < KEPT // 2 else 0
        if self._left() or 0 < self._full < _LONG_FULL:
            if self._ends:
                await self._call(self._commit, self._take_ends())
            await asyncio.sleep(_WAIT_SECONDS / 10)
            return False
        most = 0 if self._full else min(room, 5000)
        messages = await self._call(self._consume, most, self._take_ends())
        if self._left():  # meanwhile: what was fetched is somebody else's now, or comes again
            self._note_dropped(filter(None, map(self._record, messages)))
            return False
        records = [record for record in map(self._record, messages) if record is not None]
        for record in records if self._dropped else ():
            if record.offset <= self._dropped.get(record.partition, -1):
                del self._dropped[record.partition]  # from here on everything comes again
        self._kept.extend(records)
        return bool(records)

    def commit(self, offsets: Mapping[int, int]) -> None:
        """Tell the group how far the books go, before the next fetch.

        Not here and now: a consumer does one thing at a time, and we would wait behind fetch after fetch.
        Once we have left, the partitions are others', who may be further.
        """
        if not self._left():
            for partition, end in offsets.items():
                self._ends[partition] = min(end, self._dropped.get(partition, end))

    async def close(self) -> None:
        await self._call(self._consumer.close)
        self._thread.shutdown(wait=False)

    def _measure(self) -> None:
        """Messages of our partitions that we have not read, by what the last fetch said; no round trip."""
        total = 0
        with suppress(KafkaException):
            for place in self._consumer.position(self._consumer.assignment()):
                low, high = self._consumer.get_watermark_offsets(place, cached=True)
                total += max(0, high - (place.offset if place.offset >= 0 else low))
        self.lag = total + len(self._kept)

    def _left(self) -> bool:
        return not self._joined

    def _take_ends(self) -> dict[int, int]:
        ends, self._ends = self._ends, {}
        return ends

    def _commit(self, ends: Mapping[int, int]) -> None:
        """A partition that was taken away refuses, and that is right."""
        if not ends:
            return
        places = [TopicPartition(self._topic, partition, offset) for partition, offset in ends.items()]
        try:
            self._consumer.commit(offsets=places, asynchronous=True)
        except KafkaException as error:
            log.info("commit_refused", topic=self._topic, reason=str(error))

    def _note_dropped(self, records: Iterable[Record]) -> None:
        for record in records:
            known = self._dropped.get(record.partition, record.offset)
            self._dropped[record.partition] = min(known, record.offset)

    def _join(self, dropped: Mapping[int, int]) -> None:
        """What is not ours any more cannot be sought, and begins with what is committed."""
        self._consumer.subscribe([self._topic])
        for partition, offset in dropped.items():
            with suppress(KafkaException):
                self._consumer.seek(TopicPartition(self._topic, partition, offset))

    def _leave(self, ends: Mapping[int, int]) -> list[Message] | None:
        """Give up the partitions by fetching, or the group would wait for us until our session is over.

        None if they are given up; what was fetched meanwhile if they may stay ours.
        """
        self._commit(ends)
        if self._paused:
            self._resume()
        self._consumer.unsubscribe()
        fetched: list[Message] = []
        for _ in range(_LEAVING_FETCHES):
            fetched += self._consumer.consume(1, _WAIT_SECONDS / 5)
            if not self._consumer.assignment():
                return None
        return fetched

    def _consume(self, most: int, ends: Mapping[int, int]) -> list[Message]:
        """Fetch; or, when there has been no room for a while, only answer the group: who does not call at all
        holds up every rebalance, and with it the worker that has come to help.
        """
        self._commit(ends)
        if not most:
            self._pause()
        elif self._paused:
            self._resume()
        # Asked for many it waits its whole time for the last of them: wait for one, then take what is there.
        found: list[Message] = self._consumer.consume(1, _WAIT_SECONDS)
        if found and most > 1:
            found += self._consumer.consume(most - 1, 0)
        self._measure()
        return found

    def _pause(self) -> None:
        """What is assigned from now on may bring a message before the next call pauses it too."""
        places = self._consumer.assignment()
        self._consumer.pause(places)
        self._paused |= {place.partition for place in places}

    def _resume(self) -> None:
        """What was taken away meanwhile as well: it may come back, and would still be paused."""
        self._consumer.resume([TopicPartition(self._topic, partition) for partition in self._paused])
        self._paused.clear()

    def _record(self, message: Message) -> Record | None:
        error = message.error()
        if error is not None:
            self._complain(error.str())
            return None
        self.fault = ""
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert partition is not None
        assert offset is not None
        return Record(self.lane, partition, offset, value or b"", message.timestamp()[1])

    def _complain(self, reason: str) -> None:
        if reason != self.fault:
            log.warning("lane_unreadable", topic=self._topic, reason=reason)
            self.fault = reason

    async def _call(self, function: Callable[..., T], *arguments: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)


class Intake:
    """The lanes of one worker."""

    def __init__(self, readers: Iterable[LaneReader]) -> None:
        self.readers = {reader.lane: reader for reader in readers}
        self.arrived = asyncio.Event()

    @property
    def waiting(self) -> dict[Lane, int]:
        return {lane: reader.waiting for lane, reader in self.readers.items()}

    def oldest(self, now: float) -> dict[Lane, float]:
        return {lane: reader.oldest_wait(now) for lane, reader in self.readers.items()}

    @property
    def lags(self) -> dict[Lane, int]:
        return {lane: reader.lag for lane, reader in self.readers.items()}

    def take(self, shares: Mapping[Lane, int]) -> list[Record]:
        return [record for lane, count in shares.items() for record in self.readers[lane].take(count)]

    async def join(self) -> None:
        for reader in self.readers.values():
            await reader.join()

    async def leave(self) -> None:
        """All at once: one that is in the middle of a rebalance takes seconds, and a stop waits for it."""
        await asyncio.gather(*(reader.leave() for reader in self.readers.values()))

    def commit(self, records: Iterable[Record]) -> None:
        """These are in the books."""
        ends: dict[Lane, dict[int, int]] = {}
        for record in records:
            of_lane = ends.setdefault(record.lane, {})
            of_lane[record.partition] = max(of_lane.get(record.partition, 0), record.offset + 1)
        for lane, offsets in ends.items():
            self.readers[lane].commit(offsets)

    async def read_lane(self, lane: Lane, stop: asyncio.Event) -> None:
        """Keep one lane's messages ready until told to stop."""
        reader = self.readers[lane]
        while not stop.is_set():
            if await reader.read():
                self.arrived.set()

    async def close(self) -> None:
        await asyncio.gather(*(reader.close() for reader in self.readers.values()))
