"""The questions that the demo asks, over HTTP and without a key, as anybody on this machine could."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from itertools import count
from typing import Any, Self
from urllib.parse import quote

import httpx

from mainspring.demo.facts import Attempt, Letter
from mainspring.demo.samples import Sample
from mainspring.schema.errors import MainspringError

PAGE = 500
_TIMEOUT_SECONDS = 30.0


class ApiSilent(MainspringError):
    """The API does not answer, or answers what nobody can use."""


class Api:
    """One client for one API."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    @classmethod
    @asynccontextmanager
    async def at(cls, url: str) -> AsyncIterator[Self]:
        async with httpx.AsyncClient(
            base_url=f"{url}/api/v1", timeout=_TIMEOUT_SECONDS, trust_env=False
        ) as client:
            yield cls(client)

    async def register(self, sample: Sample) -> datetime:
        """Create the job, or make it what the sample says; from when on it owns occurrences."""
        job = await self._ask("PUT", f"/jobs/{sample.name}", json=dict(sample.request))
        return instant(job["valid_from"])

    async def runs(self, job: str, newest: int | None = None, since: datetime | None = None) -> list[Attempt]:
        """Newest first: so many, or back to an instant."""
        found: list[Attempt] = []
        query: dict[str, str] = {"limit": str(newest or PAGE)}
        while True:
            page = await self._ask("GET", f"/jobs/{quote(job, safe='')}/runs", params=query)
            found += [_attempt(job, each) for each in page["items"]]
            cursor = page["next_cursor"]
            reached = since is not None and bool(found) and found[-1].scheduled_at < since
            if newest is not None or cursor is None or reached:
                return found
            query["cursor"] = cursor

    async def progress(self, run_id: str) -> str | None:
        """The newest that a run has said of its progress, as far as its history is written."""
        run = await self._ask("GET", f"/runs/{run_id}")
        progress: str | None = run["progress"]
        return progress

    async def letters(self, job: str) -> list[Letter]:
        """Every dead letter of a job."""
        found: list[Letter] = []
        query = {"job": job, "limit": str(PAGE)}
        for _ in count():
            page = await self._ask("GET", "/dead-letters", params=query)
            found += [Letter(job, instant(each["scheduled_at"]), each["attempt"]) for each in page["items"]]
            if page["next_cursor"] is None:
                break
            query["cursor"] = page["next_cursor"]
        return found

    async def count_letters(self) -> int:
        page = await self._ask("GET", "/dead-letters", params={"limit": "1"})
        return int(page["total"])

    async def shards(self) -> list[dict[str, Any]]:
        return list((await self._ask("GET", "/shards"))["items"])

    async def workers(self) -> list[dict[str, Any]]:
        page = await self._ask("GET", "/workers", params={"limit": "100"})
        return [each for each in page["items"] if each["status"] == "alive"]

    async def shard_of(self, job: str, at: datetime) -> int:
        """In which shard a job is, which only its explanations tell."""
        answer = await self._ask("GET", f"/jobs/{job}/explain", params={"at": at.isoformat()})
        return int(answer["facts"]["shard"])

    async def _ask(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        json: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        try:
            answer = await self._client.request(method, path, params=params, json=json)
            body = answer.json()
        except (httpx.HTTPError, ValueError) as error:
            raise ApiSilent(f"the api does not answer {method} {path}: {error!r}") from error
        if not answer.is_success or not isinstance(body, dict):
            raise ApiSilent(f"the api answers {method} {path} with {answer.status_code}: {answer.text[:200]}")
        return body


def instant(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _attempt(job: str, run: Mapping[str, Any]) -> Attempt:
    started, finished = run["started_at"], run["finished_at"]
    return Attempt(
        run_id=run["run_id"],
        job=job,
        scheduled_at=instant(run["scheduled_at"]),
        attempt=run["attempt"],
        status=run["status"],
        started_at=instant(started) if started else None,
        finished_at=instant(finished) if finished else None,
    )


async def patiently(question: Any, *, pause: float = 0.2) -> Any:
    """Ask until the API answers; for questions whose answer the course of the demo needs."""
    while True:
        try:
            return await question()
        except ApiSilent:
            await asyncio.sleep(pause)
