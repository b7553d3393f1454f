"""What can keep a run from starting, asked in the claim's transaction.

Each question is one statement for the whole claim, and most are asked only when a message gives cause.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import NamedTuple, TypeAlias

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from mainspring.schema.ids import from_microseconds, to_microseconds
from mainspring.schema.messages import JobDefinition, Message, decode_job
from mainspring.schema.queries import query
from mainspring.schema.states import JobStatus, Overlap
from mainspring.worker.plans import Key, key_of

Connection: TypeAlias = "PoolConnectionProxy[asyncpg.Record]"

_STOPPED = {JobStatus.PAUSED: "the job is paused", JobStatus.DELETED: "the job is deleted"}
_QUEUE_SECONDS = 30.0
_CANCEL_SECONDS = 5.0


@dataclass(slots=True)
class Jobs:
    """What has become of jobs since their messages were published."""

    stopped: dict[int, str] = field(default_factory=dict)
    newest: dict[int, JobDefinition] = field(default_factory=dict)


class Deferral(NamedTuple):
    """How long, and how often, a run has been put off for want of a handler."""

    waited: float
    times: int


class Turn(NamedTuple):
    """Not now: it waits for the run under way, or does not run at all."""

    waits: bool
    delay: timedelta = timedelta(0)


class Overtaken(Exception):
    """Another claim made a job's first slot in this very moment: asked again, it is there."""


class _Slot(NamedTuple):
    claim_id: int
    busy: bool
    holder: tuple[int, int]  # scheduled_at, attempt
    queued: tuple[int, int] | None  # scheduled_at, attempt


