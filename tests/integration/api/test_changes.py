"""Pause, resume, trigger, backfill, cancel, redrive; what each leaves in the audit; Idempotency-Key."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest

from tests.integration.api.house import Client, House, Tenant
from tests.integration.api.test_access import add_dead_run, furnish


async def test_pause_and_resume(operator: Client) -> None:
    await operator.job()
    until = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    paused = await operator.ask(200, "POST", "/jobs/daily/pause", {"reason": "flood", "until": until})
    assert (paused["status"], paused["paused_reason"], paused["next_run_at"]) == ("paused", "flood", None)
    assert paused["resume_at"] is not None
    assert (await operator.ask(409, "POST", "/jobs/daily/trigger"))["type"] == "urn:mainspring:wrong-status"
    assert (await operator.ask(200, "GET", "/jobs/daily"))["next_runs"] == []
    resumed = await operator.ask(200, "POST", "/jobs/daily/resume")
    assert (resumed["status"], resumed["paused_reason"], resumed["resume_at"]) == ("active", None, None)
    past = {"until": "2020-01-01T00:00:00Z"}
    assert (await operator.ask(422, "POST", "/jobs/daily/pause", past))["field"] == "until"
    assert (await operator.ask(422, "POST", "/jobs/daily/pause", {"why": "x"}))["field"] == "why"
    assert (await operator.ask(422, "POST", "/jobs/daily/pause", {"reason": "x" * 501}))["field"] == "reason"


async def test_several_triggers_in_one_second_stay_several(operator: Client, tenant: Tenant) -> None:
    await operator.job()
    made = await asyncio.gather(*(operator.ask(202, "POST", "/jobs/daily/trigger") for _ in range(8)))
    assert len({run["run_id"] for run in made}) == 8
    assert len({run["scheduled_at"] for run in made}) == 8
    timers = await tenant.house.value(
        "SELECT count(*) FROM timers JOIN jobs ON jobs.id = job_id WHERE tenant_id = $1", tenant.id
    )
    assert timers == 8
    at = made[0]["scheduled_at"].replace("+", "%2B")
    explained = await operator.ask(200, "GET", f"/jobs/daily/explain?at={at}")
    assert (explained["verdict"], explained["facts"]["cause"]) == ("queued", "trigger")


async def test_a_backfill_is_a_dry_run_first_and_makes_only_what_is_missing(operator: Client) -> None:
    await operator.job(schedule="0 * * * *")
    end = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    asked = {"start": (end - timedelta(hours=3)).isoformat(), "end": end.isoformat()}
    dry = await operator.ask(200, "POST", "/jobs/daily/backfill", asked)
    assert (dry["count"], len(dry["instants"]), dry["dry_run"]) == (3, 3, True)
    done = await operator.ask(200, "POST", "/jobs/daily/backfill", asked | {"dry_run": False})
    assert (done["count"], done["dry_run"]) == (3, False)
    again = await operator.ask(200, "POST", "/jobs/daily/backfill", asked | {"dry_run": False})
    assert again["count"] == 0
    assert (await operator.ask(200, "POST", "/jobs/daily/backfill", asked))["instants"] == []
    assert (await operator.ask(422, "POST", "/jobs/daily/backfill", {"start": asked["start"]}))[
        "field"
    ] == "end"
    few = asked | {"limit": 2}
    assert (await operator.ask(422, "POST", "/jobs/daily/backfill", few))["field"] == "end"


async def test_a_backfill_repeats_what_has_ended_only_when_asked(operator: Client, tenant: Tenant) -> None:
    job = await operator.job(schedule="0 * * * *")
    instant = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=1)
    internal = await tenant.house.registry.find(tenant.id, job["job_id"])
    connection = await asyncpg.connect(tenant.house.settings.postgres.dsn)
    from mainspring.schema.partitions import ensure_days

    await ensure_days(connection, [instant.date()])
    await connection.execute(
        "INSERT INTO claims (id, worker_id, outcomes)"
        " VALUES (nextval('audit_id_seq') + 5000000, 'w', '\\x01')"
    )
    await connection.execute(
        "INSERT INTO runs SELECT $1, $2, max(id), 0, 1 FROM claims", internal.id, instant
    )
    await connection.close()
    asked = {"start": instant.isoformat(), "end": (instant + timedelta(minutes=1)).isoformat()}
    assert (await operator.ask(200, "POST", "/jobs/daily/backfill", asked))["count"] == 0
    again = asked | {"again": True}
    assert (await operator.ask(200, "POST", "/jobs/daily/backfill", again))["count"] == 1
    assert (await operator.ask(200, "POST", "/jobs/daily/backfill", again | {"dry_run": False}))["count"] == 1
    timers = await tenant.house.fetch(
        "SELECT attempt, cause FROM timers WHERE job_id = $1 AND scheduled_at = $2", internal.id, instant
    )
    assert timers == [(2, "backfill")]


async def test_a_run_with_its_log_and_progress(operator: Client, tenant: Tenant) -> None:
    job = await operator.job()
    run_id = await add_dead_run(tenant.house, tenant, job["job_id"])
    run = await operator.ask(200, "GET", f"/runs/{run_id}")
    assert (run["status"], run["attempt"], run["worker"], run["error"]) == ("dead", 1, "w", "no such host")
    assert (run["duration_ms"], run["progress"]) == (20, "line 2")
    assert [line["message"] for line in run["log"]] == ["line 0", "line 1", "line 2"]
    page = await operator.ask(200, "GET", f"/runs/{run_id}/log?limit=2")
    rest = await operator.ask(200, "GET", f"/runs/{run_id}/log?cursor={page['next_cursor']}")
    assert [line["line"] for line in page["items"] + rest["items"]] == [0, 1, 2]
    assert (await operator.ask(200, "GET", "/jobs/daily"))["last_run"]["run_id"] == run_id
    listed = await operator.ask(200, "GET", "/jobs/daily/runs?limit=1")
    assert [each["run_id"] for each in listed["items"]] == [run_id]
    assert (await operator.ask(409, "POST", f"/runs/{run_id}/cancel"))["type"] == "urn:mainspring:run-ended"
    for path in ("/runs/r_1", f"/runs/{run_id[:-1]}z", "/runs/%00"):
        await operator.ask(404, "GET", path)


async def test_a_queued_run_is_cancelled_once(operator: Client) -> None:
    await operator.job()
    run_id = (await operator.ask(202, "POST", "/jobs/daily/trigger"))["run_id"]
    first = await operator.ask(202, "POST", f"/runs/{run_id}/cancel", {"reason": "wrong day"})
    second = await operator.ask(202, "POST", f"/runs/{run_id}/cancel", {"reason": "again"})
    assert first == second
    assert (first["state"], first["reason"]) == ("scheduled", "wrong day")


async def test_dead_letters_are_found_counted_and_redriven(operator: Client, tenant: Tenant) -> None:
    job = await operator.job()
    run_id = await add_dead_run(tenant.house, tenant, job["job_id"])
    listed = await operator.ask(
        200, "GET", "/dead-letters?job=daily&fingerprint=f1&since=2020-01-01T00:00:00Z"
    )
    assert (listed["total"], listed["items"][0]["run_id"]) == (1, run_id)
    letter = listed["items"][0]["id"]
    assert (await operator.ask(200, "GET", f"/dead-letters/{letter}"))["payload"] is None
    assert (await operator.ask(200, "GET", "/dead-letters:summary"))["items"][0]["open"] == 1
    dry = await operator.ask(200, "POST", "/dead-letters:redrive", {"fingerprint": "f1"})
    assert (dry["count"], dry["runs"], dry["dry_run"]) == (1, [], True)
    done = await operator.ask(200, "POST", "/dead-letters:redrive", {"fingerprint": "f1", "dry_run": False})
    assert (done["count"], len(done["runs"])) == (1, 1)
    refused = await operator.ask(409, "POST", f"/dead-letters/{letter}/redrive")
    assert refused["type"] == "urn:mainspring:redrive-refused"
    dry = await operator.ask(200, "POST", "/dead-letters:redrive", {"ids": [letter]})
    assert (dry["count"], dry["refused"][0]["id"]) == (0, letter)
    wrong: list[Any] = [{}, {"ids": [letter], "handler": "daily"}, {"ids": []}, {"ids": ["1"]}]
    for body in wrong:
        assert (await operator.ask(422, "POST", "/dead-letters:redrive", body))["field"] == "ids"
    for path in ("/dead-letters/0", "/dead-letters/99999999999999999999", "/dead-letters/x"):
        await operator.ask(404, "GET", path)


async def test_every_change_leaves_who_what_and_why(tenant: Tenant, admin: Client) -> None:
    made = await admin.ask(201, "POST", "/jobs", {"name": "j", "schedule": "@daily"}, X_Reason="wanted")
    job = made["job_id"]
    await admin.ask(200, "PATCH", "/jobs/j", {"payload": {"a": "\u0000\\u0000"}, "priority": 7})
    await admin.ask(200, "PATCH", "/jobs/j", {"priority": 7})
    await admin.ask(200, "PUT", "/jobs/j", {"schedule": "@hourly"})
    await admin.ask(200, "POST", "/jobs/j/pause", {"reason": "r"})
    await admin.ask(200, "POST", "/jobs/j/resume")
    run = await admin.ask(202, "POST", "/jobs/j/trigger")
    await admin.ask(202, "POST", f"/runs/{run['run_id']}/cancel")
    await admin.ask(204, "DELETE", "/jobs/j", X_Reason="über")
    rows = await tenant.audit()
    assert [(action, subject) for _, action, subject, *_ in rows] == [
        ("create", job),
        ("edit", job),
        ("replace", job),
        ("pause", job),
        ("resume", job),
        ("trigger", job),
        ("cancel", run["run_id"]),
        ("delete", job),
    ]
    assert {actor for actor, *_ in rows} == {admin.key}
    assert (rows[0][5], rows[-1][5], rows[1][5]) == ("wanted", "über", None)
    assert json.loads(rows[1][3]) == {"payload": None, "priority": 5}
    assert json.loads(rows[1][4]) == {"payload": {"a": "\ufffd\\u0000"}, "priority": 7}
    assert json.loads(rows[3][4]) == {"status": "paused", "paused_reason": "r", "resume_at": None}
    listed = await admin.ask(200, "GET", f"/audit?subject={job}&action=pause&actor={admin.key}")
    assert [row["after"]["paused_reason"] for row in listed["items"]] == ["r"]
    newest = await admin.ask(200, "GET", "/audit?limit=3")
    rest = await admin.ask(200, "GET", f"/audit?cursor={newest['next_cursor']}")
    assert [row["action"] for row in newest["items"]] == ["delete", "cancel", "trigger"]
    assert len(rest["items"]) == 5


async def test_a_change_that_is_refused_leaves_nothing(tenant: Tenant, operator: Client) -> None:
    await operator.job()
    before = await tenant.audit()
    await operator.ask(409, "POST", "/jobs", {"name": "daily", "schedule": "@daily"})
    await operator.ask(412, "PATCH", "/jobs/daily", {"payload": 1}, If_Match='"9"')
    await operator.ask(422, "POST", "/jobs", {"name": "x", "after": ["nobody"]})
    assert await tenant.audit() == before


async def test_no_role_changes_an_audit_row(house: House, tenant: Tenant, operator: Client) -> None:
    await operator.job()
    for statement in ("UPDATE audit SET actor = 'x'", "DELETE FROM audit", "TRUNCATE audit"):
        with pytest.raises(asyncpg.IntegrityConstraintViolationError):
            await house.fetch(statement)


async def test_a_long_payload_is_described_in_the_audit(tenant: Tenant, operator: Client) -> None:
    await operator.job(payload="x" * 100_000)
    assert json.loads((await tenant.audit())[0][4])["payload"]["length"] == 100_002


async def test_the_same_request_with_the_same_key_happens_once(operator: Client, tenant: Tenant) -> None:
    body = {"name": "once", "schedule": "@daily"}
    first = await operator.ask(201, "POST", "/jobs", body, Idempotency_Key="k1")
    response = await operator.http.post("/jobs", json=body, headers={"Idempotency-Key": "k1"})
    assert (response.status_code, response.json()) == (201, first)
    assert response.headers["idempotent-replayed"] == "true"
    await operator.ask(422, "POST", "/jobs", body | {"payload": 1}, Idempotency_Key="k1")
    await operator.ask(422, "POST", "/jobs/once/trigger", None, Idempotency_Key="k1")
    runs = [
        await operator.ask(202, "POST", "/jobs/once/trigger", None, Idempotency_Key="k2") for _ in range(3)
    ]
    assert len({run["run_id"] for run in runs}) == 1
    assert (await tenant.jobs(), len(await tenant.audit())) == (1, 2)
    await operator.ask(400, "POST", "/jobs", body, Idempotency_Key=" x" * 101)
    other = await (await tenant.house.tenant()).client()
    assert (await other.ask(201, "POST", "/jobs", body, Idempotency_Key="k1"))["job_id"] != first["job_id"]


async def test_the_same_key_many_times_at_once_happens_once(operator: Client, tenant: Tenant) -> None:
    await operator.job()

    async def trigger() -> Any:
        return await operator.ask(202, "POST", "/jobs/daily/trigger", None, Idempotency_Key="together")

    assert len({run["run_id"] for run in await asyncio.gather(*(trigger() for _ in range(10)))}) == 1
    assert len(await tenant.audit()) == 2


async def test_a_key_is_free_again_after_a_day(operator: Client, tenant: Tenant) -> None:
    await operator.job()
    first = await operator.ask(202, "POST", "/jobs/daily/trigger", None, Idempotency_Key="k")
    await tenant.house.fetch(
        "UPDATE idempotency_keys SET created_at = now() - interval '25 hours' WHERE tenant_id = $1", tenant.id
    )
    second = await operator.ask(202, "POST", "/jobs/daily/trigger", None, Idempotency_Key="k")
    assert second["run_id"] != first["run_id"]


async def test_payloads_are_held_against_the_schema_of_their_handler(admin: Client, tenant: Tenant) -> None:
    schema = {"type": "object", "properties": {"to": {"type": "string"}}, "required": ["to"]}
    await admin.job(name="old", handler="mail", payload=1)
    assert (await admin.ask(201, "PUT", "/schemas/mail", schema))["schema"] == schema
    await admin.ask(200, "PUT", "/schemas/mail", schema)
    daily = {"schedule": "@daily", "handler": "mail"}
    refused = await admin.ask(422, "POST", "/jobs", daily | {"payload": {"to": 1}})
    assert (refused["field"], refused["rule"]) == ("payload.to", "1 is not of type 'string'")
    await admin.ask(422, "POST", "/jobs:validate", daily)
    await admin.ask(422, "PUT", "/jobs/new", daily)
    await admin.ask(422, "PATCH", "/jobs/old", {"payload": {"to": None}})
    await admin.ask(200, "PATCH", "/jobs/old", {"priority": 1})
    made = await admin.ask(201, "POST", "/jobs", daily | {"payload": {"to": "a"}})
    await admin.ask(422, "PATCH", f"/jobs/{made['job_id']}", {"payload": None})
    lines = b'{"handler":"mail","schedule":"@daily"}\n{"handler":"other","schedule":"@daily"}\n'
    headers = {"Content-Type": "application/x-ndjson"}
    answer = (await admin.http.post("/jobs:batch", content=lines, headers=headers)).text
    assert '"created":1,"refused":1' in answer
    await admin.ask(204, "DELETE", "/schemas/mail")
    await admin.ask(201, "POST", "/jobs", daily)


@pytest.mark.parametrize(
    "schema",
    [
        1,
        [],
        {"type": "objekt"},
        {"$ref": "http://127.0.0.1/x"},
        {"pattern": "("},
        {"patternProperties": {"(": 1}},
    ],
)
async def test_a_schema_that_is_none(admin: Client, schema: Any) -> None:
    assert (await admin.ask(422, "PUT", "/schemas/mail", schema))["field"] == "schema"


async def test_a_schema_that_refers_to_itself_without_end_refuses(admin: Client) -> None:
    await admin.ask(201, "PUT", "/schemas/mail", {"$ref": "#"})
    await admin.ask(422, "POST", "/jobs", {"handler": "mail", "schedule": "@daily"})
    await admin.ask(200, "PUT", "/schemas/mail", {"$ref": "#/nowhere"})
    await admin.ask(422, "POST", "/jobs", {"handler": "mail", "schedule": "@daily"})


async def test_forecast_counts_cadences_timers_and_jitter(operator: Client) -> None:
    await operator.job(name="a", schedule="* * * * * *")
    await operator.job(name="b", schedule="* * * * * *")
    start = (datetime.now(UTC) + timedelta(minutes=5)).replace(microsecond=0)
    once = start + timedelta(seconds=3)
    await operator.job(name="c", schedule=once.isoformat())
    shown = await operator.ask(200, "GET", f"/forecast?seconds=5&from={start:%Y-%m-%dT%H:%M:%SZ}")
    assert [second["jobs"] for second in shown["seconds"]] == [2, 2, 2, 3, 2]
    await operator.ask(200, "POST", "/jobs/a/pause")
    shown = await operator.ask(200, "GET", f"/forecast?seconds=2&from={start:%Y-%m-%dT%H:%M:%SZ}")
    assert [second["jobs"] for second in shown["seconds"]] == [1, 1]
    assert shown["is_complete"] is True


async def test_everything_of_the_cluster_is_shown(tenant: Tenant, operator: Client) -> None:
    house = tenant.house
    await furnish(tenant)
    await house.fetch(
        "INSERT INTO workers (id, pool, lanes, handlers, concurrency)"
        " VALUES ('wk-1', 'default', '{low}', '{h}', 3)"
        " ON CONFLICT DO NOTHING"
    )
    await house.fetch(
        "INSERT INTO claims (id, worker_id, outcomes) VALUES (77, 'wk-1', '\\x000100') ON CONFLICT DO NOTHING"
    )
    worker = (await operator.ask(200, "GET", "/workers"))["items"][0]
    assert (worker["worker"], worker["status"], worker["running"]) == ("wk-1", "alive", 2)
    assert len((await operator.ask(200, "GET", "/shards"))["items"]) == 4
    pool = (await operator.ask(200, "GET", "/pools"))["items"][0]
    assert (pool["pool"], pool["jobs"], pool["workers"], pool["dead_letters"]) == ("default", 1, 1, 1)
