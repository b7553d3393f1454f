"""The books in Postgres: what was published, what arrived, and what should have.

`ledger` is authoritative. Leaders add to `published`; the bookkeeper counts the tallies of claims into
`claimed`, each claim once, because the position moves in the same statement. A row whose numbers agree costs
nothing any more: it has left the index of the short ones.

**What should have been there** is derived again, with the leader's own rules (`rosters.Individual`), from
what is stored now:

    recurring   the cadences of the shard: the newest occurrence up to the second, if with the member's jitter
                it was due in that very second
    one-offs    jobs of kind `at` whose instant, with its jitter, was due then
    promised    attempts after a failure or a loss, released dependents, redriven letters, runs put off for
                want of a handler. Their second is not stored: they are taken oldest first, and not more of
                them than the second lacks

What has a run, a timer or a dead letter has arrived. The rest is *expected*, and `balance` decides about it.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple, TypeAlias, cast

import asyncpg

from mainspring.postgres import database_errors
from mainspring.schedule import Cadence, Verdict, decide, jitter_offset
from mainspring.schedule.wall import to_datetime
from mainspring.scheduler.duties.reaper import spent
from mainspring.scheduler.reading import CadenceRow, seconds
from mainspring.scheduler.rosters import GroupKey, Individual
from mainspring.schema.errors import InvalidInput
from mainspring.schema.ids import from_microseconds, to_microseconds
from mainspring.schema.partitions import ensure_days
from mainspring.schema.queries import query
from mainspring.schema.states import JobStatus, MissedPolicy

MOST_REPAIRS = 3
CLAIM_AGE = timedelta(seconds=30)
"""No claim's transaction is older than this: a worker that stops inside one is dead and ended before."""

_STEP = timedelta(minutes=10)  # of claims counted in one round
_REACH = timedelta(days=1)  # how long before its second an attempt may have been promised
_LONGEST_JITTER = timedelta(days=1)
_SECONDS_AT_ONCE = 200
_MESSAGES_AT_ONCE = 50_000
_FETCH = 2000
_TURN = 200  # cadences evaluated before others may go on
_SECOND = timedelta(seconds=1)
_MICROSECONDS = 1_000_000

Pool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"
Key: TypeAlias = tuple[int, int]
"""A shard and a second."""


class Page(NamedTuple):
    """A row of the ledger that is short by `short` messages."""

    shard: int
    second: int
    short: int
    published: int
    claimed: int
    repairs: int
    written_off: int
    published_at: datetime

    @property
    def key(self) -> Key:
        return self.shard, self.second


class Expected(NamedTuple):
    """A message of a second of which nothing is to be found."""

    shard: int
    second: int
    job_id: int
    scheduled_at: int
    pool: str
    attempt: int = 1
    retries: int = 0
    losses: int = 0
    cadence_id: int | None = None
    too_late: bool = False
    """By the job's missed-window policy."""
    held: bool = False
    """Its job is paused or deleted: it would have been recalled."""

    @property
    def is_to_run(self) -> bool:
        return not self.too_late and not self.held


class Promised(NamedTuple):
    """An attempt that should exist; its second is the one that has been found to lack it."""

    expected: Expected
    since: datetime


@dataclass(slots=True)
class Balance:
    """What becomes of a page."""

    page: Page
    repair: list[Expected] = field(default_factory=list)
    too_late: list[Expected] = field(default_factory=list)
    shortfall: int = 0
    """Missing still, after as many repairs as there may be."""
    unexplained: int = 0
    """Nothing that was due is missing: counted twice, or not to be derived."""
    written_off: int = 0
    waits: bool = False
    """Perhaps it is still in Kafka."""

    @property
    def repaired(self) -> int:
        return min(len(self.repair), self.page.short)


class Counted(NamedTuple):
    """How far the claims have been counted, at what time, and into how many seconds."""

    through: datetime
    now: datetime
    seconds: int


