"""What Postgres accepted: the rows of `shards`, looked at ten times a second on a connection of its own.

Kept are the newest look and what every look is judged by: an epoch has one leader, and neither the mark nor
the epoch goes back. A Postgres that is away is looked for until it is back.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from typing import NamedTuple

import asyncpg

_PAUSE_SECONDS = 0.1
# The last one: the driver takes the parting words of a server for the answer to the next question.
_AWAY = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, TimeoutError, asyncpg.InternalClientError)
_SELECT = """
SELECT shard, epoch, leader, extract(epoch FROM fired_through)::bigint AS mark,
       extract(epoch FROM gap_to)::bigint AS gap_to, extract(epoch FROM clock_timestamp())::float8 AS now,
       pg_snapshot_xmin(seen)::text::bigint AS seen
FROM shards
"""


class ShardRow(NamedTuple):
    """A shard as Postgres has it; instants are unix seconds."""

    epoch: int
    leader: str | None
    mark: int
    gap_to: int | None
    seen: int = 0
    """All transactions below this one have been applied, and what they made due acknowledged."""


class Observer:
    """Looks at the shards until it is stopped."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._looks = 0
        self.shards: dict[int, ShardRow] = {}
        self.now = 0.0
        """The database's clock at the newest look."""
        self.leaders: defaultdict[tuple[int, int], set[str | None]] = defaultdict(set)
        """Who led a shard in an epoch: more than one is a double lead."""
        self.gaps: defaultdict[int, set[int]] = defaultdict(set)
        """Every end of a gap that a shard ever had."""
        self.went_back: list[str] = []

    async def run(self) -> None:
        while True:
            try:
                connection = await asyncpg.connect(self._dsn, timeout=5)
            except _AWAY:
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            try:
                await self._watch(connection)
            except _AWAY:
                pass
            finally:
                connection.terminate()

    @property
    def least_mark(self) -> int:
        """Everything due through this second has been published, says Postgres."""
        return min(row.mark for row in self.shards.values())

    def epochs(self) -> dict[int, int]:
        return {shard: row.epoch for shard, row in self.shards.items()}

    async def fresh(self) -> None:
        """Wait for a look that began after this call."""
        seen = self._looks
        while self._looks < seen + 2:  # noqa: ASYNC110  (the test's deadlines are around it)
            await asyncio.sleep(_PAUSE_SECONDS / 2)

    def led_by(self, identity: str) -> dict[int, ShardRow]:
        return {shard: row for shard, row in self.shards.items() if row.leader == identity}

    async def marks_of(self, terms: Mapping[int, ShardRow]) -> dict[tuple[int, int], int]:
        """The marks, by shard and epoch, of terms that have just been cut off."""
        await self.fresh()
        return {(shard, row.epoch): self.shards[shard].mark for shard, row in terms.items()}

    def is_even(self, identities: Collection[str]) -> bool:
        """Whether exactly these lead, and none of them more than its fair share."""
        counts = Counter(row.leader for row in self.shards.values())
        share = -(-len(self.shards) // len(identities)) if identities else 0
        return counts.keys() == set(identities) and max(counts.values()) <= share

    def double_leads(self) -> list[tuple[int, int]]:
        return [term for term, leaders in self.leaders.items() if len(leaders - {None}) > 1]

    async def _watch(self, connection: asyncpg.Connection[asyncpg.Record]) -> None:
        while True:
            rows = await connection.fetch(_SELECT, timeout=5)
            for row in rows:
                self.now = row["now"]
                found = ShardRow(row["epoch"], row["leader"], row["mark"], row["gap_to"], row["seen"])
                self._note(row["shard"], found)
            self._looks += 1
            await asyncio.sleep(_PAUSE_SECONDS)

    def _note(self, shard: int, row: ShardRow) -> None:
        before = self.shards.get(shard)
        if before is not None and (row.mark < before.mark or row.epoch < before.epoch):
            self.went_back.append(f"{time.time():.3f} shard {shard}: {before} then {row}")
        if row.epoch:
            self.leaders[shard, row.epoch].add(row.leader)
        if row.gap_to is not None and row.gap_to > row.mark:
            self.gaps[shard].add(row.gap_to)
        self.shards[shard] = row
