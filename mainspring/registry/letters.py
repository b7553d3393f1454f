"""Dead letters: runs with no attempt left, and messages nobody could read.

A letter is written in the transaction that records the outcome `dead`, by a worker or the reaper, so no
dead run is without one. Writing it again changes nothing: a run has at most one letter. The copy on the
pool's dead-letter topic is made later, from the row.

Letters of one kind have one *fingerprint*: the handler and the error with everything masked that differs
from case to case. Ten thousand failures of one cause are then one line to look at and one redrive.

**Redrive**: the next attempt at the same occurrence, as a timer that is due at once, with a fresh budget of
retries. A letter is redriven again only when the attempt that came of it has ended without success and
without a letter of its own (cancelled, say): anything else would run an occurrence twice. Letters are
locked in order of id, then their jobs; what has become of the occurrence is asked after that, so two
redrives at once are one and a refusal.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, TypedDict, Unpack

import asyncpg

from mainspring.registry import edge
from mainspring.registry.audit import Actor, record
from mainspring.registry.endings import Connection
from mainspring.registry.runs import change, check_limit, make_days
from mainspring.schema.errors import NotFound, RedriveRefused
from mainspring.schema.ids import RunKey, from_microseconds
from mainspring.schema.queries import query
from mainspring.schema.sharding import check_shards, shard_of
from mainspring.schema.states import MAXIMUM_ATTEMPT, DeadReason, JobStatus, Outcome

LONGEST_ERROR = 10_000
LONGEST_TRACEBACK = 100_000
LARGEST_PAGE = 1000
LARGEST_REDRIVE = 10_000

_CONSIDERED = 2_000  # characters of an error that the fingerprint is made of
_QUOTED = re.compile(r"""(?<!\w)(["'`]).*?(?:\1(?!\w)|\Z)""", re.DOTALL)
_ID = re.compile(  # a UUID, an address, a hash, an id of ours
    r"\b(?:[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|(?:0x)?[0-9a-f]{8,}|[jr]_[0-9a-z]{13,28})\b",
    re.IGNORECASE,
)
_WORD_WITH_DIGITS = re.compile(r"\w*\d\w*")
_DIGITS = re.compile(r"\d+")
_NUMBER = re.compile(r"[-+]?#(?:[.,]#)*")  # 17, -17, 1.7 and 1,700 are all a number
# A failed or lost attempt is followed by another one.
_UNDER_WAY = frozenset(outcome.word for outcome in (Outcome.PENDING, Outcome.FAILED, Outcome.LOST))


class Letter(NamedTuple):
    """A run with no attempt left."""

    tenant_id: int
    job_id: int
    scheduled_at: int
    attempt: int
    pool: str
    handler: str
    reason: DeadReason
    error: str
    traceback: str | None
    body: bytes
    """The job's bytes as executed."""


async def bury(connection: Connection, letters: Sequence[Letter]) -> None:
    """Write these letters, linked to those whose redrive they came from: one statement, none for none."""
    if not letters:
        return
    await connection.execute(
        query("bury_letters"),
        [letter.tenant_id for letter in letters],
        [letter.job_id for letter in letters],
        [from_microseconds(letter.scheduled_at) for letter in letters],
        [letter.attempt for letter in letters],
        [letter.pool for letter in letters],
        [_storable(letter.handler) for letter in letters],
        [letter.reason for letter in letters],
        [_storable(letter.error)[:LONGEST_ERROR] for letter in letters],
        # Its end says where it happened.
        [letter.traceback and _storable(letter.traceback)[-LONGEST_TRACEBACK:] for letter in letters],
        [fingerprint(letter.handler, letter.error) for letter in letters],
        [letter.body for letter in letters],
    )


async def bury_unreadable(connection: Connection, pool: str, messages: Sequence[tuple[bytes, str]]) -> None:
    """Keep messages nobody could decode, each whole and with the reason: one statement, none for none.

    They have no key, so the same message read twice is two letters.
    """
    if not messages:
        return
    await connection.execute(
        query("bury_unreadable"),
        pool,
        [_storable(reason)[:LONGEST_ERROR] for _, reason in messages],
        [fingerprint("", reason) for _, reason in messages],
        [message for message, _ in messages],
    )


def fingerprint(handler: str, error: str) -> str:
    """The same for errors of the same kind: 16 hexadecimal digits.

    Quoted values, numbers and ids are masked; only the beginning of a long error counts.
    """
    text = _ID.sub("#", _QUOTED.sub("''", error[:_CONSIDERED]))
    text = _NUMBER.sub("#", _WORD_WITH_DIGITS.sub(_mask, text))
    kind = f"{handler}\0{' '.join(text.split())}"
    return hashlib.sha256(kind.encode("utf-8", "replace")).hexdigest()[:16]


class LetterFilter(TypedDict, total=False):
    """Which letters are meant; what is not given does not matter."""

    fingerprint: str | None
    handler: str | None
    job_id: int | None
    since: datetime | None
    redriven: bool | None


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A letter as it stands. Only `get` brings the last two: a body may have a million bytes."""

    id: int
    tenant_id: int
    job_id: int
    scheduled_at: datetime
    attempt: int
    pool: str
    handler: str
    reason: DeadReason
    error: str | None
    fingerprint: str
    created_at: datetime
    redriven_at: datetime | None
    previous_id: int | None
    traceback: str | None = None
    body: bytes | None = None

    @classmethod
    def from_row(cls, row: asyncpg.Record) -> DeadLetter:
        return cls(**{**row, "reason": DeadReason(row["reason"])})


class Redriven(NamedTuple):
    """What a redrive of many did: the runs to come, and why the others have none."""

    runs: tuple[RunKey, ...]
    refused: tuple[RedriveRefused, ...]


class DeadLetters:
    """What may be done with a tenant's dead letters."""

    def __init__(self, pool: edge.Pool, shards: int) -> None:
        self._pool = pool
        self._shards = check_shards(shards)

    async def find(
        self, tenant_id: int, *, limit: int = 100, after_id: int = 0, **where: Unpack[LetterFilter]
    ) -> list[DeadLetter]:
        """Letters in order of id, after the last one of the page before: one statement."""
        check_limit(limit, LARGEST_PAGE)
        async with edge.connected(self._pool) as connection:
            rows = await connection.fetch(query("find_letters"), tenant_id, *_bounds(where), after_id, limit)
        return [DeadLetter.from_row(row) for row in rows]

    async def count(self, tenant_id: int, **where: Unpack[LetterFilter]) -> int:
        """How many there are: one statement."""
        async with edge.connected(self._pool) as connection:
            count: int = await connection.fetchval(query("count_letters"), tenant_id, *_bounds(where))
        return count

    async def get(self, tenant_id: int, letter_id: int) -> DeadLetter:
        """One letter with its traceback and its bytes: one statement."""
        async with edge.connected(self._pool) as connection:
            row = await connection.fetchrow(query("letter_by_id"), tenant_id, letter_id)
        if row is None:
            raise NotFound("dead letter", letter_id)
        return DeadLetter.from_row(row)

    async def redrive(self, tenant_id: int, ids: Sequence[int], *, by: Actor | None = None) -> list[RunKey]:
        """Let these runs have their next attempt now: all, or none and the first refusal by id.

        Six statements, and the making of days that are gone.
        """
        if not ids:
            return []
        check_limit(len(set(ids)), LARGEST_REDRIVE)
        done = await self._redrive(tenant_id, sorted(set(ids)), by, strict=True)
        return list(done.runs)

    async def redrive_matching(
        self, tenant_id: int, where: LetterFilter, limit: int = 1000, *, by: Actor | None = None
    ) -> Redriven:
        """The same for the first `limit` letters that match; those that cannot be redriven stay behind.

        Unless the filter says otherwise, only letters that were never redriven, so a call after the other
        takes them all. Seven statements.
        """
        check_limit(limit, LARGEST_REDRIVE)
        if where.get("redriven") is None:
            where = {**where, "redriven": False}
        async with edge.connected(self._pool) as connection:
            rows = await connection.fetch(query("letters_to_redrive"), tenant_id, *_bounds(where), limit)
        ids = [row["id"] for row in rows]
        return await self._redrive(tenant_id, ids, by, strict=False)

    async def preview_redrive(
        self,
        tenant_id: int,
        ids: Sequence[int] | None = None,
        *,
        limit: int = 1000,
        **where: Unpack[LetterFilter],
    ) -> tuple[list[int], list[RedriveRefused]]:
        """Which letters a redrive would take now, and which not: two statements."""
        check_limit(limit, LARGEST_REDRIVE)
        where = {**where, "redriven": bool(where.get("redriven"))}
        async with edge.connected(self._pool) as connection:
            if ids is None:
                found = await connection.fetch(query("letters_to_redrive"), tenant_id, *_bounds(where), limit)
            else:
                found = await connection.fetch(query("letters_of_tenant"), tenant_id, sorted(set(ids)))
                _refuse_missing(ids, [row["id"] for row in found])
            rows = await connection.fetch(query("judge_letters"), [row["id"] for row in found])
        refusals = {row["id"]: _refusal(row) for row in rows}
        return (
            [letter for letter, refusal in refusals.items() if refusal is None],
            [refusal for refusal in refusals.values() if refusal is not None],
        )

    async def _redrive(
        self, tenant_id: int, ids: Sequence[int], by: Actor | None, *, strict: bool
    ) -> Redriven:
        async with edge.connected(self._pool) as connection:
            days = await connection.fetch(query("days_of_letters"), tenant_id, ids)
            await make_days(connection, [row["day"] for row in days])

        async def work(connection: edge.Connection) -> Redriven:
            locked = await connection.fetch(query("lock_letters"), tenant_id, ids)
            if strict:
                _refuse_missing(ids, [row["id"] for row in locked])
            job_ids = [row["job_id"] for row in locked if row["job_id"]]
            await connection.execute(query("lock_jobs"), job_ids)
            if by is not None and by.handlers is not None:
                by.permit(
                    *[row["handler"] for row in await connection.fetch(query("handlers_of_jobs"), job_ids)]
                )
            rows = await connection.fetch(query("judge_letters"), [row["id"] for row in locked])
            refused = [refusal for row in rows if (refusal := _refusal(row)) is not None]
            if strict and refused:
                raise refused[0]
            left_out = {refusal.letter_id for refusal in refused}
            chosen = [row for row in rows if row["id"] not in left_out]
            runs = await self._write(connection, chosen)
            if chosen:
                after = {"count": len(chosen), "letters": [row["id"] for row in chosen[:100]]}
                subject = f"dead_letter:{chosen[0]['id']}"
                await record(connection, tenant_id, by, "redrive", subject, after=after)
            return Redriven(runs, tuple(refused))

        return await change(self._pool, "these dead letters", work, by)

    async def _write(self, connection: edge.Connection, rows: Sequence[asyncpg.Record]) -> tuple[RunKey, ...]:
        runs = tuple(RunKey(row["job_id"], row["scheduled_at"], row["next_attempt"]) for row in rows)
        await connection.execute(
            query("redrive_letters"),
            [row["id"] for row in rows],
            [shard_of(run.job_id, self._shards) for run in runs],
            [run.job_id for run in runs],
            [run.scheduled_at for run in runs],
            [run.attempt for run in runs],
        )
        return runs


def _refuse_missing(ids: Sequence[int], found: Sequence[int]) -> None:
    missing = set(ids).difference(found)
    if missing:
        raise NotFound("dead letter", min(missing))


def _bounds(where: LetterFilter) -> tuple[Any, ...]:
    """The parameters of the filter, in the order of the queries."""
    return tuple(where.get(name) for name in ("fingerprint", "handler", "job_id", "since", "redriven"))


def _refusal(row: asyncpg.Record) -> RedriveRefused | None:
    """Why the letter cannot be redriven, if so; the row is one of `judge_letters`."""
    status = reason = None
    if row["job_id"] is None:
        status, reason = "unreadable", "nobody could read the message"
    elif row["job_status"] in (None, JobStatus.DELETED):
        status, reason = "deleted", "its job is deleted"
    elif row["newer_id"] is not None:
        status, reason = "redriven", f"it was, and the run died again: redrive {row['newer_id']}"
    elif row["later"] == Outcome.SUCCEEDED.word:
        status, reason = "succeeded", "a later attempt has succeeded"
    elif row["has_timer"] or row["later"] in _UNDER_WAY or (row["redriven_at"] and row["later"] is None):
        status, reason = "redriven", "the attempt after it has not ended yet"
    elif row["next_attempt"] > MAXIMUM_ATTEMPT:
        status, reason = "exhausted", f"it has had all {MAXIMUM_ATTEMPT} attempts"
    return None if reason is None else RedriveRefused(row["id"], str(status), reason)


def _mask(word: re.Match[str]) -> str:
    """`S3Error` and `order17` keep their letters; what has digits in several places is an id."""
    masked = _DIGITS.sub("#", word[0])
    return masked if masked.count("#") == 1 else "#"


def _storable(text: str) -> str:
    """Postgres takes no NUL, and UTF-8 has no lone surrogates; an error message may contain both."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode("utf-8")