def balance(page: Page, expected: Sequence[Expected], lagging: Collection[str]) -> Balance:
    """Explain what a page lacks, from the certain to the unknown.

    More may be expected than is short: all that is missing is repaired, but no more is accounted for.
    """
    result, left = Balance(page), page.short
    waiting = [each for each in expected if each.pool in lagging]
    settled = [each for each in expected if each.pool not in lagging]
    missing = [each for each in settled if each.is_to_run]
    if page.repairs < MOST_REPAIRS:
        result.repair = missing
    else:
        result.shortfall = result.written_off = min(len(missing), left)
    left -= min(len(missing), left)
    result.waits = bool(waiting) and left > 0
    left -= min(len(waiting), left)
    given_up = [each for each in settled if not each.is_to_run][:left]
    result.too_late = [each for each in given_up if not each.held]
    result.written_off += len(given_up)
    left -= len(given_up)
    if left and lagging:
        result.waits = True
    elif left:
        result.unexplained = left
        result.written_off += left
    return result


def occurrence(cadence: Cadence, max_jitter: int, second: int) -> int | None:
    """The one occurrence that can have been due in this second: jitter ends before the following one."""
    newest = cadence.newest(to_datetime(second - max(max_jitter, 1)), to_datetime(second), 1)
    return int(newest[0].timestamp()) if newest else None


def expect_member(
    job_id: int, member: Individual, cadence: Cadence, scheduled: int, now: datetime
) -> tuple[int, bool] | None:
    """The second in which a member was due, and whether it is too late by now; None if it was not its own."""
    if not member.owns(scheduled * _MICROSECONDS):
        return None
    following = cadence.next_second(scheduled)
    due = member.due(job_id, scheduled, following)
    if member.ends_at is not None and following is not None and following * _MICROSECONDS >= member.ends_at:
        following = None
    verdict = decide(
        due=to_datetime(due),
        now=now.replace(microsecond=0),
        grace=timedelta(seconds=member.key.grace_seconds),
        policy=member.key.missed_window,
        following=None if following is None else to_datetime(following),
    )
    return due, verdict is Verdict.MISSED


def share_out(
    pages: Sequence[Page], found: Iterable[Expected], promised: Iterable[Promised]
) -> list[Expected]:
    """Give what was promised to the seconds that lack more than can be made good, each once, oldest first.

    What would be given up explains nothing as long as something that should run may be missing: of two
    explanations, the one that executes a run too often is harmless, and the other loses one.
    """
    lacking = Counter({page.key: page.short for page in pages})
    lacking.subtract((each.shard, each.second) for each in found if each.is_to_run)
    queues: defaultdict[int, deque[Promised]] = defaultdict(deque)
    for each in promised:
        queues[each.expected.shard].append(each)
    given: list[Expected] = []
    for page in sorted(pages, key=lambda page: page.published_at):
        queue = queues[page.shard]
        while lacking[page.key] > 0 and queue and queue[0].since <= page.published_at:
            run = queue.popleft().expected
            lacking[page.key] -= run.is_to_run
            given.append(run._replace(second=page.second))
    return given


