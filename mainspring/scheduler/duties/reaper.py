"""The reaper: what a dead worker left is repaired, and nobody is dead who is only unheard.

Who is authoritative: `workers.dead_at`. Whoever has it set is dead for good, may it wake up later or not; it
is set only while the heartbeat is the one that was watched. What a claim's runs came to is in the claim's
row, under its lock: a flush that was first is kept, a later one finds `reaped_at` and changes nothing.

**Silence** is counted on the monotonic clock, and only between two looks that both succeeded and are a few
seconds apart at most. A look that fails, or comes late, ends every count: Postgres was away, or this process
was stopped, and who could not be heard meanwhile gets the full silence again. A look also commits a write,
because a Postgres that answers and takes no writes lets nobody renew a heartbeat.

A round, in this order:

    look       who has been silent for too long?
    declare    `dead_at`, if the heartbeat is still that one
    terminate  the backends of all who are dead, until they are gone. A client that was stopped inside COPY
               holds its locks through every timeout there is, and the heir of its partition waits for them
    reap       open claims of workers that are dead, stopped or unknown, one transaction each

Every step asks Postgres what is to do, not this object: a reaper that dies half-way leaves the rest to the
next one, and two at once skip each other's claims.

**What is not stored** is derived. `runs` does not say how many retries and losses an attempt had behind it,
so they are counted from the earlier attempts at the occurrence, back to its last dead letter (a redrive
begins anew): retries are those that `failed`, losses those that were `lost` directly before this one. An
attempt that was recalled by a pause, or handed back by a worker that stopped, says nothing about the job and
interrupts no row of losses.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple, cast

import asyncpg
import structlog

from mainspring.clock import Clock
from mainspring.postgres import database_errors
from mainspring.registry.endings import Ended, end_runs
from mainspring.registry.letters import Letter, bury
from mainspring.schema.errors import DatabaseUnavailable
from mainspring.schema.ids import to_microseconds
from mainspring.schema.queries import query
from mainspring.schema.states import MAXIMUM_ATTEMPT, DeadReason, JobKind, Outcome, Overlap

SILENCE = timedelta(seconds=15)
FATAL_LOSSES = 5
LONGEST_GAP_SECONDS = 5.0
"""Two looks further apart than this say nothing about the time between them."""

# A round must leave time for the next look: pause, these two and one claim stay below the longest gap.
_TERMINATION_TRIES = 20
_TERMINATION_PAUSE_SECONDS = 0.05
_REAPING_SECONDS = 2.0
_CLAIMS_AT_ONCE = 100
_NO_LOSS = ("recalled", "handed back")

log = structlog.get_logger()


@dataclass(slots=True)
class Reaped:
    """What one round did."""

    workers: int = 0
    """Declared dead."""
    backends: int = 0
    """Told to end."""
    lingering: int = 0
    """Still there after the wait; the claims of their workers are left for the next round."""
    claims: int = 0
    lost: int = 0
    """Runs that were lost, the dead ones not among them."""
    dead: int = 0
    """Runs that had killed too many workers: dead letters."""
    released: int = 0
    """Dependents."""


class Spent(NamedTuple):
    """What an attempt had behind it."""

    retries: int
    losses: int


def spent(earlier: Iterable[tuple[int, str]], last_letter: int | None) -> Spent:
    """Count back through earlier attempts and their statuses, newest first, to the last dead letter."""
    retries = losses = 0
    in_a_row = True
    for attempt, status in earlier:
        if status == "dead" or attempt <= (last_letter or 0):
            break
        retries += status == "failed"
        in_a_row = in_a_row and status in ("lost", *_NO_LOSS)
        losses += in_a_row and status == "lost"
    return Spent(retries, losses)


@dataclass(slots=True)
class _Watched:
    heartbeat: int
    silent: float = 0.0


@dataclass(slots=True)
class Watch:
    """For how long each heartbeat has been seen unchanged; see the page above."""

    silence: float
    _watched: dict[str, _Watched] = field(default_factory=dict)
    _looked: float | None = None

    def forget(self) -> None:
        """Begin anew with everybody."""
        self._watched.clear()
        self._looked = None

    def look(self, heartbeats: Mapping[str, int], *, asked: float, answered: float) -> dict[str, int]:
        """Those that are silent for too long, with the heartbeat they stopped at.

        The values were read at some moment between `asked` and `answered`, so the time that surely lies
        between two looks goes from the answer of the first to the question of the second.
        """
        if self._looked is not None and answered - self._looked > LONGEST_GAP_SECONDS:
            self.forget()
        passed = asked - self._looked if self._looked is not None else 0.0
        before, self._watched = self._watched, {}
        for worker, heartbeat in heartbeats.items():
            known = before.get(worker)
            same = known is not None and known.heartbeat == heartbeat
            silent = known.silent + passed if known is not None and same else 0.0
            self._watched[worker] = _Watched(heartbeat, silent)
        self._looked = answered
        return {
            worker: watched.heartbeat
            for worker, watched in self._watched.items()
            if watched.silent >= self.silence
        }


class _Loss(NamedTuple):
    """A run without an outcome, and what becomes of it."""

    run: asyncpg.Record
    outcome: Outcome
    spent: Spent


class Reaper:
    """Declares workers dead and reaps the claims that nobody will finish."""

    pause = timedelta(seconds=1)

    def __init__(
        self, pool: asyncpg.Pool[asyncpg.Record], clock: Clock, silence: timedelta = SILENCE
    ) -> None:
        self._pool = pool
        self._clock = clock
        self._silence = silence
        self._watch = Watch(silence.total_seconds())

    async def run_once(self) -> Reaped:
        """One round; three queries when there is nothing to do."""
        reaped = Reaped()
        try:
            await self._declare(await self._look(), reaped)
        except DatabaseUnavailable:
            self._watch.forget()
            raise
        lingering = await self._terminate(reaped)
        await self._reap(lingering, reaped)
        return reaped

    async def _look(self) -> dict[str, int]:
        asked = self._clock.monotonic()
        with database_errors():
            rows = await self._pool.fetch(query("living_workers"))
        heartbeats = {row["id"]: row["heartbeat"] for row in rows}
        return self._watch.look(heartbeats, asked=asked, answered=self._clock.monotonic())

    async def _declare(self, silent: Mapping[str, int], reaped: Reaped) -> None:
        for worker, heartbeat in silent.items():
            with database_errors():
                dead = await self._pool.fetchval(query("declare_dead"), worker, heartbeat)
            if dead is not None:
                reaped.workers += 1
                log.warning("worker_dead", worker=worker, heartbeat=heartbeat)

    async def _terminate(self, reaped: Reaped) -> list[str]:
        """End the backends of the dead; the dead whose backends are still there after the wait."""
        told: set[int] = set()
        for _ in range(_TERMINATION_TRIES):
            with database_errors():
                rows = await self._pool.fetch(query("end_backends_of_the_gone"), self._silence)
            told |= {row["pid"] for row in rows}
            reaped.backends, reaped.lingering = len(told), len(rows)
            if not rows:
                return []
            await asyncio.sleep(_TERMINATION_PAUSE_SECONDS)
        workers = sorted({row["id"] for row in rows})
        log.warning("backends_linger", workers=workers, backends=len(rows))
        return workers

    async def _reap(self, lingering: Collection[str], reaped: Reaped) -> None:
        """Reap claims until none is left or the round has lasted long enough."""
        end = self._clock.monotonic() + _REAPING_SECONDS
        tried: list[int] = []
        while self._clock.monotonic() < end:
            with database_errors():
                rows = await self._pool.fetch(
                    query("claims_without_a_worker"), self._silence, list(lingering), tried, _CLAIMS_AT_ONCE
                )
            if not rows:
                return
            for row in rows:
                if self._clock.monotonic() >= end:
                    return
                tried.append(row["id"])
                await self._try_claim(row["id"], reaped)

    async def _try_claim(self, claim_id: int, reaped: Reaped) -> None:
        """Reap one claim; what is wrong with it must not keep the others."""
        try:
            with database_errors():
                async with self._pool.acquire() as pooled, pooled.transaction():
                    connection = cast("asyncpg.Connection[asyncpg.Record]", pooled)
                    one = await reap_claim(connection, claim_id)
        except asyncpg.PostgresError as error:
            log.error("claim_not_reaped", claim=claim_id, reason=str(error))  # noqa: TRY400  (a statement, not a fault)
            return
        reaped.claims += one.claims
        reaped.lost += one.lost
        reaped.dead += one.dead
        reaped.released += one.released
        if one.claims:
            log.info("claim_reaped", claim=claim_id, lost=one.lost, dead=one.dead)


async def reap_claim(connection: asyncpg.Connection[asyncpg.Record], claim_id: int) -> Reaped:
    """Turn what has no outcome into lost runs and next attempts, inside the caller's transaction.

    Five statements for any number of runs, some more where there are dead letters, overlap slots or
    dependents. Nothing happens when somebody else holds the claim, or it is over.
    """
    claim = await connection.fetchrow(query("lock_open_claim"), claim_id)
    if claim is None:
        return Reaped()
    outcomes = bytearray(claim["outcomes"])
    open_positions = [position for position, byte in enumerate(outcomes) if byte == Outcome.PENDING]
    rows = await connection.fetch(query("unfinished_runs"), claim_id, open_positions, FATAL_LOSSES)
    losses = [_judge(row) for row in rows]
    for position in open_positions:
        outcomes[position] = Outcome.LOST
    for loss in losses:
        outcomes[loss.run["position"]] = loss.outcome
    await _record(connection, claim, losses)
    await _go_on(connection, [loss for loss in losses if loss.outcome is Outcome.LOST])
    dead = [loss for loss in losses if loss.outcome is Outcome.DEAD]
    await bury(connection, [_letter(loss, claim["worker_id"]) for loss in dead])
    released = await end_runs(connection, [_ended(loss) for loss in losses])
    await connection.execute(query("mark_claim_reaped"), claim_id, bytes(outcomes))
    return Reaped(claims=1, lost=len(open_positions) - len(dead), dead=len(dead), released=released)


def _judge(run: asyncpg.Record) -> _Loss:
    before = spent(zip(run["attempts"] or (), run["statuses"] or (), strict=True), run["last_letter"])
    fatal = before.losses + 1 >= FATAL_LOSSES or run["attempt"] >= MAXIMUM_ATTEMPT
    # Nobody waits for the next attempt of a deleted job, nor for its letter.
    dead = fatal and not run["job_is_gone"]
    return _Loss(run, Outcome.DEAD if dead else Outcome.LOST, before)


async def _record(
    connection: asyncpg.Connection[asyncpg.Record], claim: asyncpg.Record, losses: Sequence[_Loss]
) -> None:
    """Rows in `failures`; a run whose job is collected has no tenant any more, and none there."""
    known = [loss for loss in losses if loss.run["tenant_id"] is not None]
    if known:
        await connection.execute(
            query("add_lost_failures"),
            [loss.run["job_id"] for loss in known],
            [loss.run["scheduled_at"] for loss in known],
            [loss.run["attempt"] for loss in known],
            [loss.run["tenant_id"] for loss in known],
            [loss.outcome.word for loss in known],
            [_started_at(claim, loss.run["position"]) for loss in known],
            _error(claim["worker_id"]),
            claim["worker_id"],
        )


async def _go_on(connection: asyncpg.Connection[asyncpg.Record], losses: Sequence[_Loss]) -> None:
    going_on = [loss for loss in losses if not loss.run["job_is_gone"]]
    if going_on:
        await connection.execute(
            query("add_next_attempts"),
            [loss.run["shard"] for loss in going_on],
            [loss.run["job_id"] for loss in going_on],
            [loss.run["scheduled_at"] for loss in going_on],
            [loss.run["attempt"] + 1 for loss in going_on],
            [loss.spent.retries for loss in going_on],
            [loss.spent.losses + 1 for loss in going_on],
        )


def _letter(loss: _Loss, worker_id: str) -> Letter:
    run = loss.run
    return Letter(
        tenant_id=run["tenant_id"],
        job_id=run["job_id"],
        scheduled_at=to_microseconds(run["scheduled_at"]),
        attempt=run["attempt"],
        pool=run["pool"],
        handler=run["handler"],
        reason=DeadReason.KILLED_WORKERS,
        error=f"its worker died {loss.spent.losses + 1} times in a row, the last one was {worker_id!r}",
        traceback=None,
        body=run["body"],
    )


def _ended(loss: _Loss) -> Ended:
    run = loss.run
    return Ended(
        job_id=run["job_id"],
        scheduled_at=to_microseconds(run["scheduled_at"]),
        attempt=run["attempt"],
        outcome=loss.outcome,
        overlaps=run["overlap"] != Overlap.ALLOW,  # unknown of a job that is collected: ask for a slot
        one_off=run["kind"] == JobKind.AT,
    )


def _started_at(claim: asyncpg.Record, position: int) -> datetime | None:
    milliseconds = claim["started_ms"][position] if claim["started_ms"] else None
    if milliseconds is None:
        return None
    claimed_at: datetime = claim["claimed_at"]
    return claimed_at + timedelta(milliseconds=milliseconds)


def _error(worker_id: str) -> str:
    return f"its worker {worker_id} died or ended without it"
