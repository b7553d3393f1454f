"""What the tests of the API share: an application on a real database, tenants, and clients with keys."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any
from uuid import uuid4

import httpx

from mainspring.api.app import make_app
from mainspring.api.services import Services
from mainspring.api.settings import ApiSettings
from mainspring.registry import Registry
from mainspring.registry.keys import Keys
from mainspring.settings import PostgresSettings
from tests.integration.api.contract import Contract

SHARDS = 4
WEEKLY_REPORT = {
    "name": "send-weekly-report",
    "schedule": "0 9 * * 1",
    "timezone": "America/New_York",
    "payload": {"report_type": "weekly"},
    "idempotency_key_template": "report-{{week}}",
    "max_retries": 3,
    "retry_backoff": "exponential",
    "missed_window": "RUN_ONCE",
    "timeout_seconds": 120,
}


class House:
    """One application, and whoever lives in it."""

    def __init__(self, dsn: str, pool: Any, stack: AsyncExitStack, **settings: Any) -> None:
        self.pool = pool
        self.settings = ApiSettings(postgres=PostgresSettings(dsn=dsn), **settings)
        self.services = Services.build(self.settings, pool, SHARDS)
        self.app = make_app(self.services)
        self.contract = Contract(self.app.openapi())
        self.registry = Registry(pool, shards=SHARDS)
        self._stack = stack

    async def tenant(self, **limits: int) -> Tenant:
        names, values = ["name", *limits], [f"t-{uuid4().hex}", *limits.values()]
        places = ", ".join(f"${number}" for number in range(1, len(values) + 1))
        tenant_id = await self.value(
            f"INSERT INTO tenants ({', '.join(names)}) VALUES ({places}) RETURNING id", *values
        )
        return Tenant(self, tenant_id)

    async def client(self, secret: str | None = None) -> Client:
        headers = {} if secret is None else {"Authorization": f"Bearer {secret}"}
        client = httpx.AsyncClient(
            transport=httpx.ASGITransport(app=self.app),
            base_url="http://127.0.0.1/api/v1",
            headers=headers,
            event_hooks={"response": [self.contract.hold]},
        )
        return Client(await self._stack.enter_async_context(client))

    async def value(self, statement: str, *arguments: Any) -> Any:
        async with self.pool.acquire() as connection:
            return await connection.fetchval(statement, *arguments)

    async def fetch(self, statement: str, *arguments: Any) -> list[Any]:
        async with self.pool.acquire() as connection:
            return [tuple(row) for row in await connection.fetch(statement, *arguments)]


class Tenant:
    """One tenant, and keys for it."""

    def __init__(self, house: House, tenant_id: int) -> None:
        self.house = house
        self.id = tenant_id

    async def client(self, role: str = "operator", handlers: Sequence[str] | None = None) -> Client:
        name = f"{role}-{uuid4().hex[:8]}"
        _, secret = await Keys(self.house.pool).create(self.id, name, role, handlers)
        client = await self.house.client(secret)
        client.key = name
        return client

    async def audit(self) -> list[Any]:
        """Who did what to what, oldest first."""
        return await self.house.fetch(
            "SELECT actor, action, subject, before::text, after::text, reason FROM audit"
            " WHERE tenant_id = $1 ORDER BY id",
            self.id,
        )

    async def jobs(self) -> int:
        count: int = await self.house.value(
            "SELECT count(*) FROM jobs WHERE tenant_id = $1 AND status <> 'deleted'", self.id
        )
        return count


class Client:
    """Requests, and what they are expected to be answered."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self.http = client
        self.key = ""

    async def ask(self, status: int, method: str, path: str, body: Any = None, **headers: str) -> Any:
        """The answer's JSON; another status fails with what was answered."""
        named = {name.replace("_", "-").encode(): value.encode() for name, value in headers.items()}
        response = await self.http.request(method, path, json=body, headers=named)
        assert response.status_code == status, f"{response.status_code}: {response.text}"
        return response.json() if response.content else None

    async def job(self, **body: Any) -> Any:
        return await self.ask(201, "POST", "/jobs", {"name": "daily", "schedule": "@daily", **body})
