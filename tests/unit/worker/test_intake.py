"""A reader whose partitions stay its own while it leaves passes and commits nothing that it dropped."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaException, TopicPartition

from mainspring.schema.states import Lane
from mainspring.settings import KafkaSettings
from mainspring.worker.intake import LaneReader


class Fetched:
    def __init__(self, offset: int) -> None:
        self._offset = offset

    def error(self) -> None:
        return None

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset

    def value(self) -> bytes:
        return b"message"

    def timestamp(self) -> tuple[int, int]:
        return 1, 0


class Retained:
    """A consumer in the middle of a rebalance that does not end: it owns its partition whatever it says."""

    def __init__(self, *, can_seek: bool) -> None:
        self.at = 0
        self.end = 10
        self.committed: list[int] = []
        self._can_seek = can_seek

    def subscribe(self, topics: list[str]) -> None: ...
    def unsubscribe(self) -> None: ...

    def assignment(self) -> list[TopicPartition]:
        return [TopicPartition("t", 0)]

    def position(self, places: Any) -> list[TopicPartition]:
        return []

    def consume(self, most: int, seconds: float) -> list[Fetched]:
        taken = range(self.at, min(self.end, self.at + most))
        self.at = max(self.at, taken.stop)
        return [Fetched(offset) for offset in taken]

    def seek(self, place: TopicPartition) -> None:
        if not self._can_seek:
            raise KafkaException("not ours")
        self.at = place.offset

    def commit(self, offsets: list[TopicPartition], asynchronous: bool) -> None:
        self.committed += [place.offset for place in offsets]


async def left_and_joined(*, can_seek: bool) -> tuple[LaneReader, Retained]:
    """Ten messages were read, four claimed, and the others dropped at leaving."""
    reader = LaneReader(KafkaSettings(brokers=("127.0.0.1:1",)), "p", Lane.NORMAL, "w")
    reader._consumer.close()
    kept = Retained(can_seek=can_seek)
    reader._consumer = kept  # type: ignore[assignment]
    await reader.join()
    await reader.read()
    assert len(reader.take(4)) == 4
    await reader.leave()
    await reader.join()
    kept.end = 20
    await reader.read()
    return reader, kept


async def test_what_was_dropped_is_read_again() -> None:
    reader, kept = await left_and_joined(can_seek=True)
    assert [each.offset for each in reader.take(100)] == list(range(4, 20))
    reader.commit({0: 20})
    await reader.read()
    assert kept.committed == [20]


@pytest.mark.parametrize("claimed_to", [12, 20])
async def test_nothing_is_committed_beyond_what_was_dropped(claimed_to: int) -> None:
    reader, kept = await left_and_joined(can_seek=False)
    assert [each.offset for each in reader.take(100)] == list(range(10, 20))
    reader.commit({0: claimed_to})
    await reader.read()
    assert kept.committed == [4]
