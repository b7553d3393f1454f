"""The bookkeeper: every message ends in the books, and one that does not is published again.

A round:

    count     the tallies of new claims are added to the ledger, each claim once (books.py)
    look      which seconds are short, although what was published for them is older than the patience?
              Normally none, and the round is over after three statements
    ask       how far have the groups of the pools read? Asked of Kafka only when a second is short
    judge     the short seconds are expanded again; what has left no trace is missing
    settle    what is missing gets a timer, and the leader publishes it. Nothing is published here

**Nothing is missing that may still be in Kafka.** A look at a topic notes where it ends; once the group has
committed beyond that, all that had been published before the look has been taken, or is gone. Offsets are
compared with offsets, never the time stamps of messages, so nobody's clock matters. And since a worker
commits after its claim, the claims behind those offsets must have been counted too before a second is
called unexplained: an answer of Kafka counts from when the claims have been counted through the moment it
was given. A pool that is slow or absent lags: what it should have got is waited for, and the other pools of
the same second are judged.

**Harmless, and not endless.** A message published again though it was there is removed by the run's primary
key. A second is repaired three times; then what is missing is written off and reported. So is, once, what
nothing explains: a ledger row that a leader counted twice, or messages that cannot be derived
(docs/books.md).

**What a crash leaves.** Each step is one statement. A bookkeeper that dies after any of them leaves the rest
to the next, which goes on at `books.counted_through` with the rows that are short. Two at once count each
claim once, because the position moves only from where its reader saw it, and settle each second once, because
a row that has changed since it was read is left alone.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import datetime, timedelta
from threading import Thread
from typing import Any, NamedTuple, Protocol

import structlog
from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from mainspring.scheduler.duties.books import Balance, Books, Counted, Expected, Key, Page, Pool, balance
from mainspring.schema.ids import from_microseconds
from mainspring.schema.states import Lane, topic_of
from mainspring.settings import KafkaSettings

PATIENCE = timedelta(minutes=2)
RETENTION = timedelta(days=30)
"""Of days: what is older is not judged, because its runs may be gone."""

_FIRST_ANSWERS = timedelta(seconds=15)
"""A pool whose topics are never empty answers at the second look; judged sooner, it would seem to lag."""

_REQUEST_SECONDS = 5.0
_Place = tuple[str, int]

log = structlog.get_logger()


@dataclass(slots=True)
class Balanced:
    """What one round did."""

    seconds: int = 0
    """Into which claims were counted, of any shard."""
    short: int = 0
    """Seconds that were judged because they did not balance."""
    missing: int = 0
    """Messages without a trace."""
    repaired: int = 0
    """Messages that are published again."""
    unexplained: int = 0
    """Messages written off: nothing that could be derived was missing, or it was three times in vain."""


class Progress(Protocol):
    """How far the pools have read."""

    async def passed(self, pools: Collection[str], now: datetime) -> Mapping[str, datetime]:
        """For pools that can be asked: all that was published before this instant was taken or is gone.

        `now` is a time of the database from before the question.
        """


class Bookkeeper:
    """Keeps the ledger balanced."""

    pause = timedelta(seconds=5)

    def __init__(
        self,
        pool: Pool,
        progress: Progress,
        *,
        patience: timedelta = PATIENCE,
        retention: timedelta = RETENTION,
    ) -> None:
        self._books = Books(pool, patience=patience, retention=retention)
        self._progress = progress
        self._pools: set[str] = set()
        self._answers: defaultdict[str, list[_Answer]] = defaultdict(list)
        self._asking_since: datetime | None = None

    async def run_once(self) -> Balanced:
        """One round: three statements when all balances."""
        counted = await self._books.count()
        pages = await self._books.short(counted)
        if not pages:
            self._asking_since = None
            return Balanced(counted.seconds)
        since = await self._ask(counted.now)
        if counted.through < since + _FIRST_ANSWERS:
            return Balanced(counted.seconds)
        return await self._judge(pages, counted)

    async def _ask(self, now: datetime) -> datetime:
        """Ask Kafka; since when it has been asked."""
        self._pools |= await self._books.pools()
        passed = await self._progress.passed(self._pools, now)
        answered = await self._books.time()
        for pool, instant in passed.items():
            self._answers[pool].append(_Answer(answered, instant))
        self._asking_since = self._asking_since or answered
        return self._asking_since

    async def _judge(self, pages: list[Page], counted: Counted) -> Balanced:
        expected: defaultdict[Key, list[Expected]] = defaultdict(list)
        for each in await self._books.expected(pages, counted.now):
            expected[each.shard, each.second].append(each)
            self._pools.add(each.pool)
        passed = {pool: self._passed(pool, counted.through) for pool in self._pools}
        balances = []
        for page in pages:
            lagging = {pool for pool, at in passed.items() if at is None or at < page.published_at}
            balances.append(balance(page, expected[page.key], lagging))
        timers = await self._books.settle(balances)
        ours = [each for each in balances if each.page.key in timers]
        await self._books.record_missed(run for each in ours for run in each.too_late)
        for judged in ours:
            _report(judged, timers[judged.page.key])
        return Balanced(
            counted.seconds,
            short=len(ours),
            missing=sum(len(each.repair) + len(each.too_late) + each.shortfall for each in ours),
            repaired=sum(timers.values()),
            unexplained=sum(each.unexplained + each.shortfall for each in ours),
        )

    def _passed(self, pool: str, counted_through: datetime) -> datetime | None:
        """The newest answer of this pool that counts, and forget those before it."""
        answers = self._answers[pool]
        while len(answers) > 1 and answers[1].at <= counted_through:
            del answers[0]
        return answers[0].passed if answers and answers[0].at <= counted_through else None


class _Answer(NamedTuple):
    at: datetime
    passed: datetime


def _report(judged: Balance, timers: int) -> None:
    page = judged.page
    facts = {
        "shard": page.shard,
        "second": from_microseconds(page.second * 1_000_000).isoformat(),
        "published": page.published,
        "claimed": page.claimed,
    }
    if timers or judged.too_late:
        log.warning("books_repaired", **facts, messages=timers, too_late=len(judged.too_late))
    if judged.shortfall:
        log.error("books_shortfall", **facts, messages=judged.shortfall, repairs=page.repairs)
    if judged.unexplained:
        log.warning("books_unexplained", **facts, messages=judged.unexplained)


class Stand(NamedTuple):
    """Where a group stands in a partition, and where that ends."""

    position: int
    end: int


class Checkpoint(NamedTuple):
    """Where the partitions of a pool ended at a time."""

    at: datetime
    ends: Mapping[_Place, int]

    def is_passed(self, stands: Mapping[_Place, Stand]) -> bool:
        """Whether nothing from before it waits. A partition that is shorter than it was is a new one."""
        return not any(
            stand.position < self.ends[place] <= stand.end
            for place, stand in stands.items()
            if place in self.ends
        )


class KafkaProgress:
    """Asks Kafka, with one checkpoint per pool at a time: a busy topic has no moment without a lag."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._checkpoints: dict[str, Checkpoint] = {}

    async def passed(self, pools: Collection[str], now: datetime) -> Mapping[str, datetime]:
        """Pools whose offsets cannot be had are left out, with a warning."""
        client = AdminClient({**self._settings.librdkafka(), "client.id": "mainspring-books", "log_level": 0})
        try:
            async with asyncio.TaskGroup() as asking:
                asked = {pool: asking.create_task(self._stands(client, pool)) for pool in pools}
        finally:
            # Closing joins threads of librdkafka's, which may wait for a broker: nobody waits for that.
            Thread(target=client.__exit__, args=(None, None, None), name="kafka-close", daemon=True).start()
        found = {pool: task.result() for pool, task in asked.items()}
        answers = {
            pool: self._compare(pool, stands, now) for pool, stands in found.items() if stands is not None
        }
        return {pool: instant for pool, instant in answers.items() if instant is not None}

    def _compare(self, pool: str, stands: Mapping[_Place, Stand], now: datetime) -> datetime | None:
        fresh = Checkpoint(now, {place: stand.end for place, stand in stands.items()})
        if fresh.is_passed(stands):
            self._checkpoints[pool] = fresh
            return now
        known = self._checkpoints.setdefault(pool, fresh)
        if not known.is_passed(stands):
            return None
        self._checkpoints[pool] = fresh
        return known.at

    async def _stands(self, client: AdminClient, pool: str) -> dict[_Place, Stand] | None:
        try:
            found: dict[_Place, Stand] = {}
            for topic in await self._topics(client, pool):
                found |= await self._stands_in(client, *topic)
        except KafkaException as error:
            log.warning("offsets_unknown", pool=pool, reason=str(error))
            return None
        return found

    async def _topics(self, client: AdminClient, pool: str) -> list[tuple[str, list[TopicPartition]]]:
        """The pool's topics with their partitions; one that does not exist holds nothing."""
        names = TopicCollection([topic_of(pool, lane) for lane in Lane])
        asked: Mapping[str, Future[Any]] = client.describe_topics(names, request_timeout=_REQUEST_SECONDS)
        found = []
        for name, future in asked.items():
            try:
                topic = await asyncio.wrap_future(future)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise
            else:
                found.append((name, [TopicPartition(name, each.id) for each in topic.partitions]))
        return found

    async def _stands_in(
        self, client: AdminClient, topic: str, places: list[TopicPartition]
    ) -> dict[_Place, Stand]:
        """A group is named like its topic. One that has never committed stands at the beginning."""
        begin = await _offsets(client, places, OffsetSpec.earliest())  # type: ignore[no-untyped-call]
        end = await _offsets(client, places, OffsetSpec.latest())  # type: ignore[no-untyped-call]
        asked = client.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(topic, places)], request_timeout=_REQUEST_SECONDS
        )
        answer = await asyncio.wrap_future(asked[topic])
        found = {}
        for place in answer.topic_partitions:
            if place.error is not None:
                raise KafkaException(place.error)
            # No offset is a negative number; what retention has removed cannot be read any more.
            position = max(place.offset, begin[place.partition])
            found[topic, place.partition] = Stand(position, end[place.partition])
        return found


async def _offsets(client: AdminClient, places: list[TopicPartition], which: OffsetSpec) -> dict[int, int]:
    asked: Mapping[TopicPartition, Future[Any]] = client.list_offsets(
        dict.fromkeys(places, which), request_timeout=_REQUEST_SECONDS
    )
    return {place.partition: (await asyncio.wrap_future(future)).offset for place, future in asked.items()}
