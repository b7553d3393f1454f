"""Firing: each second of the database's clock, the bucket of every led shard goes onto Kafka.

**Who is authoritative.** The database's clock says what is due, its lower bound is used
(`database_clock.py`), so nothing is early. The wheel says what is in the bucket; the mark says what has
been published. In this order:

    1  the set of shards is frozen, and for each how far it fires: to now, but not beyond what is loaded,
    and in a
       gap not beyond its end nor more than a minute at a time
    2  the right to publish is proved for each of them (leadership.py)
    3  the bucket is expanded (expansion.py), by priority, tenants in turns
    4  it is published and every message acknowledged, dead-lettered or deferred (delivery.py)
    5  the marks of exactly these shards move, with their ledger rows, in one transaction (settling.py)
    6  fired timers are deleted behind the mark (settling.py)

A shard taken while a bucket is under way is not in that bucket's set, so its mark is not moved by it.

**What each crash leaves.**

    before 4 ends     some messages are out, the mark is not moved: the successor publishes all of them again
    between 4 and 5   the same
    between 5 and 6   timers stand that were fired: the successor fires them again
    In all three the primary key of the run removes the second copy.

**When something is away.** Kafka: step 4 waits, and with it the next bucket; what has become late
meanwhile is judged by policy when its turn comes. Postgres: step 5 waits (settling has a loop of its
own), steps 1 to 4 go on while the lease is trusted, up to what is loaded. A job or timer that turns up
already due does not wait for the next second: the feed wakes the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import structlog

from mainspring.scheduler.database_clock import DatabaseClock
from mainspring.scheduler.delivery import Delivered, Delivery
from mainspring.scheduler.expansion import Bucket, Moment
from mainspring.scheduler.feed import Feed
from mainspring.scheduler.leadership import Leadership
from mainspring.scheduler.marks import MissedKey
from mainspring.scheduler.metrics import Metrics
from mainspring.scheduler.reading import Position
from mainspring.scheduler.settling import Settling
from mainspring.scheduler.terms import Term
from mainspring.schema.messages import peek_second, peek_shard

CHUNK = 60
"""Seconds of a gap that are caught up with at a time: the mark moves in between."""

log = structlog.get_logger()


class _Share(NamedTuple):
    """One shard's part in a bucket."""

    term: Term
    after: int
    through: int


@dataclass(frozen=True, slots=True)
class Fired:
    """One bucket that has left."""

    through: int
    messages: int
    seconds: float


