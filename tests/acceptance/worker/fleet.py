"""A fleet under test: the workers and schedulers of one database, with a pool and a journal of their own.

Several of them can share one stack. A test registers jobs, breaks something, waits until all is settled, and
asks for the verdict.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

import asyncpg

from mainspring.local import LocalStack
from mainspring.local.process import Spawner
from mainspring.registry import JobRequest, Registry
from mainspring.schema.ids import to_microseconds
from mainspring.settings import KafkaSettings
from tests.acceptance.processes import MainspringProcess
from tests.acceptance.waiting import until
from tests.acceptance.worker.journal import VARIABLE, Journal, Occurrence
from tests.acceptance.worker.judge import Books, Verdict, judge

TENANT = 1
APP = "tests.acceptance.worker.app:app"
ROOT = Path(__file__).parents[3]


class Fleet:
    """Workers and schedulers of one database."""

    def __init__(
        self, stack: LocalStack, dsn: str, directory: Path, database: asyncpg.Pool[asyncpg.Record]
    ) -> None:
        name = uuid4().hex
        self.pool = f"t-{name[:12]}"
        self.dsn = dsn
        self.database = database
        self.registry = Registry(database, shards=64)
        self.journal = Journal(directory / "journal")
        self.books = Books(database)
        self.kafka = KafkaSettings.from_environment(stack.environment()).librdkafka()
        self.variables = stack.environment() | {
            "MAINSPRING_POSTGRES_DSN": dsn,
            "MAINSPRING_ETCD_PREFIX": f"/test/{name}/",
            VARIABLE: str(self.journal.path),
            "PYTHONPATH": str(ROOT),
        }
        self.schedulers: list[MainspringProcess] = []
        self.workers: list[MainspringProcess] = []
        self.killed: set[str] = set()
        """Lives of workers of which a lost attempt is to be expected."""
        self._directory = directory
        self._spawner = Spawner()

    @classmethod
    @asynccontextmanager
    async def on(cls, stack: LocalStack, dsn: str, directory: Path) -> AsyncIterator[Self]:
        """A fleet with one scheduler, whose processes end with the block."""
        async with asyncpg.create_pool(dsn, min_size=0, max_size=5) as database:
            fleet = cls(stack, dsn, directory, database)
            try:
                fleet.schedule()
                yield fleet
            finally:
                for process in (*fleet.workers, *fleet.schedulers):
                    await process.kill()
                fleet._spawner.close()

    def schedule(self) -> MainspringProcess:
        """Start a scheduler and return at once."""
        name = f"scheduler-{len(self.schedulers) + 1}"
        process = MainspringProcess.start(self._spawner, self._directory, name, self.variables)
        self.schedulers.append(process)
        return process

    def launch(
        self,
        *options: str,
        concurrency: int = 100,
        app: str | None = APP,
        variables: Mapping[str, str] | None = None,
    ) -> MainspringProcess:
        """Start a worker and return at once."""
        given = ["--pool", self.pool, "--concurrency", str(concurrency), *options]
        process = MainspringProcess.start(
            self._spawner,
            self._directory,
            f"worker-{len(self.workers) + 1}",
            self.variables | dict(variables or {}),
            kind="worker",
            options=given if app is None else [*given, "--app", app],
        )
        self.workers.append(process)
        return process

    async def start(
        self, *options: str, concurrency: int = 100, variables: Mapping[str, str] | None = None
    ) -> MainspringProcess:
        """Start a worker and wait until it has begun its life."""
        worker = self.launch(*options, concurrency=concurrency, variables=variables)
        await worker.introduced()
        return worker

    async def kill(self, worker: MainspringProcess) -> None:
        """SIGKILL of a worker."""
        self.killed |= {worker.identities[-1]}
        await worker.kill()

    async def register(self, count: int = 1, *, handler: str = "work", **fields: Any) -> list[Occurrence]:
        """Register jobs that are alike and due now, once: what is to be done."""
        now = datetime.now(UTC).replace(microsecond=0)
        body = {"handler": handler, "schedule": now.isoformat(), "pool": self.pool} | fields
        ids = await self.registry.create_many(TENANT, [JobRequest.from_mapping(body) for _ in range(count)])
        return [Occurrence(job_id, to_microseconds(now)) for job_id in ids]

    async def under_way(self, worker: MainspringProcess, count: int) -> None:
        """Wait until this worker has that many runs in hand."""
        await until(
            lambda: len(self.journal.under_way()[worker.pid]) >= count,
            f"{count} runs are under way",
            pause=0.1,
        )

    async def settled(self, occurrences: Collection[Occurrence]) -> None:
        """Wait until each has a final outcome and nothing is under way."""
        await until(
            lambda: self.books.are_settled(occurrences), "every occurrence has ended for good", pause=0.25
        )

    async def verdict(self, occurrences: Iterable[Occurrence]) -> Verdict:
        """Wait until all is settled, and judge it."""
        occurrences = list(occurrences)
        await self.settled(occurrences)
        await until(self.books.balance, "all that was published was claimed, and no more", pause=0.25)
        return judge(occurrences, await self.books.runs(), self.journal.lines, self.killed)

    def assert_sound(self, *expected: str) -> None:
        """No process said what none should say. A busy machine may hold up an event loop for a second."""
        for process in (*self.schedulers, *self.workers):
            faults = process.faults("loop_blocked", *expected)
            assert not faults, "\n".join(faults[:5])
