"""Who may do what: every route with every role, another tenant's things, no key; handlers, rates, quotas."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from mainspring.schema.ids import RunKey, format_run_id
from tests.integration.api.house import Client, House, Tenant

RANK = {"viewer": 0, "operator": 1, "admin": 2}
DAILY = {"schedule": "@daily"}
RANGE = {"start": "2026-01-01T00:00:00Z", "end": "2026-01-03T00:00:00Z"}
# Method, path, body, the role it needs. What is in braces is somebody's own.
ROUTES = [
    ("POST", "/jobs", {"name": "made", **DAILY}, "operator"),
    ("PUT", "/jobs/put", DAILY, "operator"),
    ("POST", "/jobs:validate", {"name": "checked", **DAILY}, "viewer"),
    ("POST", "/jobs:batch", None, "operator"),
    ("GET", "/jobs", None, "viewer"),
    ("GET", "/jobs/{job}", None, "viewer"),
    ("PATCH", "/jobs/{job}", {"payload": 2}, "operator"),
    ("GET", "/jobs/{job}/runs", None, "viewer"),
    ("GET", "/jobs/{job}/explain?at=2027-01-01T00:00:00Z", None, "viewer"),
    ("POST", "/jobs/{job}/backfill", RANGE, "operator"),
    ("POST", "/jobs/{job}/trigger", None, "operator"),
    ("POST", "/jobs/{job}/pause", {"reason": "r"}, "operator"),
    ("POST", "/jobs/{job}/resume", None, "operator"),
    ("GET", "/runs/{run}", None, "viewer"),
    ("GET", "/runs/{run}/log", None, "viewer"),
    ("POST", "/runs/{open}/cancel", None, "operator"),
    ("GET", "/dead-letters", None, "viewer"),
    ("GET", "/dead-letters:summary", None, "viewer"),
    ("GET", "/dead-letters/{letter}", None, "viewer"),
    ("POST", "/dead-letters/{letter}/redrive", None, "operator"),
    ("POST", "/dead-letters:redrive", {"handler": "daily"}, "operator"),
    ("GET", "/shards", None, "viewer"),
    ("GET", "/workers", None, "viewer"),
    ("GET", "/pools", None, "viewer"),
    ("GET", "/forecast?seconds=2", None, "viewer"),
    ("GET", "/schemas", None, "viewer"),
    ("GET", "/schemas/{handler}", None, "viewer"),
    ("PUT", "/schemas/other", {"type": "object"}, "admin"),
    ("DELETE", "/schemas/{handler}", None, "admin"),
    ("GET", "/keys", None, "admin"),
    ("POST", "/keys", {"name": "new", "role": "viewer"}, "admin"),
    ("DELETE", "/keys/{key}", None, "admin"),
    ("GET", "/audit", None, "admin"),
    ("GET", "/tenant", None, "viewer"),
    ("DELETE", "/jobs/{job}", None, "operator"),
]
Owned = dict[str, Any]


async def furnish(tenant: Tenant) -> Owned:
    """Something of everything that has an id."""
    admin = await tenant.client("admin")
    job = await admin.job()
    run = await add_dead_run(tenant.house, tenant, job["job_id"])
    letter = await tenant.house.value("SELECT max(id) FROM dead_letters WHERE tenant_id = $1", tenant.id)
    await admin.ask(201, "PUT", "/schemas/known", {"type": "object"})
    key = await admin.ask(201, "POST", "/keys", {"name": "spare", "role": "viewer"})
    queued = await admin.ask(202, "POST", f"/jobs/{job['job_id']}/trigger")
    return {
        "job": job["job_id"],
        "run": run,
        "open": queued["run_id"],
        "letter": letter,
        "handler": "known",
        "key": key["id"],
    }


async def add_dead_run(house: House, tenant: Tenant, job_id: str) -> str:
    """A run without an attempt left, as a worker would have left it."""
    job = await house.registry.find(tenant.id, job_id)
    at = datetime.now(UTC).replace(microsecond=0) + timedelta(minutes=1)
    await house.fetch(
        "WITH claim AS (INSERT INTO claims (id, worker_id, outcomes, started_ms, ended_ms, finished_at)"
        " VALUES (nextval('audit_id_seq') + 1000000, 'w', '\\x03', '{5}', '{25}', now())"
        " RETURNING id), run AS (INSERT INTO runs SELECT $1, $2, id, 0, 1 FROM claim),"
        " failure AS (INSERT INTO failures (job_id, scheduled_at, attempt, tenant_id, status, error)"
        " VALUES ($1, $2, 1, $3, 'dead', 'no such host')), line AS (INSERT INTO run_logs"
        " SELECT $1, $2, 1, n, now(), CASE n WHEN 2 THEN 'progress' ELSE 'info' END, 'line ' || n"
        " FROM generate_series(0, 2) AS n)"
        " INSERT INTO dead_letters (tenant_id, job_id, scheduled_at, attempt, pool, handler, reason, error,"
        " fingerprint, body)"
        " VALUES ($3, $1, $2, 1, 'default', 'daily', 'exhausted', 'no such host', 'f1', $4)",
        job.id,
        at,
        tenant.id,
        job.definition.body(job.id, tenant.id, 1),
    )
    return format_run_id(RunKey(job.id, at, 1))


def fill(path: str, owned: Owned) -> str:
    for name, value in owned.items():
        path = path.replace(f"{{{name}}}", str(value))
    return path


async def request(client: Client, method: str, path: str, body: Any) -> int:
    if path.endswith(":batch"):
        headers = {"Content-Type": "application/x-ndjson"}
        response = await client.http.request(method, path, content=b"", headers=headers)
    else:
        response = await client.http.request(method, path, json=body)
    return response.status_code


def test_the_list_has_every_route(house: House) -> None:
    listed = {(method, fill_names(path.partition("?")[0])) for method, path, _, _ in ROUTES}
    documented = {
        (method.upper(), fill_names(path.removeprefix("/api/v1")))
        for path, operations in house.app.openapi()["paths"].items()
        if path.startswith("/api/v1")
        for method in operations
    }
    assert listed == documented


def fill_names(path: str) -> str:
    """Every parameter, or what stands for one, is a star."""
    parts = path.split("/")
    known = ("/jobs/put", "/schemas/other")
    return "/".join(
        "*" if part.startswith("{") or (path in known and part == parts[-1]) else part for part in parts
    )


@pytest.mark.parametrize("role", RANK)
async def test_every_route_lets_through_its_role_and_those_above(role: str, house: House) -> None:
    for method, path, body, needed in ROUTES:
        tenant = await house.tenant()
        owned = await furnish(tenant) if "{" in path else {}
        status = await request(await tenant.client(role), method, fill(path, owned), body)
        if RANK[role] >= RANK[needed]:
            assert status < 300, f"{role} {method} {path}: {status}"
        else:
            assert status == 403, f"{role} {method} {path}: {status}"


async def test_another_tenants_things_do_not_exist(house: House) -> None:
    owner, stranger = await house.tenant(), await house.tenant()
    owned, client = await furnish(owner), await stranger.client("admin")
    before = await owner.audit(), await owner.jobs()
    for method, path, body, _ in ROUTES:
        if "{" in path:
            status = await request(client, method, fill(path, owned), body)
            assert status == 404, f"{method} {path}: {status}"
    assert (await owner.audit(), await owner.jobs()) == before
    for path in ("/jobs", "/dead-letters", "/dead-letters:summary", "/schemas", "/audit"):
        assert (await client.ask(200, "GET", path))["items"] == []
    assert len((await client.ask(200, "GET", "/keys"))["items"]) == 1
    assert all(pool["jobs"] == 0 for pool in (await client.ask(200, "GET", "/pools"))["items"])
    await client.ask(422, "POST", "/jobs", {"name": "waits", "after": [owned["job"]]})
    await client.ask(404, "GET", "/dead-letters?job=daily")
    assert (await client.ask(404, "POST", "/dead-letters:redrive", {"ids": [owned["letter"]]}))[
        "status"
    ] == 404


async def test_without_a_valid_key_there_is_nothing(house: House) -> None:
    revoked = await house.tenant()
    client = await revoked.client("admin")
    key = (await client.ask(200, "GET", "/keys"))["items"][0]["id"]
    await client.ask(204, "DELETE", f"/keys/{key}")
    unknown = await house.client("ms_" + "a" * 32)
    for caller in (await house.client(), unknown, await house.client("ms_short"), client):
        for method, path, body, _ in ROUTES:
            assert await request(caller, method, path, body) == 401, f"{method} {path}"
    response = await unknown.http.get("/jobs")
    assert response.headers["www-authenticate"].startswith("Bearer")


async def test_a_key_is_shown_once_and_stored_hashed(house: House, tenant: Tenant, admin: Client) -> None:
    made = await admin.ask(201, "POST", "/keys", {"name": "ci", "role": "operator", "handlers": ["a", "b"]})
    assert made["secret"].startswith("ms_")
    listed = (await admin.ask(200, "GET", "/keys"))["items"][-1]
    assert listed == {name: value for name, value in made.items() if name != "secret"}
    rows = await house.fetch("SELECT to_jsonb(api_keys)::text FROM api_keys WHERE tenant_id = $1", tenant.id)
    assert not any(made["secret"] in row for (row,) in rows)
    assert not any(made["secret"] in str(row) for row in await tenant.audit())
    await (await house.client(made["secret"])).ask(200, "GET", "/jobs")
    await admin.ask(409, "POST", "/keys", {"name": "ci", "role": "viewer"})
    await admin.ask(400, "POST", "/keys", {"name": "x", "role": "viewer"}, Idempotency_Key="k")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"role": "viewer"}, "name"),
        ({"name": "k"}, "role"),
        ({"name": "k", "role": "root"}, "role"),
        ({"name": "k", "role": "viewer", "handlers": []}, "handlers"),
        ({"name": "k", "role": "viewer", "handlers": "a"}, "handlers"),
        ({"name": "k", "role": "viewer", "handler": ["a"]}, "handler"),
    ],
)
async def test_a_key_that_breaks_a_rule(admin: Client, body: Any, field: str) -> None:
    assert (await admin.ask(422, "POST", "/keys", body))["field"] == field


async def test_a_key_uses_its_handlers_and_no_others(tenant: Tenant, admin: Client) -> None:
    mine, other = await admin.job(name="mine"), await admin.job(name="other")
    await add_dead_run(tenant.house, tenant, other["job_id"])
    letter = await tenant.house.value("SELECT max(id) FROM dead_letters WHERE tenant_id = $1", tenant.id)
    queued = await admin.ask(202, "POST", "/jobs/other/trigger")
    client, before = await tenant.client("operator", ["mine"]), await tenant.audit()
    for method, path, body in [
        ("POST", "/jobs", {"name": "more", **DAILY}),
        ("PUT", "/jobs/other", {"handler": "mine", **DAILY}),
        ("PUT", "/jobs/mine", {"handler": "other", **DAILY}),
        ("PATCH", "/jobs/other", {"payload": 1}),
        ("PATCH", "/jobs/mine", {"handler": "other"}),
        ("POST", "/jobs/other/pause", None),
        ("POST", "/jobs/other/resume", None),
        ("POST", "/jobs/other/trigger", None),
        ("POST", "/jobs/other/backfill", RANGE | {"dry_run": False}),
        ("POST", f"/runs/{queued['run_id']}/cancel", None),
        ("POST", f"/dead-letters/{letter}/redrive", None),
        ("POST", "/dead-letters:redrive", {"ids": [letter], "dry_run": False}),
        ("DELETE", "/jobs/other", None),
    ]:
        refused = await client.ask(403, method, path, body)
        assert "handler" in refused["rule"], f"{method} {path}"
    assert await tenant.audit() == before
    assert await tenant.jobs() == 2
    await client.ask(202, "POST", f"/jobs/{mine['job_id']}/trigger")
    limited = await tenant.client("admin", ["mine"])
    await limited.ask(403, "POST", "/keys", {"name": "n", "role": "admin"})
    await limited.ask(403, "POST", "/keys", {"name": "n", "role": "admin", "handlers": ["other"]})
    await limited.ask(201, "POST", "/keys", {"name": "n", "role": "admin", "handlers": ["mine"]})


async def test_a_tenant_that_asks_too_often_is_told_when_to_come_back(house: House) -> None:
    tenant = await house.tenant(requests_per_second=2)
    client = await tenant.client("viewer")
    statuses = [(await client.http.get("/tenant")) for _ in range(20)]
    refused = [response for response in statuses if response.status_code == 429]
    assert refused
    assert refused[0].headers["retry-after"] == "1"
    assert refused[0].json()["type"] == "urn:mainspring:rate-limited"
    other = await (await house.tenant()).client("viewer")
    await other.ask(200, "GET", "/tenant")


async def test_a_quota_binds_each_way_to_create_a_job(house: House) -> None:
    tenant = await house.tenant(maximum_jobs=2)
    client = await tenant.client()
    await client.job(name="a")
    lines = b'{"name":"b","schedule":"@daily"}\n{"name":"c","schedule":"@daily"}\n'
    headers = {"Content-Type": "application/x-ndjson"}
    answer = (await client.http.post("/jobs:batch", content=lines, headers=headers)).text
    assert '"created":1,"refused":1' in answer
    assert "quota-exceeded" in answer
    response = await client.http.post("/jobs", json={"name": "d", **DAILY})
    assert (response.status_code, response.headers["retry-after"]) == (429, "60")
    assert response.json()["field"] == "maximum_jobs"
    await client.ask(429, "PUT", "/jobs/d", DAILY)
    await client.ask(200, "PUT", "/jobs/a", {"payload": 7, **DAILY})
    await client.ask(204, "DELETE", "/jobs/a")
    await client.ask(201, "PUT", "/jobs/d", DAILY)
    assert await tenant.jobs() == 2
