"""History: everything that is known once all is quiet. Times are unix seconds, instants microseconds."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple, TypeAlias

import asyncpg

from mainspring.schema.ids import parse_job_id, to_microseconds
from tests.acceptance.scheduler.observer import Observer
from tests.acceptance.worker.journal import Line
from tests.robustness.faults import Fault
from tests.robustness.traffic import Operation
from tests.robustness.watch import Look
from tests.robustness.world import World

Occurrence: TypeAlias = tuple[int, int]
"""job_id, scheduled_at."""
Key: TypeAlias = tuple[int, int, int]
"""job_id, scheduled_at, attempt."""


class Version(NamedTuple):
    """A job as one committed change has left it."""

    job_id: int
    version: int
    xid: int
    committed_at: float
    status: str
    kind: str
    schedule: str
    timezone: str
    shard: int
    valid_from: datetime
    run_at: int | None
    ends_at: float | None
    jitter: int
    grace: int
    missed_window: str
    overlap: str
    max_retries: int
    on_failure: str
    handler: str
    name: str | None
    fails: int


class Timer(NamedTuple):
    """A timer as one committed change has left it."""

    key: Key
    cause: str
    due_at: float
    committed_at: float


class Run(NamedTuple):
    """One attempt, as Postgres has it."""

    job_id: int
    scheduled_at: int
    attempt: int
    status: str
    worker: str
    claimed_at: float
    error: str | None

    @property
    def key(self) -> Key:
        return self.job_id, self.scheduled_at, self.attempt

    @property
    def occurrence(self) -> Occurrence:
        return self.job_id, self.scheduled_at


class Letter(NamedTuple):
    key: Key
    reason: str


class Second(NamedTuple):
    """A row of the books, beside what the claims say."""

    shard: int
    second: int
    published: int
    claimed: int
    repaired: int
    written_off: int
    taken: int


class Said(NamedTuple):
    """What a handler wrote."""

    key: Key
    what: str
    mark: int | None
    at: float


@dataclass(slots=True)
class History:
    """See the page above."""

    seed: int
    closes_at: float
    operations: list[Operation] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    versions: list[Version] = field(default_factory=list)
    timers: list[Timer] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    said: list[Said] = field(default_factory=list)
    letters: list[Letter] = field(default_factory=list)
    effects: list[Occurrence] = field(default_factory=list)
    parents: dict[int, set[int]] = field(default_factory=dict)
    seconds: list[Second] = field(default_factory=list)
    looks: dict[int, list[Look]] = field(default_factory=dict)
    went_back: list[str] = field(default_factory=list)
    double_leads: list[tuple[int, int]] = field(default_factory=list)
    lives: dict[str, str] = field(default_factory=dict)
    """Which process a worker's life was of."""
    books_judged: bool = False
    """Whether the bookkeeper has had its time."""
    complaints: list[str] = field(default_factory=list)
    """What no process should ever log."""


async def collect(
    world: World, seed: int, closes_at: float, operations: list[Operation], faults: list[Fault]
) -> History:
    """Everything, once all is quiet."""
    history = History(seed, closes_at, operations, faults)
    async with world.database.acquire() as connection:
        await connection.execute("SET statement_timeout = 0")
        history.versions = [_version(row) for row in await connection.fetch(_VERSIONS, timeout=300)]
        history.timers = [_timer(row) for row in await connection.fetch(_TIMERS, timeout=300)]
        history.runs = [_run(row) for row in await connection.fetch(_RUNS, timeout=300)]
        history.letters = [
            Letter(_key(row), row["reason"])
            for row in await connection.fetch("SELECT * FROM dead_letters WHERE job_id IS NOT NULL")
        ]
        history.effects = [
            (parse_job_id(row["job_id"]), to_microseconds(row["scheduled_at"]))
            for row in await connection.fetch("SELECT job_id, scheduled_at FROM done")
        ]
        history.seconds = [Second(**row) for row in await connection.fetch(_SECONDS, timeout=300)]
        history.parents = _parents(await connection.fetch("SELECT * FROM watched_dependencies"))
    history.said = [_said(line) for line in world.journal.lines]
    _look_back(history, world.watcher, world.watcher.looks)
    history.lives = {life: each.log.stem for each in world.workers for life in each.identities}
    # A busy machine may hold up an event loop for a second.
    history.complaints = [
        f"{each.log.name}: {line}" for each in world.processes for line in each.faults("loop_blocked")
    ]
    return history


