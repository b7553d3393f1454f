"""Real `mainspring api` processes on one migrated database."""

from __future__ import annotations

import asyncio
import os
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import asyncpg
import httpx
import pytest

from mainspring.local import LocalStack
from mainspring.local.ports import free_port
from mainspring.registry.keys import Keys
from mainspring.schema.migrate import migrate

MAINSPRING = Path(sys.executable).with_name("mainspring")
PATIENCE = 120.0


@pytest.fixture(scope="session")
def front_database(stack: LocalStack) -> Iterator[str]:
    server, name = stack.environment()["MAINSPRING_POSTGRES_DSN"], f"front_{uuid4().hex}"
    dsn = urlunsplit(urlsplit(server)._replace(path=f"/{name}"))

    async def execute(on: str, statement: str | None) -> None:
        connection = await asyncpg.connect(on)
        await (migrate(connection) if statement is None else connection.execute(statement))
        await connection.close()

    asyncio.run(execute(server, f"CREATE DATABASE {name}"))
    asyncio.run(execute(dsn, None))
    yield dsn
    asyncio.run(execute(server, f"DROP DATABASE {name} WITH (FORCE)"))


class ApiProcess:
    """One running process; its log is kept beside it."""

    def __init__(
        self, dsn: str, directory: Path, variables: Mapping[str, str], options: Sequence[str] = ()
    ) -> None:
        self.port = free_port()
        self.log = directory / f"api-{self.port}.log"
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("MAINSPRING_")
        }
        with self.log.open("wb") as output:
            self.child = subprocess.Popen(
                [MAINSPRING, "api", *(options or ["--address", f"127.0.0.1:{self.port}"])],
                env=environment
                | {"MAINSPRING_POSTGRES_DSN": dsn, "MAINSPRING_LOG_FORMAT": "json"}
                | dict(variables),
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def url(self, scheme: str = "http") -> str:
        return f"{scheme}://127.0.0.1:{self.port}"

    def ready(self, scheme: str = "http", *, verify: bool | ssl.SSLContext = True) -> ApiProcess:
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            assert self.child.poll() is None, self.log.read_text()
            try:
                if httpx.get(f"{self.url(scheme)}/readyz", verify=verify).status_code == httpx.codes.OK:
                    return self
            except httpx.TransportError:
                time.sleep(0.05)
        raise AssertionError(f"it never became ready:\n{self.log.read_text()}")

    def ended(self) -> int:
        return self.child.wait(timeout=PATIENCE)

    def stop(self) -> None:
        if self.child.poll() is None:
            self.child.kill()
            self.child.wait()


StartApi = Callable[..., ApiProcess]


@pytest.fixture(scope="module")
def start_api(front_database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartApi]:
    directory, started = tmp_path_factory.mktemp("api"), list[ApiProcess]()

    def start(*options: str, **variables: str) -> ApiProcess:
        named = {f"MAINSPRING_{name}": value for name, value in variables.items()}
        started.append(ApiProcess(front_database, directory, named, options))
        return started[-1]

    yield start
    for process in started:
        process.stop()


@pytest.fixture(scope="module")
def api(start_api: StartApi) -> ApiProcess:
    return start_api().ready()


@pytest.fixture(scope="module")
def admin_key(front_database: str) -> str:
    return make_key(front_database, "admin")


def make_key(dsn: str, role: str) -> str:
    """As `mainspring keys create` does on the database."""

    async def make() -> str:
        async with asyncpg.create_pool(dsn, min_size=1, max_size=1) as pool:
            return (await Keys(pool).create(1, f"{role}-{uuid4().hex[:8]}", role))[1]

    return asyncio.run(make())
