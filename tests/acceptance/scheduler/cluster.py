"""A cluster under test: scheduler processes with a database, an etcd prefix and a pool of their own.

Several of them can share one stack. The recorder reads what reached Kafka, the observer what Postgres
accepted; a test breaks something, waits for facts, and asks for the verdict at the end.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

import asyncpg

from mainspring.local import LocalStack
from mainspring.local.process import Spawner
from mainspring.registry import JobRequest, Registry
from mainspring.schedule import Schedule
from mainspring.schema.ids import to_microseconds
from mainspring.settings import KafkaSettings
from tests.acceptance.processes import MainspringProcess
from tests.acceptance.scheduler.judge import Tracked, Verdict, judge
from tests.acceptance.scheduler.observer import Observer
from tests.acceptance.scheduler.recorder import Recorder, Run
from tests.acceptance.waiting import until

SHARDS = 64
TENANT = 1
EVERY_SECOND = "* * * * * *"


class Cluster:
    """Schedulers of one database, and everything that watches them."""

    def __init__(
        self, stack: LocalStack, dsn: str, directory: Path, database: asyncpg.Pool[asyncpg.Record]
    ) -> None:
        name = uuid4().hex
        self.pool = f"t-{name[:12]}"
        self.dsn = dsn
        self.database = database
        self.registry = Registry(database, shards=SHARDS)
        self.observer = Observer(dsn)
        self.variables = stack.environment() | {
            "MAINSPRING_POSTGRES_DSN": dsn,
            "MAINSPRING_ETCD_PREFIX": f"/test/{name}/",
        }
        self.recorder = Recorder(KafkaSettings.from_environment(self.variables), self.pool)
        self.processes: list[MainspringProcess] = []
        self._directory = directory
        self._spawner = Spawner()

    @classmethod
    @asynccontextmanager
    async def on(cls, stack: LocalStack, dsn: str, directory: Path) -> AsyncIterator[Self]:
        """A cluster whose processes and readers end with the block."""
        async with asyncpg.create_pool(dsn, min_size=0, max_size=10) as database:
            cluster = cls(stack, dsn, directory, database)
            cluster.recorder.start()
            watching = asyncio.create_task(cluster.observer.run(), name="observer")
            try:
                await cluster.observer.fresh()
                yield cluster
            finally:
                for process in cluster.processes:
                    await process.kill()
                cluster._spawner.close()
                watching.cancel()
                await asyncio.wait([watching])
                cluster.recorder.stop()

    @property
    def alive(self) -> list[MainspringProcess]:
        return [process for process in self.processes if process.running]

    @property
    def identities(self) -> list[str]:
        return [process.identity for process in self.alive]

    def launch(self) -> MainspringProcess:
        """Start a process and return at once."""
        name = f"scheduler-{len(self.processes) + 1}"
        process = MainspringProcess.start(self._spawner, self._directory, name, self.variables)
        self.processes.append(process)
        return process

    async def start(self, count: int = 1) -> list[MainspringProcess]:
        """Start processes and wait until all that live share the shards evenly and publish."""
        started = [self.launch() for _ in range(count)]
        for process in started:
            await process.introduced()
        await self.even()
        return started

    async def even(self) -> None:
        """Wait until exactly the living processes lead, with equal shares, and every mark moves again."""
        await until(lambda: self.observer.is_even(self.identities), "the shards are shared evenly")
        await self.marks_pass(self.observer.now)

    async def marks_pass(self, instant: float) -> None:
        """Wait until every mark has reached the second after this instant."""
        await until(lambda: self.observer.least_mark > instant, f"all marks pass {instant:.0f}")

    def request(self, **fields: Any) -> JobRequest:
        """A job of this cluster's pool, for each second unless told otherwise."""
        body = {"handler": "noop", "schedule": EVERY_SECOND, "pool": self.pool} | fields
        return JobRequest.from_mapping(body)

    async def register(self, count: int = 1, **fields: Any) -> list[Tracked]:
        """Register jobs that are alike."""
        requests = [self.request(**fields) for _ in range(count)]
        ids = await self.registry.create_many(TENANT, requests)
        return await self.tracked(dict(zip(ids, requests, strict=True)))

    async def register_one_off(self, instant: datetime) -> Run:
        """Register a job that is due once: its run."""
        job = await self.registry.create(TENANT, self.request(schedule=instant.isoformat()))
        return Run(job.id, to_microseconds(instant), 1)

    async def tracked(self, requests: Mapping[int, JobRequest]) -> list[Tracked]:
        """These jobs with the schedules that Postgres has of them."""
        rows = await self.database.fetch(
            "SELECT id, shard, cadence_id, valid_from FROM jobs WHERE id = ANY ($1)", list(requests)
        )
        return [
            Tracked(
                row["id"], row["shard"], row["cadence_id"], _schedule(requests[row["id"]], row["valid_from"])
            )
            for row in rows
        ]

    async def put_marks_back(self, mark: datetime) -> None:
        """Simulate that nobody has led since then. A trigger keeps marks from going back: it is set aside."""
        await self.database.execute("ALTER TABLE shards DISABLE TRIGGER shards_never_go_back")
        await self.database.execute(
            "UPDATE shards SET fired_through = $1, seen_at = $1, seen = pg_current_snapshot()", mark
        )
        await self.database.execute("ALTER TABLE shards ENABLE TRIGGER shards_never_go_back")
        await self.observer.fresh()
        self.observer.went_back.clear()

    async def made_valid(self, jobs: Iterable[Tracked], since: datetime) -> list[Tracked]:
        """Let jobs have existed since then."""
        jobs = list(jobs)
        ids = [job.job_id for job in jobs]
        await self.database.execute("UPDATE jobs SET valid_from = $2 WHERE id = ANY ($1)", ids, since)
        return [job._replace(schedule=replace(job.schedule, valid_from=since)) for job in jobs]

    async def given_up(self) -> int:
        """How many occurrences Postgres says were missed."""
        count: int = await self.database.fetchval("SELECT coalesce(sum(skipped), 0)::bigint FROM missed")
        return count

    async def end(self) -> int:
        """Let every mark pass this moment, end all processes in order, read to the end: the moment."""
        through = int(self.observer.now)
        await self.marks_pass(through)
        for process in self.alive:
            assert await process.terminate() == 0, process.log.read_text()
        await self.recorder.caught_up()
        self.assert_sound()
        return through

    async def verdict(self, jobs: Iterable[Tracked]) -> Verdict:
        """End everything, and judge jobs that nobody changed."""
        through = await self.end()
        verdict = judge(self.recorder.records, list(jobs), through)
        verdict.assert_sound()
        return verdict

    def assert_sound(self) -> None:
        """What holds whatever was done to the processes."""
        assert not self.observer.double_leads()
        assert not self.observer.went_back
        for process in self.processes:
            assert not process.faults(), "\n".join(process.faults()[:5])


def _schedule(request: JobRequest, valid_from: datetime) -> Schedule:
    assert request.cadence is not None
    return Schedule(
        request.cadence,
        valid_from=valid_from,
        starts_at=request.starts_at,
        ends_at=request.ends_at,
        jitter=timedelta(seconds=request.jitter_seconds),
        missed_policy=request.missed_window,
        grace=timedelta(seconds=request.grace_seconds),
        max_missed=request.max_missed,
    )
