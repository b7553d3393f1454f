"""The relay: every dead letter gets a copy on its pool's dead-letter topic, for whoever wants to be told.

Who is authoritative: the row. `published_at` is set after Kafka has acknowledged the copy, so a crash in
between sends it again: at least once, and the letter's id tells the copies apart. A letter that its owner
removes before is not sent, or is sent all the same.

A topic that refuses, or about which nobody answers, is left alone for half a minute, with its letters: the
other pools' do not wait behind them. A partition that did not take a copy is left out the next time. A copy
that is too large goes without its payload and says so; the payload stays in the row.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import asyncpg
import structlog

from mainspring.clock import Clock, SystemClock
from mainspring.kafka.publisher import MESSAGE_SECONDS, Publisher, Refused, Why
from mainspring.kafka.topics import Topics
from mainspring.postgres import database_errors
from mainspring.schema.errors import InvalidInput, KafkaUnavailable, TopicRefused, UnreadableMessage
from mainspring.schema.ids import RunKey, format_job_id, format_run_id
from mainspring.schema.messages import decode_job
from mainspring.schema.queries import query
from mainspring.schema.states import DeadReason, dead_topic_of

REST_SECONDS = 30.0

_BATCH = 500
_BATCHES = 20
_LONGEST_ERROR = 10_000

log = structlog.get_logger()


@dataclass(slots=True)
class Relayed:
    """What one round did."""

    published: int = 0
    without_payload: int = 0
    """Of those: too large otherwise."""
    refused: int = 0
    """Tried and not taken, or not tried because their topic was not to be had."""


class _Load(NamedTuple):
    """Copies for one topic, as the publisher takes them."""

    topic: str
    bodies: Sequence[bytes]
    prefix: bytes = b""


class DeadLetterRelay:
    """Copies dead letters to Kafka. Its publisher should be its own: a silent topic holds one for seconds."""

    pause = timedelta(seconds=1)

    def __init__(
        self,
        pool: asyncpg.Pool[asyncpg.Record],
        publisher: Publisher,
        topics: Topics,
        clock: Clock | None = None,
    ) -> None:
        self._pool = pool
        self._publisher = publisher
        self._topics = topics
        self._clock = clock or SystemClock()
        self._rests: dict[str, float] = {}
        self._avoid: dict[str, set[int]] = {}

    async def run_once(self) -> Relayed:
        """Send what is not published yet, some thousand at most; one query when there is nothing."""
        relayed = Relayed()
        for _ in range(_BATCHES):
            with database_errors():
                rows = await self._pool.fetch(query("unpublished_letters"), self._resting(), _BATCH)
            if rows:
                await self._send(rows, relayed)
            if len(rows) < _BATCH:
                break
        return relayed

    def _resting(self) -> list[str]:
        """Pools whose topics are left alone for now."""
        now = self._clock.monotonic()
        self._rests = {pool: until for pool, until in self._rests.items() if now < until}
        return list(self._rests)

    async def _send(self, rows: Sequence[asyncpg.Record], relayed: Relayed) -> None:
        """One batch: publish, send again what was too large, then set `published_at`."""
        topics = await self._ask({row["pool"] for row in rows})
        ready = [row for row in rows if row["pool"] in topics]
        partitions = dict(topics.values())
        refused = await self._publish({row["id"]: (row, copy_of(row)) for row in ready}, topics, partitions)
        large = [row for row in ready if refused.get(row["id"]) is Why.TOO_LARGE]
        small = {row["id"]: (row, copy_of(row, with_payload=False)) for row in large}
        refused_again = await self._publish(small, topics, partitions) if small else {}
        taken = [row["id"] for row in ready if row["id"] not in refused or row["id"] in small]
        taken = [each for each in taken if each not in refused_again]
        with database_errors():
            await self._pool.execute(query("mark_letters_published"), taken)
        relayed.published += len(taken)
        relayed.without_payload += len(small) - len(refused_again)
        relayed.refused += len(rows) - len(taken)

    async def _ask(self, pools: Iterable[str]) -> dict[str, tuple[str, int]]:
        """Topic and number of partitions, for the pools that have a topic to be had; the others rest."""
        async with asyncio.TaskGroup() as asking:
            asked = {
                pool: asking.create_task(self._partitions(pool), name=f"ask-{pool}") for pool in sorted(pools)
            }
        answers = {pool: task.result() for pool, task in asked.items()}
        return {pool: answer for pool, answer in answers.items() if answer is not None}

    async def _partitions(self, pool: str) -> tuple[str, int] | None:
        try:
            topic = dead_topic_of(pool)
            async with asyncio.timeout(MESSAGE_SECONDS):
                return topic, await self._topics.partitions(topic)
        except (InvalidInput, TopicRefused, KafkaUnavailable, TimeoutError) as error:
            self._let_rest(pool, str(error) or "no answer in time")
            return None

    async def _publish(
        self,
        copies: Mapping[int, tuple[asyncpg.Record, bytes]],
        topics: Mapping[str, tuple[str, int]],
        partitions: Mapping[str, int],
    ) -> dict[int, Why]:
        """Send copies by the letter's id: which of them were not taken, and why."""
        by_pool: dict[str, list[bytes]] = {}
        for row, value in copies.values():
            by_pool.setdefault(row["pool"], []).append(value)
        loads = [_Load(topics[pool][0], values) for pool, values in by_pool.items()]
        refused = await self._publisher.publish(loads, partitions, self._avoid)
        for pool in by_pool:
            topic = topics[pool][0]
            self._learn(pool, topic, [each for each in refused if each.topic == topic], partitions[topic])
        ids = {value: letter for letter, (_, value) in copies.items()}
        return {ids[each.value]: each.why for each in refused}

    def _learn(self, pool: str, topic: str, refused: Collection[Refused], partitions: int) -> None:
        """What refusals say about a topic; one that is too large says nothing about it."""
        refused = [each for each in refused if each.why is not Why.TOO_LARGE]
        if not refused:
            return
        avoid = self._avoid.setdefault(topic, set()) | {each.partition for each in refused}
        of_topic = any(each.why is Why.TOPIC for each in refused)
        if of_topic:
            self._topics.forget(topic)  # it may have been removed: the next look makes it again
        if of_topic or len(avoid) >= partitions:  # no partition is better than the others: begin anew
            del self._avoid[topic]
            self._let_rest(pool, refused[0].reason)
        else:
            self._avoid[topic] = avoid
            log.warning("letters_refused", topic=topic, letters=len(refused), reason=refused[0].reason)

    def _let_rest(self, pool: str, reason: str) -> None:
        log.warning("letters_wait", pool=pool, reason=reason)
        self._rests[pool] = self._clock.monotonic() + REST_SECONDS


