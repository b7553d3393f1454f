"""Traffic: clients that do random things to jobs of their own, and note when each was sent and answered.

An operation is `ok`, `refused` (the product says that nothing was changed) or `unknown`: no answer came, so
it may have happened. Who does not know forgets the job; Postgres remembers (see `watch`).
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from typing import Any

from mainspring.registry import Job, JobRequest
from mainspring.schema.errors import Contended, DatabaseUnavailable, MainspringError
from mainspring.schema.ids import RunKey, to_microseconds
from tests.robustness.world import AWAY, World

TENANT = 1
CLIENTS = 3
RECURRING = 26  # jobs of one client
OK, REFUSED, UNKNOWN = "ok", "refused", "unknown"

_SCHEDULES = ("* * * * * *", "* * * * * *", "* * * * * *", "*/2 * * * * *", "every 3s", "* * * * *")
_SLOW_SCHEDULES = ("every 2s", "every 7s")
_PAUSE_SECONDS = (0.05, 0.5)


@dataclass(slots=True)
class Operation:
    """One thing that somebody asked for."""

    kind: str
    name: str
    job_id: int | None
    sent: float
    answered: float = 0.0
    outcome: str = UNKNOWN
    version: int | None = None
    mark: int | None = None
    """What the payload carries from then on."""
    scheduled_at: int | None = None
    """Of a trigger, or of the run to cancel."""
    error: str = ""


@dataclass(slots=True)
class _Known:
    job: Job
    name: str
    status: str = "active"


@dataclass(slots=True)
class Traffic:
    """All clients, and everything they did."""

    world: World
    seed: int
    operations: list[Operation] = field(default_factory=list)
    _marks: count[int] = field(default_factory=lambda: count(1))

    async def run(self, stop: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as clients:
            for number in range(CLIENTS):
                client = _Client(self, number, random.Random(self.seed * 1000 + number))
                clients.create_task(client.run(stop), name=f"client-{number}")

    async def close(self, ends_at: datetime) -> None:
        """Let every schedule end, so that all becomes quiet: asked again until it is answered."""
        while True:
            try:
                rows = await self.world.database.fetch(_ENDLESS)
            except AWAY:
                await asyncio.sleep(0.5)
                continue
            if not rows:
                return
            changes = {"ends_at": ends_at.isoformat()}
            for row in rows:
                ask = partial(self.world.registry.edit, TENANT, row["id"], changes)
                await self.perform(Operation("close", row["name"], row["id"], time.time()), ask)

    async def perform(self, operation: Operation, ask: Callable[[], Awaitable[object]]) -> Any:
        """Ask, and note what came of it: the answer, or None."""
        self.operations.append(operation)
        answer: Any = None
        try:
            answer = await ask()
            operation.outcome = OK
        except (DatabaseUnavailable, Contended) as error:
            operation.error = repr(error)
        except MainspringError as error:
            operation.outcome, operation.error = REFUSED, repr(error)
        operation.answered = time.time()
        if isinstance(answer, Job):
            operation.job_id, operation.version = answer.id, answer.version
        if isinstance(answer, RunKey):
            operation.scheduled_at = to_microseconds(answer.scheduled_at)
        return answer

    def mark(self) -> int:
        return next(self._marks)


class _Client:
    def __init__(self, traffic: Traffic, number: int, dice: random.Random) -> None:
        self._traffic = traffic
        self._world = traffic.world
        self._number = number
        self._dice = dice
        self._names = count(1)
        self._jobs: list[_Known] = []

    async def run(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            await self._do_something()
            if len(self._jobs) >= RECURRING - 4 or self._traffic.operations[-1].outcome == UNKNOWN:
                await asyncio.sleep(self._dice.uniform(*_PAUSE_SECONDS))

    async def _do_something(self) -> None:
        if len(self._jobs) < RECURRING - 4 or (len(self._jobs) < RECURRING and self._dice.random() < 0.1):
            await self._create_recurring()
            return
        known = self._dice.choice(self._jobs)
        if known.status == "paused" and self._dice.random() < 0.5:
            await self._pause_or_resume(known)
            return
        deeds: list[tuple[int, Callable[[], Awaitable[None]]]] = [
            (4, lambda: self._edit_payload(known)),
            (2, lambda: self._edit_schedule(known)),
            (3, lambda: self._pause_or_resume(known)),
            (1, lambda: self._delete(known)),
            (4, lambda: self._trigger(known)),
            (3, self._create_one_off),
            (1, lambda: self._create_dependent(known)),
        ]
        chosen = self._dice.choices([deed for _, deed in deeds], weights=[weight for weight, _ in deeds])[0]
        await chosen()

    async def _create_recurring(self) -> None:
        dice = self._dice
        slow = dice.random() < 0.12
        body: dict[str, Any] = {
            "schedule": dice.choice(_SLOW_SCHEDULES if slow else _SCHEDULES),
            "missed_window": dice.choice(("RUN_ONCE", "SKIP", "RUN_ALL")),
            "grace_seconds": dice.choice((20, 60, 3600)),
        }
        if slow:
            body["overlap"] = dice.choice(("allow", "skip", "queue_one", "cancel_running"))
        if dice.random() < 0.2:
            body["jitter_seconds"] = dice.choice((1, 2, 5))
        known = await self._create(body, seconds=dice.uniform(1, 12) if slow else dice.uniform(0, 0.2))
        if known is not None:
            self._jobs.append(known)

    async def _create_one_off(self) -> None:
        """Due in a moment, or already; now and then deleted, moved or paused before it could run."""
        due = datetime.now(UTC) + timedelta(seconds=self._dice.randint(-2, 4))
        body = {"schedule": due.replace(microsecond=0).isoformat(), "grace_seconds": 3600}
        known = await self._create(body, seconds=self._dice.uniform(0, 2))
        if known is None:
            return
        chance = self._dice.random()
        if chance < 0.15:
            await self._delete(known)
        elif chance < 0.3:
            moved = (due + timedelta(seconds=3)).replace(microsecond=0).isoformat()
            await self._change(known, "edit", {"schedule": moved})
        elif chance < 0.45:
            await self._pause_or_resume(known)
            await self._pause_or_resume(known)

    async def _create_dependent(self, parent: _Known) -> None:
        """Of a job, or of two with the same schedule."""
        others = [
            each
            for each in self._jobs
            if each is not parent and each.job.definition.schedule == parent.job.definition.schedule
        ]
        parents = [
            parent.name,
            *([self._dice.choice(others).name] if others and self._dice.random() < 0.5 else []),
        ]
        body = {"after": parents, "on_failure": self._dice.choice(("skip", "run")), "grace_seconds": 3600}
        await self._create(body, seconds=self._dice.uniform(0, 0.1))

    async def _create(self, body: dict[str, Any], *, seconds: float) -> _Known | None:
        dice, name = self._dice, f"{self._number}-{next(self._names)}"
        effect = dice.random() < 0.2
        fails = 0 if effect else dice.choices((0, 1, 2, 99), weights=(80, 9, 5, 6))[0]
        payload, labels = self._payload(seconds, fails)
        request = JobRequest.from_mapping(
            {
                "name": name,
                "handler": "effect" if effect else "work",
                "pool": self._world.pool,
                "payload": payload,
                "labels": labels,
                "priority": dice.randint(0, 9),
                "max_retries": dice.randint(0, 2),
                "retry_backoff": dice.choice(("none", "exponential")),
            }
            | body
        )
        operation = Operation("create", name, None, time.time(), mark=payload["mark"])
        job = await self._traffic.perform(operation, lambda: self._world.registry.create(TENANT, request))
        return None if job is None else _Known(job, name)

    async def _edit_payload(self, known: _Known) -> None:
        old = known.job.definition.payload
        payload, labels = self._payload(old["seconds"], old["fails"])
        await self._change(known, "edit", {"payload": payload, "labels": labels}, mark=payload["mark"])

    async def _edit_schedule(self, known: _Known) -> None:
        await self._change(known, "edit", {"schedule": self._dice.choice(_SCHEDULES)})

    async def _change(
        self, known: _Known, kind: str, changes: dict[str, Any], mark: int | None = None
    ) -> None:
        registry, job_id = self._world.registry, known.job.id
        operation = Operation(kind, known.name, job_id, time.time(), mark=mark)
        job = await self._traffic.perform(operation, lambda: registry.edit(TENANT, job_id, changes))
        self._note(known, operation, known.status, job)

    async def _pause_or_resume(self, known: _Known) -> None:
        registry, job_id = self._world.registry, known.job.id
        kind, ask, status = ("pause", registry.pause, "paused")
        if known.status == "paused":
            kind, ask, status = "resume", registry.resume, "active"  # type: ignore[assignment]
        operation = Operation(kind, known.name, job_id, time.time())
        job = await self._traffic.perform(operation, lambda: ask(TENANT, job_id))
        self._note(known, operation, status, job)

    async def _delete(self, known: _Known) -> None:
        registry, job_id = self._world.registry, known.job.id
        operation = Operation("delete", known.name, job_id, time.time())
        await self._traffic.perform(operation, lambda: registry.delete(TENANT, job_id))
        self._forget(known)

    async def _trigger(self, known: _Known) -> None:
        """Sometimes thought better of at once."""
        world, job_id = self._world, known.job.id
        operation = Operation("trigger", known.name, job_id, time.time())
        key = await self._traffic.perform(operation, lambda: world.registry.trigger(TENANT, job_id))
        if key is None or self._dice.random() > 0.3:
            return
        await asyncio.sleep(self._dice.uniform(0, 1))
        cancel = Operation(
            "cancel", known.name, job_id, time.time(), scheduled_at=to_microseconds(key.scheduled_at)
        )
        await self._traffic.perform(cancel, lambda: world.runs.cancel(TENANT, job_id, key.scheduled_at, 1))

    def _note(self, known: _Known, operation: Operation, status: str, job: Job | None) -> None:
        if operation.outcome == UNKNOWN:
            self._forget(known)
        elif job is not None:
            known.job, known.status = job, status

    def _forget(self, known: _Known) -> None:
        self._jobs = [each for each in self._jobs if each is not known]

    def _payload(self, seconds: float, fails: int) -> tuple[dict[str, Any], dict[str, str]]:
        mark = self._traffic.mark()
        return (
            {"mark": mark, "seconds": seconds, "fails": fails},
            {"mark": str(mark), "fails": str(fails)},
        )


_ENDLESS = """
SELECT id, name FROM jobs
WHERE status IN ('active', 'paused') AND kind IN ('cron', 'every') AND ends_at IS NULL
"""
