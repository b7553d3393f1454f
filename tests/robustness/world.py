"""What is broken: schedulers and workers of one database on a stack whose servers may be broken too."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import asyncpg

from mainspring.local import LocalStack
from mainspring.local.process import Spawner
from mainspring.registry import Registry, Runs
from mainspring.schema.migrate import migrate
from mainspring.settings import KafkaSettings
from tests.acceptance.processes import MainspringProcess
from tests.acceptance.waiting import until
from tests.acceptance.worker import groups
from tests.acceptance.worker.journal import VARIABLE, Journal
from tests.acceptance.worker.proxy import Proxy
from tests.robustness.watch import SETUP, Watcher, keep_commit_times

APP = "tests.robustness.app:app"
ROOT = Path(__file__).parents[2]
SHARDS = 8
SCHEDULERS = WORKERS = 2
CONCURRENCY = 150
AWAY = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
ANSWER_SECONDS = 20.0
"""After this an operation is not waited for any longer: nobody knows what became of it."""


class World:
    """Its processes, its servers and those who watch them."""

    def __init__(self, stack: LocalStack, dsn: str, directory: Path, proxy: Proxy) -> None:
        name = uuid4().hex
        self.stack = stack
        self.dsn = dsn
        self.directory = directory
        self.proxy = proxy
        self.pool = f"r-{name[:12]}"
        self.journal = Journal(directory / "journal")
        self.watcher = Watcher(dsn)
        self.database: asyncpg.Pool[asyncpg.Record]
        self.registry: Registry
        self.runs: Runs
        self.watching: asyncio.Task[None]
        self.variables = stack.environment() | {
            "MAINSPRING_POSTGRES_DSN": dsn,
            "MAINSPRING_ETCD_PREFIX": f"/robustness/{name}/",
            "MAINSPRING_WORKER_GRACE_SECONDS": "3",
            VARIABLE: str(self.journal.path),
            "PYTHONPATH": str(ROOT),
        }
        self.kafka = KafkaSettings.from_environment(self.variables).librdkafka()
        self.schedulers: list[MainspringProcess] = []
        self.workers: list[MainspringProcess] = []
        self._behind_proxy: set[int] = set()
        self._spawner = Spawner()

    @classmethod
    @asynccontextmanager
    async def on(cls, stack: LocalStack, directory: Path) -> AsyncIterator[Self]:
        """A world with a database of its own, whose processes end with the block."""
        dsn = await _make_database(stack.environment()["MAINSPRING_POSTGRES_DSN"])
        async with AsyncExitStack() as ends:
            _, _, address = urlsplit(dsn).netloc.rpartition("@")
            world = cls(stack, dsn, directory, await ends.enter_async_context(Proxy.listening(address)))
            world.database = await ends.enter_async_context(
                asyncpg.create_pool(dsn, min_size=0, max_size=8, command_timeout=ANSWER_SECONDS, timeout=10)
            )
            world.registry = Registry(world.database, shards=SHARDS)
            world.runs = Runs(world.database, SHARDS)
            world.watching = watching = asyncio.create_task(world.watcher.run(), name="watcher")
            try:
                await world.watcher.fresh()
                await world.start()
                yield world
            finally:
                for process in (*world.workers, *world.schedulers):
                    await process.kill()
                world._spawner.close()
                watching.cancel()
                await asyncio.gather(watching, return_exceptions=True)

    @property
    def processes(self) -> list[MainspringProcess]:
        return [*self.schedulers, *self.workers]

    def alive(self, kind: str) -> list[MainspringProcess]:
        return [each for each in (self.schedulers if kind == "scheduler" else self.workers) if each.running]

    async def start(self) -> None:
        """Every process, and wait until each has said who it is."""
        started = [self.launch("scheduler") for _ in range(SCHEDULERS)]
        started += [self.launch("worker", behind_proxy=number == 0) for number in range(WORKERS)]
        for process in started:
            await process.introduced()

    def launch(self, kind: str, *, behind_proxy: bool = False) -> MainspringProcess:
        """Start one and return at once; a worker may reach Postgres through the proxy."""
        if kind == "scheduler":
            return self._launch("scheduler", self.schedulers, self.variables)
        variables = self.variables | ({"MAINSPRING_POSTGRES_DSN": self._proxied()} if behind_proxy else {})
        options = ("--pool", self.pool, "--concurrency", str(CONCURRENCY), "--app", APP)
        process = self._launch("worker", self.workers, variables, *options)
        if behind_proxy:
            self._behind_proxy.add(process.pid)
        return process

    def is_behind_proxy(self, process: MainspringProcess) -> bool:
        return process.pid in self._behind_proxy

    async def quiet(self, closes_at: float) -> None:
        """Wait until nothing is due, under way or unread: twice, and nothing came between."""
        before = None
        while True:
            await until(
                lambda: self._is_settled(closes_at), "nothing is due and nothing under way", pause=0.5
            )
            await until(lambda: groups.is_read_to_the_end(self.kafka, self.pool), "all is read", pause=0.5)
            now = await self.database.fetchval("SELECT count(*) FROM runs")
            if now == before and await self._is_settled(closes_at):
                return
            before = now

    async def _is_settled(self, closes_at: float) -> bool:
        if self.watching.done():
            self.watching.result()
        try:
            row = await self.database.fetchrow(_BUSY)
        except AWAY:
            return False
        assert row is not None
        last, *busy = row
        shards = self.watcher.shards.values()
        return not any(busy) and all(row.mark > closes_at and row.seen > last for row in shards)

    def _launch(
        self, kind: str, among: list[MainspringProcess], variables: dict[str, str], *options: str
    ) -> MainspringProcess:
        process = MainspringProcess.start(
            self._spawner,
            self.directory,
            f"{kind}-{len(among) + 1}",
            variables,
            kind=kind,
            options=options,
        )
        among.append(process)
        return process

    def _proxied(self) -> str:
        parts = urlsplit(self.dsn)
        login, _, _ = parts.netloc.rpartition("@")
        return urlunsplit(parts._replace(netloc=f"{login}@{self.proxy.address}"))


async def prepare(stack: LocalStack) -> None:
    """Let the server keep the times of commits."""
    assert stack.postgres is not None
    await keep_commit_times(stack.postgres.dsn)
    await stack.postgres.restart()


async def _make_database(server: str) -> str:
    name = f"robustness_{uuid4().hex}"
    connection = await asyncpg.connect(server)
    await connection.execute(f"CREATE DATABASE {name}")
    await connection.close()
    dsn = urlunsplit(urlsplit(server)._replace(path=f"/{name}"))
    connection = await asyncpg.connect(dsn)
    await migrate(connection, shards=SHARDS)
    await connection.execute(SETUP)
    await connection.close()
    return dsn


# The timers of a paused job stand until it is resumed.
_BUSY = """
SELECT
    (SELECT coalesce(max(changed::text::bigint), 0) FROM jobs),
    (SELECT count(*) FROM timers JOIN jobs ON jobs.id = job_id AND status NOT IN ('paused', 'deleted')),
    (SELECT count(*) FROM claims WHERE finished_at IS NULL AND reaped_at IS NULL)
"""