class Books:
    """The statements of the bookkeeper."""

    def __init__(self, pool: Pool, *, patience: timedelta, retention: timedelta) -> None:
        self._pool = pool
        self._patience = patience
        self._retention = retention

    async def count(self) -> Counted:
        """Count claims into the ledger, at most some minutes of them: two statements."""
        with database_errors():
            row = await self._pool.fetchrow(query("books_position"))
            assert row is not None
            after, now = row["counted_through"], row["now"]
            through = min(now - CLAIM_AGE, after + _STEP)
            if through <= after:
                return Counted(after, now, 0)
            bounds = (after, through, now - self._retention)
            try:
                done = await self._pool.execute(query("count_claims"), *bounds)
            except asyncpg.CheckViolationError:  # of a day that no leader has written yet
                await self._make_days(bounds)
                done = await self._pool.execute(query("count_claims"), *bounds)
        return Counted(through, now, int(done.split()[-1]))

    async def short(self, counted: Counted) -> list[Page]:
        """Seconds that do not balance and have waited long enough, as many as fit into one round."""
        until = counted.through + CLAIM_AGE - self._patience
        with database_errors():
            rows = await self._pool.fetch(
                query("short_seconds"), until, counted.now - self._retention, _SECONDS_AT_ONCE
            )
        pages, messages = list[Page](), 0
        for row in rows:
            messages += row["short"]
            if pages and messages > _MESSAGES_AT_ONCE:
                break
            pages.append(_page(row))
        return pages

    async def pools(self) -> set[str]:
        """Pools that have or had workers."""
        with database_errors():
            return {row["pool"] for row in await self._pool.fetch(query("pools_of_workers"))}

    async def time(self) -> datetime:
        with database_errors():
            now: datetime = await self._pool.fetchval(query("database_time"))
        return now

    async def expected(self, pages: Sequence[Page], now: datetime) -> list[Expected]:
        """What these seconds should have held and of which there is no trace: three or four statements."""
        with database_errors():
            found = [*await self._recurring(pages, now), *await self._one_offs(pages)]
            lacking = sum(page.short for page in pages) - sum(each.is_to_run for each in found)
            if lacking > 0:
                found += share_out(pages, found, await self._promised(pages, now))
        return found

    async def settle(self, balances: Sequence[Balance]) -> dict[Key, int]:
        """Write what was decided: how many timers each second got. One that somebody else had is left out."""
        balances = sorted(balances, key=lambda each: each.page.key)
        runs = [run for each in balances for run in each.repair]
        with database_errors():
            rows = await self._pool.fetch(
                query("settle_seconds"),
                [each.page.shard for each in balances],
                [_instant(each.page.second) for each in balances],
                [each.page.repairs for each in balances],
                [each.page.written_off for each in balances],
                [each.repaired for each in balances],
                [each.written_off for each in balances],
                [each.waits for each in balances],
                [run.shard for run in runs],
                [_instant(run.second) for run in runs],
                [run.job_id for run in runs],
                [from_microseconds(run.scheduled_at) for run in runs],
                [run.attempt for run in runs],
                [run.retries for run in runs],
                [run.losses for run in runs],
            )
        return {(row["shard"], _unix(row["second"])): row["timers"] for row in rows}

    async def record_missed(self, given_up: Iterable[Expected]) -> None:
        """Leave the row that a leader leaves of occurrences it gives up: one statement, if there are any."""
        counts = Counter((each.cadence_id, each.second) for each in given_up)
        if counts:
            with database_errors():
                await self._pool.execute(
                    query("add_missed"),
                    [cadence_id for cadence_id, _ in counts],
                    [_instant(second - 1) for _, second in counts],
                    [_instant(second) for _, second in counts],
                    list(counts.values()),
                )

    async def _make_days(self, bounds: tuple[datetime, datetime, datetime]) -> None:
        rows = await self._pool.fetch(query("days_of_claims"), *bounds)
        async with self._pool.acquire() as connection:
            await ensure_days(
                cast("asyncpg.Connection[asyncpg.Record]", connection), [row["day"] for row in rows]
            )

    async def _recurring(self, pages: Sequence[Page], now: datetime) -> list[Expected]:
        keys = {page.key for page in pages}
        due, cadences = await self._occurrences(keys)
        rows = await self._pool.fetch(
            query("members_without_trace"),
            [cadence_id for cadence_id, _ in due],
            [_instant(scheduled) for _, scheduled in due],
            list(due.values()),
        )
        found = []
        for number, row in enumerate(rows):
            if number % _FETCH == _FETCH - 1:
                await asyncio.sleep(0)
            scheduled = _unix(row["scheduled_at"])
            answer = expect_member(row["id"], _member(row), cadences[row["cadence_id"]], scheduled, now)
            if answer is not None and (row["shard"], answer[0]) in keys:
                found.append(
                    Expected(
                        row["shard"],
                        answer[0],
                        row["id"],
                        scheduled * _MICROSECONDS,
                        row["pool"],
                        cadence_id=row["cadence_id"],
                        too_late=answer[1],
                        held=row["status"] != JobStatus.ACTIVE,
                    )
                )
        return found

    async def _occurrences(
        self, keys: Collection[Key]
    ) -> tuple[dict[tuple[int, int], bool], dict[int, Cadence]]:
        """(cadence, scheduled) of all that can have been due; True if also for members without jitter."""
        by_shard: defaultdict[int, list[int]] = defaultdict(list)
        for shard, second in keys:
            by_shard[shard].append(second)
        due: dict[tuple[int, int], bool] = {}
        cadences: dict[int, Cadence] = {}
        async with self._pool.acquire() as connection, connection.transaction(readonly=True):
            cursor = await connection.cursor(query("cadences_of_shards"), list(by_shard))
            while rows := await cursor.fetch(_FETCH):
                for number, row in enumerate(rows):
                    if number % _TURN == _TURN - 1:
                        await asyncio.sleep(0)  # leaders share this process
                    found = _evaluate(row, by_shard[row["shard"]])
                    if found is not None and found[1]:
                        cadences[row["id"]] = found[0]
                        due |= {(row["id"], scheduled): plain for scheduled, plain in found[1].items()}
        return due, cadences

    async def _one_offs(self, pages: Sequence[Page]) -> list[Expected]:
        keys = {page.key for page in pages}
        first, last = min(page.second for page in pages), max(page.second for page in pages)
        rows = await self._pool.fetch(
            query("one_offs_without_trace"),
            sorted({page.shard for page in pages}),
            _instant(first) - _LONGEST_JITTER - _SECOND,
            _instant(last),
        )
        found = []
        for row in rows:
            jitter = timedelta(seconds=row["jitter_seconds"])
            second = seconds(row["run_at"] + jitter_offset(row["id"], jitter, row["run_at"], following=None))
            if (row["shard"], second) in keys:
                found.append(_timed(row, second, row["run_at"]))
        return found

    async def _promised(self, pages: Sequence[Page], now: datetime) -> list[Promised]:
        rows = await self._pool.fetch(
            query("attempts_without_trace"),
            sorted({page.shard for page in pages}),
            _instant(min(page.second for page in pages)) - _REACH,
            max(page.published_at for page in pages),
            now - self._retention,
            _MESSAGES_AT_ONCE,
        )
        found = []
        for row in rows:
            earlier = zip(row["attempts"] or (), row["statuses"] or (), strict=True)
            expected = _timed(row, 0, row["scheduled_at"])._replace(
                attempt=row["attempt"], **spent(earlier, row["last_letter"])._asdict()
            )
            found.append(Promised(expected, row["since"]))
        return found