def copy_of(letter: asyncpg.Record, *, with_payload: bool = True) -> bytes:
    """The message: one JSON object. The payload is there if the letter's bytes can be read as a job's."""
    words = json.dumps(_envelope(letter) | ({} if with_payload else {"payload_omitted": True}))
    payload = _payload(letter) if with_payload else None
    if payload is None:
        return words.encode()
    # As it was written, not read and written again: that would change numbers.
    return words[:-1].encode() + b', "payload": ' + payload + b"}"


def _envelope(letter: asyncpg.Record) -> dict[str, Any]:
    job_id: int | None = letter["job_id"]
    key = None if job_id is None else RunKey(job_id, letter["scheduled_at"], letter["attempt"])
    return {
        "id": letter["id"],
        "tenant_id": letter["tenant_id"],
        "job_id": None if job_id is None else format_job_id(job_id),
        "run_id": None if key is None else format_run_id(key),
        "scheduled_at": _iso(letter["scheduled_at"]),
        "attempt": letter["attempt"],
        "pool": letter["pool"],
        "handler": letter["handler"],
        "reason": letter["reason"],
        "error": letter["error"] and letter["error"][:_LONGEST_ERROR],
        "fingerprint": letter["fingerprint"],
        "created_at": _iso(letter["created_at"]),
    }


def _payload(letter: asyncpg.Record) -> bytes | None:
    if letter["reason"] == DeadReason.UNREADABLE:
        return None  # the bytes are a message's, not a job's
    try:
        job = decode_job(letter["body"])
        job.payload()
    except UnreadableMessage:
        return None
    return job.payload_json


def _iso(instant: datetime | None) -> str | None:
    return None if instant is None else instant.astimezone(UTC).isoformat().replace("+00:00", "Z")