def _look_back(history: History, observer: Observer, looks: dict[int, list[Look]]) -> None:
    history.looks = dict(looks)
    history.went_back = observer.went_back
    history.double_leads = observer.double_leads()


def _parents(rows: Iterable[asyncpg.Record]) -> dict[int, set[int]]:
    found: dict[int, set[int]] = {}
    for row in rows:
        found.setdefault(row["job_id"], set()).add(row["parent_id"])
    return found


def _version(record: asyncpg.Record) -> Version:
    row: dict[str, Any] = json.loads(record["row"])
    return Version(
        job_id=row["id"],
        version=row["version"],
        xid=record["xid"],
        committed_at=record["committed_at"].timestamp(),
        status=row["status"],
        kind=row["kind"],
        schedule=row["schedule"],
        timezone=row["timezone"],
        shard=row["shard"],
        valid_from=datetime.fromisoformat(row["valid_from"]),
        run_at=None if row["run_at"] is None else to_microseconds(datetime.fromisoformat(row["run_at"])),
        ends_at=None if row["ends_at"] is None else datetime.fromisoformat(row["ends_at"]).timestamp(),
        jitter=row["jitter_seconds"],
        grace=row["grace_seconds"],
        missed_window=row["missed_window"],
        overlap=row["overlap"],
        max_retries=row["max_retries"],
        on_failure=row["on_failure"],
        handler=row["handler"],
        name=row["name"],
        fails=int(row["labels"].get("fails", 0)),
    )


def _timer(record: asyncpg.Record) -> Timer:
    due_at, committed_at = record["due_at"].timestamp(), record["committed_at"].timestamp()
    return Timer(_key(record), record["cause"], due_at, committed_at)


def _run(row: asyncpg.Record) -> Run:
    return Run(*_key(row), row["status"], row["worker_id"], row["claimed_at"].timestamp(), row["error"])


def _key(row: asyncpg.Record) -> Key:
    return row["job_id"], to_microseconds(row["scheduled_at"]), row["attempt"]


def _said(line: Line) -> Said:
    what, _, mark = line.what.partition(" ")
    return Said((*line.occurrence, line.attempt), what, int(mark) if mark else None, line.at)


# In the order in which they were committed: whoever writes a row has waited for the one before.
_VERSIONS = """
SELECT changed::text::bigint AS xid, pg_xact_commit_timestamp(changed::xid) AS committed_at, row::text
FROM watched_jobs ORDER BY row->'id', number
"""

_TIMERS = """
SELECT (row->>'job_id')::bigint AS job_id, (row->>'scheduled_at')::timestamptz AS scheduled_at,
       (row->>'attempt')::integer AS attempt, row->>'cause' AS cause,
       (row->>'due_at')::timestamptz AS due_at, pg_xact_commit_timestamp(changed::xid) AS committed_at
FROM watched_timers ORDER BY number
"""

_RUNS = """
SELECT job_id, scheduled_at, attempt, status, worker_id, claimed_at, error FROM run_history
"""

_SECONDS = """
WITH taken AS (
    SELECT shard, second, sum(count)::bigint AS taken
    FROM claims, unnest(tally_shards, tally_seconds, tally_counts) AS tally (shard, second, count)
    GROUP BY shard, second
)
SELECT shard, extract(epoch FROM second)::bigint AS second, coalesce(published, 0) AS published,
       coalesce(claimed, 0) AS claimed, coalesce(repaired, 0) AS repaired,
       coalesce(written_off, 0) AS written_off, coalesce(taken, 0) AS taken
FROM ledger FULL JOIN taken USING (shard, second)
"""
