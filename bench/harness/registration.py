"""Registration as users do it: NDJSON over HTTP to a real `mainspring api`, a key for each tenant.

The ids in the answers are the list against which everything that happens afterwards is counted.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Iterator
from itertools import islice

import asyncpg
import click
import httpx

from bench.harness.cluster import ApiProcess, Cluster, progress
from bench.harness.jobs import HANDLER, TENANT
from mainspring.postgres import make_pool
from mainspring.registry.keys import Keys
from mainspring.schema.ids import parse_job_id

LINES = 20_000
"""Jobs of one request."""

_REPORT_EVERY = 100_000


def line(schedule: str, payload_bytes: int = 200, **fields: object) -> bytes:
    """One job as a line; of a size of payload that JSON takes, quotes included."""
    document = {"handler": HANDLER, "schedule": schedule, "payload": "x" * (payload_bytes - 2), **fields}
    return json.dumps(document, separators=(",", ":")).encode() + b"\n"


async def make_tenants(cluster: Cluster, count: int) -> list[str]:
    """So many tenants, the default one among them: the secrets of their keys."""
    pool = make_pool(cluster.settings.postgres, application="bench", size=1, command_seconds=30)
    async with pool:
        others = [await _insert_tenant(pool, f"tenant-{number}") for number in range(1, count)]
        keys = [await Keys(pool).create(each, "bench", "operator") for each in (TENANT, *others)]
    return [secret for _, secret in keys]


async def _insert_tenant(pool: asyncpg.Pool[asyncpg.Record], name: str) -> int:
    found: int = await pool.fetchval("INSERT INTO tenants (name) VALUES ($1) RETURNING id", name)
    return found


async def register(api: ApiProcess, secret: str, lines: Iterable[bytes], total: int) -> array[int]:
    """Send these jobs: their ids. One that is refused ends the benchmark."""
    ids = array("q")
    waiting = iter(lines)
    async with httpx.AsyncClient(base_url=api.url, timeout=300, headers=_authorization(secret)) as client:
        while body := list(islice(waiting, LINES)):
            answer = await client.post(
                "/api/v1/jobs:batch",
                content=b"".join(body),
                headers={"Content-Type": "application/x-ndjson"},
            )
            ids.extend(_ids(answer))
            if len(ids) % _REPORT_EVERY < LINES or len(ids) >= total:
                progress(f"registered {len(ids):,} of {total:,}")
    return ids


async def register_for_all(
    api: ApiProcess, secrets: list[str], lines: Iterable[bytes], total: int
) -> array[int]:
    """The same, dealt out to the tenants in even shares."""
    ids = array("q")
    share = -(-total // len(secrets))
    waiting = iter(lines)
    for secret in secrets:
        ids.extend(await register(api, secret, islice(waiting, share), min(share, total - len(ids))))
    return ids


def _authorization(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


def _ids(answer: httpx.Response) -> Iterator[int]:
    if answer.status_code != httpx.codes.OK:
        raise click.ClickException(f"the api answered {answer.status_code}: {answer.text[:500]}")
    for text in answer.content.splitlines():
        found = json.loads(text)
        if "job_id" in found:
            yield parse_job_id(found["job_id"])
        elif "summary" not in found or found["summary"].get("problem"):
            raise click.ClickException(f"the api refused a job: {text.decode()}")