class Firing:
    """Publishes bucket after bucket."""

    def __init__(
        self,
        clock: DatabaseClock,
        leadership: Leadership,
        feed: Feed,
        delivery: Delivery,
        settling: Settling,
        metrics: Metrics,
    ) -> None:
        self._clock = clock
        self._leadership = leadership
        self._feed = feed
        self._delivery = delivery
        self._settling = settling
        self._metrics = metrics
        self.in_hand = asyncio.Lock()
        """Held while a bucket is under way: who hands back a shard waits for it."""
        self.wake = asyncio.Event()
        self._limit: asyncio.Timeout | None = None

    async def run(self, stop: asyncio.Event) -> None:
        """Fire until told to stop; the bucket in hand is finished, unless `hurry` has set it a limit."""
        try:
            async with asyncio.timeout(None) as self._limit:
                while not stop.is_set():
                    self.wake.clear()
                    fired = await self.run_once()
                    if fired is None or not self._is_behind():
                        await self._wait_for_work()
                    else:
                        await asyncio.sleep(0)  # an empty minute of a gap waits for nothing else
        except TimeoutError:
            log.warning("bucket_abandoned")

    def hurry(self, seconds: float) -> None:
        """Give the bucket in hand so long: with Kafka away it would never be finished."""
        if self._limit is not None and not self._limit.expired():
            self._limit.reschedule(asyncio.get_running_loop().time() + seconds)
        self.wake.set()

    async def run_once(self) -> Fired | None:
        """Fire what is due now; None when nothing is."""
        async with self.in_hand:
            position = self._feed.applied
            if position is None or not self._clock.known:
                return None
            shares = self._freeze()
            if not shares:
                return None
            return await self._fire(shares, position)

    def _is_behind(self) -> bool:
        """Whether a term has more to catch up with: what is due now waits behind it."""
        now = int(self._clock.now())
        return any(term.ready and _reach(term, now) > term.fired for term in self._leadership.terms.values())

    async def _wait_for_work(self) -> None:
        """Until the next second of the database's clock, or until something turns up that is already due."""
        # Without a first answer of the database there is no clock to wait by.
        pause = 1 - self._clock.now() % 1 if self._clock.known else 0.1
        try:
            async with asyncio.timeout(max(pause, 0.001)):
                await self.wake.wait()
        except TimeoutError:
            return

    def _freeze(self) -> list[_Share]:
        now = int(self._clock.now())
        shares = []
        for term in self._leadership.terms.values():
            if term.ready:
                through = _reach(term, now)
                if through > term.fired or term.has_owed:
                    shares.append(_Share(term, term.fired, through))
        return shares

    async def _fire(self, shares: list[_Share], position: Position) -> Fired | None:
        terms = [share.term for share in shares]
        ours = await self._leadership.may_publish(terms)
        shares = [share for share in shares if share.term.shard in ours]
        began = self._clock.monotonic()
        buckets: dict[int, Bucket] = {}
        for share in shares:
            buckets[share.term.shard] = self._expand(share, position)
            await asyncio.sleep(0)  # renewal and feed go on between the shards
        parcels = [parcel for bucket in buckets.values() for parcel in bucket.parcels]
        expanded = self._clock.monotonic()
        delivered = await self._delivery.deliver(parcels, lambda: self._leadership.may_publish(terms))
        self._record(shares, buckets, delivered, position)
        elapsed = self._clock.monotonic() - began
        messages = sum(len(parcel.bodies) for parcel in parcels)
        self._metrics.bucket_left(parcels, elapsed, self._clock.now())
        if messages:
            log.debug(
                "bucket_left",
                messages=messages,
                shards=len(shares),
                expanding=expanded - began,
                seconds=elapsed,
            )
        return Fired(max((share.through for share in shares), default=0), messages, elapsed)

    def _expand(self, share: _Share, position: Position) -> Bucket:
        term = share.term
        bucket = Bucket()
        moment = Moment(
            now=int(self._clock.now()),  # whole seconds, as grace is: a bucket is never late by a fraction
            gap_to=term.gap_to,
            shard=term.shard,
            epoch=term.epoch,
            position=position.snapshot.xmin,
        )
        term.expand(bucket, moment, share.through)
        return bucket

    def _record(
        self,
        shares: list[_Share],
        buckets: Mapping[int, Bucket],
        delivered: Delivered,
        position: Position,
    ) -> None:
        """Note what has left, for the terms that go on: the others' successors will publish it again."""
        shares = [share for share in shares if self._leadership.is_current(share.term)]
        delivered = delivered.of({share.term.shard for share in shares})
        pending = self._settling.pending
        for share in shares:
            bucket = buckets[share.term.shard]
            share.term.fired = max(share.term.fired, share.through)
            pending.through[share.term] = share.term.fired
            pending.ledger += bucket.counts()
            pending.timers += [(share.term, timer) for timer in bucket.timers]
            self._record_missed(share, bucket)
        pending.position = position
        for refused in (*delivered.too_large, *delivered.deferred):
            pending.ledger[peek_shard(refused.value), peek_second(refused.value)] -= 1
        pending.too_large += delivered.too_large
        pending.deferred += delivered.deferred
        self._metrics.refused(delivered)
        self._settling.wake.set()

    def _record_missed(self, share: _Share, bucket: Bucket) -> None:
        term = share.term
        gap_from, gap_to = min(share.after, share.through - 1), share.through
        if term.gap_to is not None and share.after < term.gap_to:
            gap_from, gap_to = term.gap_from, term.gap_to
        for cadence_id, count in bucket.missed.items():
            self._settling.pending.missed[MissedKey(term.shard, cadence_id, gap_from, gap_to)] += count
        for cadence_id, occurrences in bucket.capped.items():
            log.warning("run_all_capped", cadence_id=cadence_id, shard=term.shard, occurrences=occurrences)
        self._metrics.given_up(bucket)


def _reach(term: Term, now: int) -> int:
    """How far a term fires in one bucket."""
    through = min(now, term.loaded_through, term.fired + CHUNK)
    if term.gap_to is not None and term.fired < term.gap_to:
        through = min(through, term.gap_to)
    return max(through, term.fired)
