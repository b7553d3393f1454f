"""What a leader writes: terms, marks with their ledger rows, and what must be true together with a mark.

Every write of a mark carries leader and epoch. A row that does not match is somebody else's shard: it is not
changed, is missing in the answer, and ends the term here. All else in the transaction (ledger, dead letters,
deferred runs, missed counts) is written for the shards that answered, under the row locks of that first
statement.

`Settlement` is what has been published and is not yet in Postgres. It grows while Postgres is away, and
is written whole when it is back. A commit whose answer was lost is repeated: the marks are the same, and
a ledger row counted twice makes the bookkeeper look once at a second where nothing is missing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import NamedTuple, cast

import asyncpg

from mainspring.kafka.publisher import Refused
from mainspring.postgres import database_errors
from mainspring.scheduler.reading import Position
from mainspring.scheduler.terms import Term
from mainspring.schema.ids import from_microseconds
from mainspring.schema.messages import decode, encode_job
from mainspring.schema.partitions import ensure_days
from mainspring.schema.queries import query
from mainspring.schema.snapshot import Snapshot

DEFER_SECONDS = 30
"""When a run whose topic took nothing is tried again."""

_DELETED_AT_ONCE = 10_000


class TakenShard(NamedTuple):
    """A shard that is ours from now on, and where its last leader stood."""

    term: Term
    seen: Snapshot | None  # None: counted in the transaction ids of another timeline
    seen_at: datetime


class MissedKey(NamedTuple):
    """Where a number of occurrences was given up."""

    shard: int
    cadence_id: int
    gap_from: int
    gap_to: int


@dataclass(slots=True)
class Settlement:
    """Published, but not yet known to Postgres."""

    # By term, not by shard: a shard taken anew meanwhile must not have its mark moved by what came before.
    through: dict[Term, int] = field(default_factory=dict)
    ledger: Counter[tuple[int, int]] = field(default_factory=Counter)
    missed: Counter[MissedKey] = field(default_factory=Counter)
    too_large: list[Refused] = field(default_factory=list)
    deferred: list[Refused] = field(default_factory=list)
    position: Position | None = None


class Marks:
    """The writing side, on a connection of its own so that nothing else can hold up a mark."""

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record], leader: str) -> None:
        self._pool = pool
        self._leader = leader
        self._days: set[date] = set()

    async def take(self, shards: Collection[int]) -> list[TakenShard]:
        """Begin a term for each shard: one statement."""
        with database_errors():
            rows = await self._pool.fetch(query("take_shards"), list(shards), self._leader)
        return [_taken(row) for row in rows]

    async def confirm(self, terms: Collection[Term]) -> set[int]:
        """The shards among these that are still ours: one statement."""
        with database_errors():
            rows = await self._pool.fetch(
                query("confirm_terms"),
                [term.shard for term in terms],
                [term.epoch for term in terms],
                self._leader,
            )
        return {row["shard"] for row in rows}

    async def settle(self, settlement: Settlement, terms: Collection[Term]) -> set[int]:
        """Write it for those of these terms that are still ours: their shards. One transaction, 1–5
        statements.
        """
        assert settlement.position is not None
        with database_errors():
            await self._ensure_days(settlement)
            async with self._pool.acquire() as connection, connection.transaction():
                ours = await self._move(connection, settlement, settlement.position, terms)
                await self._account(connection, settlement, ours)
                return ours

    async def delete_timers(self, timers: Sequence[tuple[int, int]]) -> None:
        """Delete fired timers, by id and version; behind the mark, so a crash before it fires them again."""
        for start in range(0, len(timers), _DELETED_AT_ONCE):
            batch = timers[start : start + _DELETED_AT_ONCE]
            with database_errors():
                await self._pool.execute(
                    query("delete_timers"), [each[0] for each in batch], [each[1] for each in batch]
                )

    async def move_bounds(self, bounds: Sequence[tuple[int, int, int]], tzdata: str) -> None:
        """Raise lower bounds of cadences, given as (id, next, passed): one statement."""
        with database_errors():
            await self._pool.execute(
                query("move_bounds"),
                [bound[0] for bound in bounds],
                [_second(bound[1]) for bound in bounds],
                [_second(bound[2]) for bound in bounds],
                tzdata,
            )

    async def is_from_the_future(self) -> bool:
        """Whether rows carry transaction ids that this server has not reached; `rebase` mends it."""
        with database_errors():
            return bool(await self._pool.fetchval(query("changed_in_the_future")))

    async def _move(
        self,
        connection: asyncpg.pool.PoolConnectionProxy[asyncpg.Record],
        settlement: Settlement,
        position: Position,
        terms: Collection[Term],
    ) -> set[int]:
        rows = await connection.fetch(
            query("move_marks"),
            [term.shard for term in terms],
            [term.epoch for term in terms],
            [_second(settlement.through[term]) for term in terms],
            self._leader,
            str(position.snapshot),
            position.at,
        )
        return {row["shard"] for row in rows}

    async def _account(
        self,
        connection: asyncpg.pool.PoolConnectionProxy[asyncpg.Record],
        settlement: Settlement,
        ours: set[int],
    ) -> None:
        # Not every count is a row: of a second whose every message was refused nothing was published.
        ledger = [(key, count) for key, count in settlement.ledger.items() if key[0] in ours and count > 0]
        if ledger:
            await connection.execute(
                query("add_to_ledger"),
                [shard for (shard, _), _ in ledger],
                [_second(second) for (_, second), _ in ledger],
                [count for _, count in ledger],
            )
        missed = _by_gap(settlement.missed, ours)
        if missed:
            await connection.execute(
                query("add_missed"),
                [cadence_id for cadence_id, _ in missed],
                [_second(gap_from) for gap_from, _ in missed.values()],
                [_second(gap_to) for _, gap_to in missed],
                [count for _, count in missed.values()],
            )
        await _defer(connection, settlement.deferred, ours)
        await _bury(connection, settlement.too_large, ours)

    async def _ensure_days(self, settlement: Settlement) -> None:
        """Late work may lie on a day that has no table any more; whoever needs one makes it."""
        days = {_second(second).date() for _, second in settlement.ledger} - self._days
        if not days:
            return
        async with self._pool.acquire() as connection:
            await ensure_days(cast("asyncpg.Connection[asyncpg.Record]", connection), days)
        # Only days to come stay: those behind may be removed again while we run.
        today = max(_second(second).date() for second in settlement.through.values())
        self._days = {day for day in self._days | days if day >= today}


def _by_gap(missed: Mapping[MissedKey, int], ours: set[int]) -> dict[tuple[int, int], tuple[int, int]]:
    """One row per cadence and end of a gap, in however many steps it was caught up: since when, how many."""
    found: dict[tuple[int, int], tuple[int, int]] = {}
    for key, count in missed.items():
        if key.shard in ours and count:
            gap_from, before = found.get((key.cadence_id, key.gap_to), (key.gap_from, 0))
            found[key.cadence_id, key.gap_to] = min(gap_from, key.gap_from), before + count
    return found


async def _defer(
    connection: asyncpg.pool.PoolConnectionProxy[asyncpg.Record], refused: Iterable[Refused], ours: set[int]
) -> None:
    decoded = [decode(message.value) for message in refused]
    # One statement cannot write a row twice, and a run that was published twice may have been refused twice.
    messages = {(each.job.job_id, each.scheduled_at, each.attempt): each for each in decoded}.values()
    if messages:
        await connection.execute(
            query("defer_runs"),
            [message.shard for message in messages],
            [message.job.job_id for message in messages],
            [from_microseconds(message.scheduled_at) for message in messages],
            [message.attempt for message in messages],
            [message.retries for message in messages],
            [message.losses for message in messages],
            list(ours),
            DEFER_SECONDS,
        )


async def _bury(
    connection: asyncpg.pool.PoolConnectionProxy[asyncpg.Record], refused: Iterable[Refused], ours: set[int]
) -> None:
    letters = [(message, decode(message.value)) for message in refused]
    letters = [(message, decoded) for message, decoded in letters if decoded.shard in ours]
    if letters:
        await connection.execute(
            query("add_dead_letters"),
            [decoded.job.tenant_id for _, decoded in letters],
            [decoded.job.job_id for _, decoded in letters],
            [from_microseconds(decoded.scheduled_at) for _, decoded in letters],
            [decoded.attempt for _, decoded in letters],
            [message.topic.split(".")[1] for message, _ in letters],
            [decoded.job.handler for _, decoded in letters],
            [message.reason for message, _ in letters],
            [encode_job(decoded.job) for _, decoded in letters],
        )


def _taken(row: asyncpg.Record) -> TakenShard:
    mark = int(row["fired_through"].timestamp())
    gap_to = int(row["gap_to"].timestamp())
    same_world = row["timeline"] == row["current_timeline"]
    return TakenShard(
        Term(row["shard"], row["epoch"], mark=mark, gap_to=gap_to if gap_to > mark else None),
        Snapshot.parse(row["seen"]) if same_world else None,
        row["seen_at"],
    )


def _second(second: int) -> datetime:
    return from_microseconds(second * 1_000_000)