def _evaluate(row: asyncpg.Record, wanted: Iterable[int]) -> tuple[Cadence, dict[int, bool]] | None:
    """The occurrences that can have been due in these seconds; None if the cadence cannot be evaluated."""
    try:
        cadence = CadenceRow(**dict(row), next_at=None, tzdata=None).parse()
        found: dict[int, bool] = {}
        for second in wanted:
            scheduled = occurrence(cadence, row["max_jitter"], second)
            if scheduled is not None:
                found[scheduled] = found.get(scheduled, False) or scheduled == second
    except (InvalidInput, ValueError, OverflowError):  # its leader has said so
        return None
    return cadence, found


def _page(row: asyncpg.Record) -> Page:
    return Page(**(dict(row) | {"second": _unix(row["second"])}))


def _member(row: asyncpg.Record) -> Individual:
    key = GroupKey(
        row["priority"],
        row["pool"],
        row["tenant_id"],
        MissedPolicy(row["missed_window"]),
        row["grace_seconds"],
        row["max_missed"],
    )
    starts_at, ends_at = (
        None if instant is None else to_microseconds(instant)
        for instant in (row["starts_at"], row["ends_at"])
    )
    valid_from = to_microseconds(row["valid_from"])
    return Individual(key, b"", valid_from, starts_at, ends_at, row["jitter_seconds"])


def _timed(row: asyncpg.Record, second: int, scheduled_at: datetime) -> Expected:
    """What leaves by a timer: that of a paused job stands until the resume, so only a deleted one is held."""
    return Expected(
        row["shard"],
        second,
        row["id"],
        to_microseconds(scheduled_at),
        row["pool"],
        held=row["status"] == JobStatus.DELETED,
    )


def _instant(second: int) -> datetime:
    return from_microseconds(second * _MICROSECONDS)


def _unix(instant: datetime) -> int:
    return to_microseconds(instant) // _MICROSECONDS
