"""A rehearsal: the registered jobs, a stretch of the future, and what its seconds would be like.

What a leader does with a second is done here, by the same parts: a snapshot is read (`loading.py`), members
and timers are armed in a term's wheel (`terms.py`), the bucket is expanded (`expansion.py`) and published
with every message acknowledged (`mainspring.kafka.publisher`). Two things differ:

    the terms   lead nothing. They have no epoch and no mark, nothing of them is written, and the connections
                refuse to write (`default_transaction_read_only`): real leaders notice nothing
    the topics  are shadows, `mainspring.<pool>.<lane>.rehearsal-<name>`, made for this rehearsal and deleted
                after it; no worker reads them. Of one that was killed the messages go after an hour

Time does not pass: the seconds are published one after the other, as fast as they can be, and each is timed.
From that follows what the clock would have seen: a bucket that takes longer than until the next one is due
makes that one wait, see `Waiting`.

The jobs are those of now. What is registered, edited or triggered until then is not in it, nor are retries,
which nobody knows yet.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import NamedTuple, cast

import asyncpg

from mainspring.kafka.admin import Admin
from mainspring.kafka.publisher import Publisher
from mainspring.kafka.topic_rules import TopicSettings
from mainspring.kafka.topics import REQUEST_SECONDS, Topics
from mainspring.postgres import database_errors, make_pool
from mainspring.scheduler.expansion import Bucket, Moment, Parcel, in_order
from mainspring.scheduler.feed import Feed
from mainspring.scheduler.loading import WINDOW, Loader
from mainspring.scheduler.marks import Marks
from mainspring.scheduler.reading import TimerRow
from mainspring.scheduler.terms import Term
from mainspring.schema.cluster import verify_shards
from mainspring.schema.errors import InvalidInput
from mainspring.schema.messages import encode_prefix
from mainspring.schema.queries import query
from mainspring.schema.states import Lane, topic_of
from mainspring.settings import KafkaSettings, PostgresSettings

LONGEST_SECONDS = 86_400
_LANES = (Lane.HIGH, Lane.NORMAL, Lane.LOW)  # nothing of the future is late
_RETENTION = timedelta(hours=1)
_NAME = "rehearsal"


@dataclass(frozen=True, slots=True)
class Second:
    """One second, published: `took` is from its expansion to the last acknowledgement."""

    second: int
    messages: int
    size: int
    lanes: Mapping[str, int]
    """Messages by pool and lane, as `default.normal`."""
    refused: int
    took: float


class Waiting(NamedTuple):
    """What the clock would have seen: how long after due a second's bucket would have begun, and ended."""

    begun: float
    ended: float


@dataclass(slots=True)
class Line:
    """The seconds in a row, with the leader that is busy until the last one has left."""

    _free_at: float = field(default=float("-inf"))

    def add(self, second: Second) -> Waiting:
        begun = max(self._free_at, float(second.second))
        self._free_at = begun + second.took
        return Waiting(begun - second.second, self._free_at - second.second)


