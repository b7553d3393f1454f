"""Loading: what is due in the next ten minutes, brought into memory before it is due.

Three occasions, one way:

    takeover     a shard was taken: everything from its mark to the horizon, and what is owed from before
    horizon      each minute: what the moving window has newly reached
    request      the feed met a job whose cadence is not in memory

A load is one snapshot. It begins with a poll of the feed, so that the cursor is older than the snapshot;
while it runs, the feed records; when it ends, what was recorded is applied again, and only then is the
result armed. In between nothing of it can fire. A load that fails leaves nothing behind and is tried
again.

Which cadences? `cadences.next_at` is a lower bound, kept low by crashes and raised lazily, so it may name
too many; the cadence itself says whether it is due. Bounds are raised here, of cadences that are not due
before the window ends, and only past what lies behind the mark, jitter included.

Memory holds what is due in the window. A cadence whose next occurrence lies beyond it is let go after firing.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta

import asyncpg
import structlog

from mainspring.schedule import Cadence, tzdata_version
from mainspring.scheduler.feed import Batch, Feed
from mainspring.scheduler.marks import Marks, TakenShard
from mainspring.scheduler.reading import CadenceRow, Reader, TimerRow, read, seconds
from mainspring.scheduler.rosters import JobRow
from mainspring.scheduler.terms import REACH, Term
from mainspring.schema.errors import InvalidInput, MainspringError

WINDOW = 600
"""Seconds that are held in memory ahead of the clock."""

_RETRY_SECONDS = 1.0
_TURN = 200  # cadences evaluated before others may go on

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class _Wanted:
    row: CadenceRow
    cadence: Cadence
    term: Term


@dataclass(slots=True)
class _Loaded:
    """What a load has read, before it is made effective."""

    cadences: list[_Wanted] = field(default_factory=list)
    timers: list[TimerRow] = field(default_factory=list)
    owed: defaultdict[int, list[JobRow]] = field(default_factory=lambda: defaultdict(list))


class Loader:
    """Brings rosters and timers into the terms of this process."""

    def __init__(
        self,
        pool: asyncpg.Pool[asyncpg.Record],
        marks: Marks,
        feed: Feed,
        terms: Mapping[int, Term],
        tasks: asyncio.TaskGroup,
        orphan: Callable[[TimerRow], None],
    ) -> None:
        self._pool = pool
        self._marks = marks
        self._feed = feed
        self._terms = terms
        self._tasks = tasks
        self._orphan = orphan
        self._broken: set[int] = set()
        self._loading = asyncio.Lock()  # one load at a time: two could bring the same cadence

    async def take_over(self, taken: Collection[TakenShard], through: int) -> None:
        """Load shards that were just taken, from their marks on; they are ready to fire afterwards."""
        terms = [each.term for each in taken]
        since = {each.term.shard: seconds(each.seen_at) for each in taken}
        await self._feed.run_once()
        async with self._load(since) as (reader, loaded):
            await self._read_owed(reader, taken, loaded)
            rows = await self._read_window(reader, terms, None, through, loaded, first=True)
        for term in terms:
            term.loaded_through = through
            term.ready = True
        await self._move_bounds(rows, through)

    async def extend(self, through: int) -> None:
        """Let the window of every ready term reach to this second, and raise bounds that lie behind."""
        by_reach: defaultdict[int, list[Term]] = defaultdict(list)
        for term in self._terms.values():
            if term.ready and term.loaded_through < through:
                by_reach[term.loaded_through].append(term)
        for reached, terms in by_reach.items():
            await self._extend(terms, reached, through)

    async def look_ahead(self, after: int, through: int) -> None:
        """Arm all that is due in (after, through] in terms that lead nothing: only reads, moves no bound."""
        terms = list(self._terms.values())
        async with self._load() as (reader, loaded):
            await self._read_window(reader, terms, after, through, loaded, first=True)
        for term in terms:
            term.loaded_through = through
            term.ready = True

    async def _extend(self, terms: list[Term], reached: int, through: int) -> None:
        async with self._load() as (reader, loaded):
            rows = await self._read_window(reader, terms, reached, through, loaded, first=False)
        for term in terms:
            term.loaded_through = through
        await self._move_bounds(rows, through)

    def request(self, rows: Collection[JobRow], done: Callable[[], None]) -> None:
        """Load the cadences of these jobs beside everything else; `done` when they can fire."""
        self._tasks.create_task(self._serve(rows, done), name="load-requested-cadences")

    async def _serve(self, rows: Collection[JobRow], done: Callable[[], None]) -> None:
        while True:
            try:
                await self._load_requested(rows)
            except MainspringError as error:
                log.warning("load_failed", reason=str(error))
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            done()
            return

    async def _load_requested(self, rows: Collection[JobRow]) -> None:
        async with self._load() as (reader, loaded):
            for row in rows:
                if row.cadence_id is not None:
                    loaded.owed[row.cadence_id].append(row)
            found = await self._evaluate(await reader.cadences(list(loaded.owed)))
            wanted = [each for each in found if self._is_due(each) or self._is_owed(each, loaded)]
            await self._read_members(reader, wanted, loaded)

    @asynccontextmanager
    async def _load(self, since: Mapping[int, int] | None = None) -> AsyncIterator[tuple[Reader, _Loaded]]:
        """A snapshot to read from; what was read takes effect at the end, or nothing of it does."""
        async with self._loading:
            loaded = _Loaded()
            with self._feed.recording() as recorded:
                try:
                    async with read(self._pool) as reader:
                        yield reader, loaded
                    self._take_effect(loaded, recorded, reader, since or {})
                except BaseException:
                    for each in loaded.cadences:
                        each.term.abandon(each.row.id)
                    self._feed.reapply(recorded)
                    raise

    async def _read_owed(self, reader: Reader, taken: Collection[TakenShard], loaded: _Loaded) -> None:
        """Jobs changed since the last leader's mark may be owed what lies behind it."""
        for each in taken:
            if each.seen is None or each.seen.xmax > reader.snapshot.xmax:
                rows = await reader.recent_jobs(each.term.shard, each.seen_at - timedelta(seconds=REACH))
            else:
                rows = await reader.changed_jobs(each.seen, [each.term.shard])
            for row in rows:
                if row.active and row.cadence_id is not None:
                    loaded.owed[row.cadence_id].append(row)

    async def _read_window(
        self,
        reader: Reader,
        terms: Sequence[Term],
        after: int | None,
        through: int,
        loaded: _Loaded,
        *,
        first: bool,
    ) -> list[_Wanted]:
        """Read all that is due through this second; every cadence that was looked at."""
        shards = [term.shard for term in terms]
        for term in terms:
            term.horizon = through
        rows = await reader.due_cadences(shards, through, tzdata_version() if first else None)
        extra = set(loaded.owed) - {row.id for row in rows}
        rows += await reader.cadences(extra) if extra else []
        found = await self._evaluate(rows)
        wanted = [each for each in found if self._is_due(each) or each.row.id in loaded.owed]
        await self._read_members(reader, wanted, loaded)
        async for timers in reader.due_timers(shards, after, through):
            loaded.timers += timers
        return found

    async def _read_members(self, reader: Reader, wanted: Iterable[_Wanted], loaded: _Loaded) -> None:
        for each in wanted:
            if each.row.id not in each.term.rosters and each.row.id not in each.term.loading:
                each.term.begin_loading(each.row.id, each.cadence)
                loaded.cadences.append(each)
        async for rows in reader.members([each.row.id for each in loaded.cadences]):
            for row in rows:
                term = self._terms.get(row.shard)
                if term is not None:
                    term.load_member(row)

    def _take_effect(
        self, loaded: _Loaded, recorded: Collection[Batch], reader: Reader, since: Mapping[int, int]
    ) -> None:
        """Arm what was loaded. No await in here: nothing can fire or change before the replay is done."""
        for each in loaded.cadences:
            each.term.adopt(
                each.row.id,
                max_jitter=each.row.max_jitter,
                owed=loaded.owed.pop(each.row.id, ()),
                since=since.get(each.term.shard, each.term.fired),
            )
        for rows in loaded.owed.values():  # of cadences that were there already
            for job in rows:
                if job.shard in self._terms:
                    self._terms[job.shard].owe_member(job, since=self._terms[job.shard].fired)
        for row in loaded.timers:
            term = self._terms.get(row.shard)
            if term is not None and row.timer is not None:
                term.put_timer(row.timer)
            elif row.orphan:
                self._orphan(row)
        self._feed.replay(recorded, reader.snapshot)

    async def _evaluate(self, rows: Iterable[CadenceRow]) -> list[_Wanted]:
        """The cadences that can be evaluated and belong to a term; others are reported once and set aside."""
        found = []
        for number, row in enumerate(rows):
            if number % _TURN == _TURN - 1:
                await asyncio.sleep(0)  # the first look at a cluster evaluates tens of thousands
            term = self._terms.get(row.shard)
            if term is None or row.id in self._broken:
                continue
            try:
                each = _Wanted(row, row.parse(), term)
                each.cadence.next_second(term.fired)
                found.append(each)
            except (InvalidInput, ValueError, OverflowError) as error:
                self._broken.add(row.id)
                log.error("cadence_set_aside", cadence_id=row.id, shard=row.shard, reason=str(error))  # noqa: TRY400
        return found

    @staticmethod
    def _is_due(each: _Wanted) -> bool:
        """Whether anything of it is due within the horizon; by jitter also what lies behind `fired`."""
        following = each.cadence.next_second(each.term.fired - each.row.max_jitter)
        return following is not None and following <= each.term.horizon

    @staticmethod
    def _is_owed(each: _Wanted, loaded: _Loaded) -> bool:
        """Whether an occurrence behind `fired` may belong to one of the changed jobs."""
        oldest = min(row.valid_from // 1_000_000 for row in loaded.owed[each.row.id])
        following = each.cadence.next_second(max(oldest, each.term.fired - REACH))
        return following is not None and following <= each.term.fired

    async def _move_bounds(self, looked_at: Iterable[_Wanted], through: int) -> None:
        """Raise bounds that lie behind; one made with another tzdata is written anew, be it lower."""
        version = tzdata_version()
        bounds = []
        for each in looked_at:
            passed = each.term.mark - each.row.max_jitter
            bound = each.cadence.next_second(passed)
            # Inside the window a low bound costs nothing: the cadence would be looked at anyway.
            foreign = each.row.next_at is not None and each.row.tzdata != version
            if bound is not None and (bound > through or foreign):
                bounds.append((each.row.id, bound, passed))
        if bounds:
            await self._marks.move_bounds(bounds, version)

    @property
    def set_aside(self) -> int:
        """How many cadences cannot be evaluated by this version."""
        return len(self._broken)
