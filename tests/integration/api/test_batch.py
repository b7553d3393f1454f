"""Many jobs in one request: an answer per line, all or none by flag, resumed by its key."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from mainspring.api import batch as batch_module
from mainspring.api.batch import cut
from mainspring.api.shapes import DEFINITION
from tests.integration.api.house import Client, Tenant

NDJSON = {"Content-Type": "application/x-ndjson"}


async def send(client: Client, lines: list[Any], query: str = "", **headers: str) -> tuple[list[Any], Any]:
    """The answers, and the summary."""
    texts = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines]
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    response = await client.http.post(
        f"/jobs:batch{query}", content=b"\n".join(texts), headers=NDJSON | named, timeout=120
    )
    assert response.status_code == 200, response.text
    *answers, last = [json.loads(line) for line in response.text.splitlines()]
    return answers, last["summary"]


def job(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "schedule": "@daily", **more}


async def test_each_line_has_its_answer_in_order(operator: Client, tenant: Tenant) -> None:
    await operator.job(name="taken")
    answers, summary = await send(
        operator,
        [
            job("a"),
            b"{",
            job("taken"),
            b"",
            job("a"),
            job("b", max_retries=-1),
            b"[]",
            job("c", schedule="2030-01-01T00:00:00Z"),
            {"name": "d", "after": ["a"]},
            {"name": "e", "after": ["nobody"]},
        ],
    )
    assert [answer["line"] for answer in answers] == [1, 2, 3, 5, 6, 7, 8, 9, 10]
    problems = {answer["line"]: answer["problem"].get("field") for answer in answers if "problem" in answer}
    assert problems == {2: "body", 3: "name", 5: "name", 6: "max_retries", 7: "line", 10: "after"}
    assert summary == {"created": 3, "refused": 6}
    for answer, name in zip([each for each in answers if "job_id" in each], "acd", strict=True):
        assert (await operator.ask(200, "GET", f"/jobs/{answer['job_id']}"))["name"] == name
    assert await tenant.jobs() == 4


async def test_a_batch_leaves_one_audit_row_with_its_range(operator: Client, tenant: Tenant) -> None:
    answers, _ = await send(operator, [job(f"n{number}") for number in range(5)], X_Reason="import")
    ((actor, action, subject, _, after, reason),) = await tenant.audit()
    ids = [answer["job_id"] for answer in answers]
    assert (actor, action, subject, reason) == (operator.key, "create_many", ids[0], "import")
    assert json.loads(after) == {"count": 5, "first": ids[0], "last": ids[-1]}


async def test_what_is_created_is_what_a_create_makes(operator: Client) -> None:
    body = job(
        "one", handler="h", payload={"a": [1, None]}, labels={"k": "v"}, priority="high", max_retries=9
    )
    made = await operator.ask(201, "POST", "/jobs", body)
    await send(operator, [body | {"name": "two"}, body | {"name": "three", "payload": None}])
    for name, payload in (("two", body["payload"]), ("three", None)):
        found = await operator.ask(200, "GET", f"/jobs/{name}")
        for field in DEFINITION:
            expected = {"name": name, "payload": payload}.get(field, made[field])
            assert found[field] == expected, field


async def test_atomic_is_all_or_none(operator: Client, tenant: Tenant) -> None:
    answers, summary = await send(operator, [job("a"), job("b", max_missed=0), job("c")], "?mode=atomic")
    assert [answer["line"] for answer in answers] == [2]
    assert summary == {"created": 0, "refused": 1}
    answers, summary = await send(operator, [job("a"), job("a")], "?mode=atomic")
    assert summary["created"] == 0
    answers, summary = await send(operator, [job("a"), {"name": "z", "after": ["q"]}], "?mode=atomic")
    assert ([answer["line"] for answer in answers], summary["created"]) == ([2], 0)
    assert (await tenant.jobs(), await tenant.audit()) == (0, [])
    answers, summary = await send(
        operator, [job("a"), job("c"), {"name": "z", "after": ["a"]}], "?mode=atomic"
    )
    assert (summary, len(answers), await tenant.jobs()) == ({"created": 3, "refused": 0}, 3, 3)
    _, summary = await send(operator, [job("d"), job("a")], "?mode=atomic")
    assert (summary["created"], await tenant.jobs()) == (0, 3)


async def test_atomic_has_a_cap(operator: Client, tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_module, "MOST_ATOMIC", 3)
    _, summary = await send(operator, [job(f"n{number}") for number in range(4)], "?mode=atomic")
    assert summary["problem"]["status"] == 413
    assert await tenant.jobs() == 0


async def test_a_quota_binds_an_atomic_batch_whole(operator: Client, tenant: Tenant) -> None:
    await tenant.house.fetch("UPDATE tenants SET maximum_jobs = 2 WHERE id = $1", tenant.id)
    _, summary = await send(operator, [job(f"n{number}") for number in range(3)], "?mode=atomic")
    assert (summary["problem"]["status"], await tenant.jobs()) == (429, 0)


async def test_the_same_batch_with_the_same_key_is_a_resume(
    operator: Client, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_module, "CHUNK", 10)
    lines: list[Any] = [job(f"n{number}") for number in range(35)]
    lines[12] = b"{"
    first, summary = await send(operator, lines[:20], Idempotency_Key="import-1")
    assert summary == {"created": 19, "refused": 1}
    whole, summary = await send(operator, lines, Idempotency_Key="import-1")
    assert summary == {"created": 34, "refused": 1}
    assert whole[:20] == first
    again, _ = await send(operator, lines, Idempotency_Key="import-1")
    assert again == whole
    assert await tenant.jobs() == 34
    assert len(await tenant.audit()) == 4
    _, summary = await send(operator, [job("other")], Idempotency_Key="import-1")
    assert summary["problem"]["type"] == "urn:mainspring:key-reused"
    atomic = [job("x"), job("y")]
    one, _ = await send(operator, atomic, "?mode=atomic", Idempotency_Key="import-2")
    two, _ = await send(operator, atomic, "?mode=atomic", Idempotency_Key="import-2")
    assert one == two


async def test_the_same_batch_twice_at_once_is_one(operator: Client, tenant: Tenant) -> None:
    lines = [{"handler": "h", "schedule": "@daily"} for _ in range(200)]
    both = await asyncio.gather(*(send(operator, lines, Idempotency_Key="both") for _ in range(2)))
    assert both[0] == both[1]
    assert await tenant.jobs() == 200


async def test_a_key_that_may_use_some_handlers_creates_those(tenant: Tenant) -> None:
    client = await tenant.client("operator", ["mine"])
    answers, summary = await send(client, [job("mine"), job("other"), job("x", handler="mine")])
    assert summary == {"created": 2, "refused": 1}
    assert answers[1]["problem"]["status"] == 403


async def test_a_line_that_is_too_long_is_refused_and_the_next_is_read(operator: Client) -> None:
    answers, summary = await send(
        operator, [job("a"), b'"' + b"x" * 1_600_000 + b'"', job("b"), b"y" * 1_600_000]
    )
    assert [answer.get("problem", {}).get("status") for answer in answers] == [None, 413, None, 413]
    assert summary == {"created": 2, "refused": 2}


async def test_a_body_of_another_type_is_refused(operator: Client) -> None:
    response = await operator.http.post("/jobs:batch", content=b"{}", headers={"Content-Type": "text/csv"})
    assert response.status_code == 415
    assert (await operator.http.post("/jobs:batch?mode=most", content=b"", headers=NDJSON)).status_code == 422


async def test_a_database_that_goes_away_ends_the_batch_at_a_line(
    operator: Client, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_module, "CHUNK", 10)
    lines = [job(f"n{number}") for number in range(40)]

    async def parts() -> AsyncIterator[bytes]:
        for number, line in enumerate(lines):
            if number == 25:
                async with asyncio.timeout(60):
                    while await tenant.jobs() < 10:  # noqa: ASYNC110 (the table sets no event)
                        await asyncio.sleep(0.01)
                await terminate(tenant.house.settings.postgres.dsn)
                tenant.house.pool.terminate()
            yield json.dumps(line).encode() + b"\n"

    response = await operator.http.post("/jobs:batch", content=parts(), headers=NDJSON)
    *answers, last = [json.loads(line) for line in response.text.splitlines()]
    summary = last["summary"]
    assert summary["problem"]["status"] == 503
    assert summary["next_line"] in (11, 21, 31)
    connection = await asyncpg.connect(tenant.house.settings.postgres.dsn)
    there = await connection.fetchval("SELECT count(*) FROM jobs WHERE tenant_id = $1", tenant.id)
    await connection.close()
    assert there >= summary["created"] == len(answers)


async def terminate(dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    await connection.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    await connection.close()


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
async def test_chunks_are_cut_by_content_and_not_by_the_network(size: int) -> None:
    body = b"a\n\nbb\nccc\n" + b"d" * 30 + b"\ne\n" + b"f" * 30

    async def parts() -> AsyncIterator[bytes]:
        for start in range(0, len(body), size):
            yield body[start : start + size]

    found = [[(line.number, line.text) for line in chunk] async for chunk in cut(parts(), 10, 2, 1000)]
    assert found == [[(1, b"a"), (3, b"bb")], [(4, b"ccc"), (5, None)], [(6, b"e"), (7, None)]]


async def test_a_line_without_an_end_is_not_kept() -> None:
    async def parts() -> AsyncIterator[bytes]:
        for _ in range(1000):
            yield b"x" * 64_000

    tracemalloc.start()
    found = [chunk async for chunk in cut(parts(), 100_000, 10, 1_000_000)]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [(line.number, line.text) for line in found[0]] == [(1, None)]
    assert peak < 2_000_000
