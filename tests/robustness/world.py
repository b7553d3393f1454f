"""What is broken: schedulers and workers of one database on a stack whose servers may be broken too."""

from __future__ import annotations

import asyncio
import time
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
QUIET_SECONDS, BOOKS_SECONDS = 300.0, 1800.0
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
        self.kafka = KafkaSettings.from_environment(self.variables).librdkafka() | {"log_level": "0"}
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

    async def quiet(self, closes_at: float, *, books: bool) -> None:
        """Wait until nothing is due, under way or unread, twice; if asked, until the books are judged too."""
        deadline = time.monotonic() + (BOOKS_SECONDS if books else QUIET_SECONDS)
        before = -1
        while True:
            busy = await self._busy(closes_at, books=books)
            runs = busy.pop("runs", -1)
            if not any(busy.values()) and runs == before:
                return
            before = -1 if any(busy.values()) else runs
            if time.monotonic() > deadline:
                raise AssertionError(f"it does not become quiet: {busy}")
            await asyncio.sleep(0.5)

    async def _busy(self, closes_at: float, *, books: bool) -> dict[str, int]:
        """What is still to be done, and how many runs there are."""
        if self.watching.done():
            self.watching.result()
        try:
            row = await self.database.fetchrow(_BUSY, books)
        except AWAY:
            return {"postgres": 1}
        assert row is not None
        busy = dict(row)
        last = busy.pop("last")
        behind = [
            shard for shard, row in self.watcher.shards.items() if row.mark <= closes_at or row.seen <= last
        ]
        busy["behind"] = len(behind)
        if any(count for what, count in busy.items() if what != "runs"):
            return busy  # Kafka is asked last: that takes a connection for each topic
        return busy | {"unread": int(not await groups.is_read_to_the_end(self.kafka, self.pool))}

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


# The timers of a paused job stand until it is resumed. Claims are counted into the books half a minute later.
_BUSY = """
SELECT
    (SELECT count(*) FROM runs) AS runs,
    (SELECT coalesce(max(changed::text::bigint), 0) FROM jobs) AS last,
    (SELECT count(*) FROM timers JOIN jobs ON jobs.id = job_id AND status NOT IN ('paused', 'deleted'))
        AS timers,
    (SELECT count(*) FROM claims WHERE finished_at IS NULL AND reaped_at IS NULL) AS claims,
    (SELECT count(*) FROM claims, books WHERE $1::boolean AND claimed_at >= counted_through) AS uncounted,
    (SELECT count(*) FROM ledger WHERE $1 AND published - written_off > claimed + repaired) AS short
"""