class Rehearsal:
    """A stretch of seconds of one cluster."""

    def __init__(
        self, postgres: PostgresSettings, kafka: KafkaSettings, topics: TopicSettings | None = None
    ) -> None:
        self._postgres = postgres
        self._kafka = kafka
        settings = replace(
            topics or TopicSettings(), retention=_RETENTION, minimum_outage=timedelta(minutes=1)
        )
        self._topics = Topics(kafka, settings)
        self._suffix = f"{_NAME}-{secrets.token_hex(4)}"
        self._partitions: dict[str, int] = {}

    async def run(self, first: int, seconds: int, tell: Callable[[Second], None]) -> None:
        """From this second on, so many of them; `tell` hears of each in which something would leave.

        The shadow topics are gone when it ends, however it ends.
        """
        async with self._parts(first - 1) as (loader, terms, publisher):
            last = first + seconds - 1
            for start in range(first, last + 1, WINDOW):
                through = min(start + WINDOW - 1, last)
                await loader.look_ahead(start - 1, through)
                await self._make_topics(terms, publisher)
                for second in range(start, through + 1):
                    told = await self._fire(second, terms, publisher)
                    if told.messages:
                        tell(told)

    @asynccontextmanager
    async def _parts(self, mark: int) -> AsyncIterator[tuple[Loader, dict[int, Term], Publisher]]:
        pool = make_pool(
            self._postgres,
            application=f"mainspring {_NAME}",
            size=2,
            command_seconds=300.0,
            idle_seconds=300.0,
            server_settings={"default_transaction_read_only": "on"},
        )
        publisher = Publisher(self._kafka, client_id=self._suffix)
        try:
            async with pool:
                shards = await _look_at(pool, mark)
                terms = {shard: Term(shard, 0, mark=mark, gap_to=None) for shard in range(shards)}
                feed = Feed(pool, terms, _leave)
                # Who polls the feed may request loads, in tasks of their own; here nobody does.
                tasks = asyncio.TaskGroup()
                yield Loader(pool, Marks(pool, _NAME), feed, terms, tasks, _leave), terms, publisher
        finally:
            await publisher.close()
            await asyncio.shield(self._delete_topics())

    async def _fire(self, second: int, terms: Mapping[int, Term], publisher: Publisher) -> Second:
        """What `Firing` does with a second, without the right to: nothing real comes of it."""
        began = time.monotonic()
        parcels = [parcel for term in terms.values() for parcel in _expand(term, second)]
        shadows = [parcel._replace(topic=self._shadow(parcel.topic)) for parcel in in_order(parcels)]
        refused = await publisher.publish(shadows, self._partitions) if shadows else []
        took = time.monotonic() - began
        lanes = Counter[str]()
        for parcel in parcels:
            lanes[parcel.topic.partition(".")[2]] += len(parcel.bodies)
        size = sum(
            len(parcel.prefix) * len(parcel.bodies) + sum(map(len, parcel.bodies)) for parcel in parcels
        )
        return Second(second, lanes.total(), size, dict(lanes), len(refused), took)

    async def _make_topics(self, terms: Mapping[int, Term], publisher: Publisher) -> None:
        """A shadow for every lane of the pools that were loaded, and the first message on its way there."""
        pools = {pool for term in terms.values() for pool in term.pools}
        names = [self._shadow(topic_of(pool, lane)) for pool in sorted(pools) for lane in _LANES]
        new = [name for name in names if name not in self._partitions]
        # Noted before they are made: what is made half has to go too.
        self._partitions |= dict.fromkeys(new, 1)
        for report in await self._topics.ensure(new):
            self._partitions[report.name] = report.partitions
        # A leader's producer has spoken to every topic long before midnight.
        await publisher.publish([_greeting(name) for name in new], self._partitions)

    async def _delete_topics(self) -> None:
        if self._partitions:
            async with Admin(self._kafka, REQUEST_SECONDS * 10, lambda _: None) as admin:
                await admin.delete(self._partitions)

    def _shadow(self, topic: str) -> str:
        return f"{topic}.{self._suffix}"


def _expand(term: Term, second: int) -> Collection[Parcel]:
    bucket = Bucket()
    term.expand(bucket, Moment(second, None, term.shard, term.epoch, 0), second)
    term.fired = term.mark = second
    return bucket.parcels


def _greeting(topic: str) -> Parcel:
    prefix = encode_prefix(attempt=1, shard=0, second=0, scheduled_at=0, epoch=0, position=0)
    return Parcel(0, topic, 0, 0, 0, prefix, [b""])


def _leave(_: TimerRow) -> None:
    """A timer whose job is gone is a leader's to delete."""


async def _look_at(pool: asyncpg.Pool[asyncpg.Record], mark: int) -> int:
    """How many shards there are; refused for a past, whose jobs nobody knows any more."""
    with database_errors():
        async with pool.acquire() as connection:
            now = await connection.fetchval(query("database_time"))
            if mark < now.timestamp():
                raise InvalidInput("from", "lies in the past: only what is to come can be rehearsed")
            return await verify_shards(cast("asyncpg.Connection[asyncpg.Record]", connection), None)
