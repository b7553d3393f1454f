"""A scripted stand-in for the publisher and the topics: what each partition does with what it is sent.

The real ones are tested on a real cluster; here the decisions around them are. Nothing waits: a try ends at
once, as one of five seconds would.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import cycle

from mainspring.kafka.publisher import Load, Refused, Standing, Why
from mainspring.scheduler.expansion import Parcel
from mainspring.schema.errors import KafkaUnavailable, TopicRefused
from mainspring.schema.messages import encode_prefix
from tests.unit.scheduler.rows import EPOCH, MIDNIGHT, POSITION, body_of, micros


class Kafka:
    """Everything is taken except what a test says; `turns` may change that before each try."""

    def __init__(self, **partitions: int) -> None:
        self.counts = partitions
        self.taken: list[tuple[str, int, bytes]] = []
        self.tries: list[list[tuple[str, int]]] = []
        self.offline: set[tuple[str, int]] = set()
        self.too_large: set[bytes] = set()
        self.unwritable: set[str] = set()
        self.forbidden: set[str] = set()
        self.unknown: set[str] = set()
        self.standings: dict[str, Standing] = {}
        self.forgotten: list[str] = []
        self.away = False
        self.turns: Sequence[Callable[[Kafka], object]] = ()

    def values(self, topic: str) -> list[bytes]:
        return [value for where, _, value in self.taken if where == topic]

    def tried(self, topic: str) -> list[list[int]]:
        """The partitions of a topic that each try went to; a try without it is left out."""
        found = [[partition for where, partition in sent if where == topic] for sent in self.tries]
        return [each for each in found if each]

    def silence(self, topic: str) -> None:
        self.offline |= {(topic, partition) for partition in range(self.counts[topic])}

    async def publish(
        self,
        loads: Iterable[Load],
        partitions: Mapping[str, int],
        avoid: Mapping[str, Collection[int]] | None = None,
    ) -> list[Refused]:
        if self.turns:
            turn, *self.turns = self.turns
            turn(self)
        left_out = avoid or {}
        ways = {
            topic: cycle([number for number in range(count) if number not in left_out.get(topic, ())])
            for topic, count in partitions.items()
        }
        sent = [
            (load.topic, next(ways[load.topic]), load.prefix + body) for load in loads for body in load.bodies
        ]
        self.tries.append([(topic, partition) for topic, partition, _ in sent])
        refused = [
            (topic, partition, value, self._refusal(topic, partition, value))
            for topic, partition, value in sent
        ]
        self.taken += [(topic, partition, value) for topic, partition, value, why in refused if why is None]
        return [Refused(topic, part, value, why, str(why)) for topic, part, value, why in refused if why]

    async def standing(self, topic: str) -> Standing:
        return Standing.SILENT if self.away else self.standings.get(topic, Standing.WRITABLE)

    async def partitions(self, name: str) -> int:
        if name in self.forbidden:
            raise TopicRefused(name, "not allowed")
        if name in self.unknown:
            raise KafkaUnavailable(("broker:9092",), "no answer")
        return self.counts[name]

    def forget(self, name: str) -> None:
        self.forgotten.append(name)

    def _refusal(self, topic: str, partition: int, value: bytes) -> Why | None:
        if value in self.too_large:
            return Why.TOO_LARGE
        if topic in self.unwritable:
            return Why.TOPIC
        return Why.PARTITION if self.away or (topic, partition) in self.offline else None


def parcel(topic: str, *job_ids: int, shard: int = 3, priority: int = 5, tenant_id: int = 1) -> Parcel:
    prefix = encode_prefix(
        attempt=1,
        shard=shard,
        second=MIDNIGHT,
        scheduled_at=micros(MIDNIGHT),
        epoch=EPOCH,
        position=POSITION,
    )
    bodies = [body_of(job_id) for job_id in job_ids]
    return Parcel(priority, topic, tenant_id, shard, MIDNIGHT, prefix, bodies)


def values(*parcels: Parcel) -> list[bytes]:
    return [each.prefix + body for each in parcels for body in each.bodies]