class Gates:
    """The questions of one claim."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def jobs(self, concerned: Sequence[Message]) -> Jobs:
        """Jobs as they are: those paused or deleted are held until the commit."""
        found = Jobs()
        if not concerned:
            return found
        wanted = {(message.job.job_id, message.job.version) for message in concerned}
        rows = await self._connection.fetch(query("jobs_as_they_are"), sorted({each for each, _ in wanted}))
        there = {row["id"]: row for row in rows}
        stopped = [job_id for job_id, row in there.items() if JobStatus(row["status"]) in _STOPPED]
        # Without the lock a resume could look for recalled runs before this one is there.
        held = await self._hold(stopped) if stopped else set()
        for job_id, version in wanted:
            row = there.get(job_id)
            if row is None:
                found.stopped[job_id] = "the job is gone"
            elif job_id in held:
                found.stopped[job_id] = _STOPPED[JobStatus(row["status"])]
            elif row["version"] != version:
                found.newest[job_id] = decode_job(row["body"])
        return found

    async def cancelled(self, messages: Sequence[Message]) -> Mapping[Key, str]:
        """Requests to cancel, with their reasons."""
        rows = await self._connection.fetch(
            query("cancellations_of"), [message.job.job_id for message in messages]
        )
        return {
            (row["job_id"], to_microseconds(row["scheduled_at"]), row["attempt"]): row["reason"]
            or "cancelled before it began"
            for row in rows
        }

    async def effects(self, messages: Sequence[Message]) -> set[tuple[int, int]]:
        """Occurrences whose effect an earlier attempt has committed."""
        again = [message for message in messages if message.attempt > 1]
        if not again:
            return set()
        rows = await self._connection.fetch(
            query("effects_of"),
            [message.job.job_id for message in again],
            [from_microseconds(message.scheduled_at) for message in again],
        )
        return {(row["job_id"], to_microseconds(row["scheduled_at"])) for row in rows}

    async def defer(self, unknown: Sequence[Message]) -> Mapping[Key, Deferral]:
        """Note that no handler was here for these."""
        distinct = {key_of(message): message for message in unknown}
        rows = await self._connection.fetch(query("defer_unknown"), *_keys(distinct.values()))
        return {
            (row["job_id"], to_microseconds(row["scheduled_at"]), row["attempt"]): Deferral(
                row["waited"], row["times"]
            )
            for row in rows
        }

    async def forget(self, messages: Sequence[Message]) -> None:
        """These wait for a handler no longer."""
        await self._connection.execute(query("forget_deferrals"), *_keys(messages))

    async def take_turns(
        self, claim_id: int, messages: Sequence[Message], *, first: int
    ) -> list[tuple[Message, Turn | None]]:
        """Who gets its job's slot: these come first, and their positions are counted from `first`.

        Locks in order of job id, so that two claims cannot wait for each other. A copy of a run takes no
        turn, or it would wait for itself, or stop itself: its key tells what it is when it is written.
        """
        slots = await self._slots(messages)
        there = await self._there(messages)
        takers: dict[int, Message] = {}
        for message in sorted(messages, key=key_of):
            slot = slots.get(message.job.job_id)
            is_free = message.job.job_id not in takers and (slot is None or not slot.busy)
            if is_free and key_of(message) not in there:
                takers[message.job.job_id] = message
        winners = list(takers.values())
        if await self._take(claim_id, winners, slots, first) != takers.keys():
            raise Overtaken
        there |= {key_of(message) for message in winners}
        rest = [message for message in messages if takers.get(message.job.job_id) is not message]
        copies = [message for message in rest if key_of(message) in there]
        holders = {job_id: slot.holder for job_id, slot in slots.items()}
        holders |= {message.job.job_id: key_of(message)[1:] for message in winners}
        waiting = await self._queue([each for each in rest if key_of(each) not in there], slots, holders)
        return [*((message, None) for message in (*winners, *copies)), *waiting]

    async def _hold(self, job_ids: Sequence[int]) -> set[int]:
        rows = await self._connection.fetch(query("hold_stopped_jobs"), job_ids)
        return {row["id"] for row in rows}

    async def _there(self, messages: Sequence[Message]) -> set[Key]:
        """Asked after the locks are held: runs that exist already."""
        rows = await self._connection.fetch(query("runs_there"), *_keys(messages))
        return {(row["job_id"], to_microseconds(row["scheduled_at"]), row["attempt"]) for row in rows}

    async def _slots(self, messages: Sequence[Message]) -> dict[int, _Slot]:
        job_ids = sorted({message.job.job_id for message in messages})
        await self._connection.fetch(query("lock_overlaps"), job_ids)
        rows = await self._connection.fetch(query("overlaps_under_way"), job_ids)
        return {
            row["job_id"]: _Slot(
                row["claim_id"],
                row["busy"],
                (to_microseconds(row["scheduled_at"]), row["attempt"]),
                None
                if row["queued_at"] is None
                else (to_microseconds(row["queued_at"]), row["queued_attempt"]),
            )
            for row in rows
        }

    async def _take(
        self, claim_id: int, takers: Sequence[Message], slots: Mapping[int, _Slot], first: int
    ) -> set[int]:
        rows = await self._connection.fetch(
            query("take_overlaps"),
            [message.job.job_id for message in takers],
            list(range(first, first + len(takers))),
            [from_microseconds(message.scheduled_at) for message in takers],
            [message.attempt for message in takers],
            [slots[each.job.job_id].claim_id if each.job.job_id in slots else 0 for each in takers],
            claim_id,
        )
        return {row["job_id"] for row in rows}

    async def _queue(
        self,
        messages: Sequence[Message],
        slots: Mapping[int, _Slot],
        holders: Mapping[int, tuple[int, int]],
    ) -> list[tuple[Message, Turn]]:
        """Who waits, and who is skipped; of several the newest waits under `cancel_running`."""
        turns: list[tuple[Message, Turn]] = []
        queued: dict[int, Message] = {}
        for message in messages:
            slot = slots.get(message.job.job_id)
            waiting = slot.queued if slot is not None else None
            if message.job.job_id in queued:
                waiting = key_of(queued[message.job.job_id])[1:]
            if _may_wait(message, waiting, holders[message.job.job_id]):
                queued[message.job.job_id] = message
                delay = _CANCEL_SECONDS if message.job.overlap is Overlap.CANCEL_RUNNING else _QUEUE_SECONDS
                turns.append((message, Turn(waits=True, delay=timedelta(seconds=delay))))
            else:
                turns.append((message, Turn(waits=False)))
        if queued:
            await self._connection.execute(query("queue_overlaps"), *_keys(queued.values()))
        stop = [each.job.job_id for each in queued.values() if each.job.overlap is Overlap.CANCEL_RUNNING]
        if stop:
            await self._connection.execute(query("cancel_overlapped"), stop)
        return turns


def _may_wait(message: Message, waiting: tuple[int, int] | None, holder: tuple[int, int]) -> bool:
    if message.job.overlap is Overlap.SKIP:
        return False
    mine = message.scheduled_at, message.attempt
    if message.job.overlap is Overlap.CANCEL_RUNNING and mine < holder:
        return False  # it was overtaken: the newest is not stopped for it
    if waiting is None or waiting == mine:
        return True
    return message.job.overlap is Overlap.CANCEL_RUNNING and mine > waiting


def _keys(messages: Iterable[Message]) -> tuple[list[int], list[object], list[int]]:
    each = list(messages)
    return (
        [message.job.job_id for message in each],
        [from_microseconds(message.scheduled_at) for message in each],
        [message.attempt for message in each],
    )
