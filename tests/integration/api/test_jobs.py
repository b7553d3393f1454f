"""Jobs over HTTP: create, replace, read, list, change, delete; what is refused names its field and rule."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from mainspring.api.shapes import DEFINITION
from tests.integration.api.house import WEEKLY_REPORT, Client, House, Tenant

DAILY = {"schedule": "@daily"}


async def test_the_body_of_the_issue_is_accepted_as_it_stands(operator: Client) -> None:
    made = await operator.ask(201, "POST", "/jobs", WEEKLY_REPORT)
    assert made["job_id"].startswith("j_")
    assert made["next_run_at"].endswith(":00:00Z")
    assert made["handler"] == "send-weekly-report"
    assert {name: made[name] for name in WEEKLY_REPORT} == WEEKLY_REPORT
    by_id = await operator.ask(200, "GET", f"/jobs/{made['job_id']}")
    by_name = await operator.ask(200, "GET", "/jobs/send-weekly-report")
    assert by_id == by_name
    assert len(by_name["next_runs"]) == 5
    assert by_name["next_runs"][0] == made["next_run_at"]
    assert by_name["last_run"] is None


async def test_the_answer_is_a_body_that_makes_the_same_job(operator: Client) -> None:
    made = await operator.job(labels={"team": "mail"}, priority="high", dst={"gap": "skip"})
    definition = {name: made[name] for name in DEFINITION if made[name] is not None}
    again = await operator.ask(200, "PUT", "/jobs/daily", definition)
    assert again["version"] == made["version"]


async def test_create_or_replace_by_name(operator: Client, tenant: Tenant) -> None:
    response = await operator.http.put("/jobs/report", json=DAILY)
    assert (response.status_code, response.headers["etag"]) == (201, '"1"')
    replaced = await operator.ask(200, "PUT", "/jobs/report", {**DAILY, "payload": 1})
    assert (replaced["job_id"], replaced["version"]) == (response.json()["job_id"], 2)
    refused = await operator.ask(422, "PUT", "/jobs/report", {**DAILY, "name": "other"})
    assert refused["field"] == "name"
    assert await tenant.jobs() == 1


@pytest.mark.parametrize("name", ["a/b", "ü ber", "100%", "%2F", "a?b#c", "a:b", ".."])
async def test_any_name_is_one_segment_of_a_path(operator: Client, name: str) -> None:
    path = f"/jobs/{quote(name, safe='').replace('.', '%2E')}"
    made = await operator.ask(201, "PUT", path, DAILY)
    assert made["name"] == name
    assert (await operator.ask(200, "GET", path))["job_id"] == made["job_id"]
    assert (await operator.ask(200, "GET", f"{path}/runs"))["items"] == []
    await operator.ask(204, "DELETE", path)
    await operator.ask(404, "GET", path)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "name"),
        ({"name": "x"}, "schedule"),
        ({"name": "x", "schedule": "61 * * * *"}, "schedule"),
        ({"name": "x", **DAILY, "timezone": "Mars/Base"}, "timezone"),
        ({"name": "x", **DAILY, "max_retries": -1}, "max_retries"),
        ({"name": "x", **DAILY, "max_retries": True}, "max_retries"),
        ({"name": "x", **DAILY, "missed_window": "run_once"}, "missed_window"),
        ({"name": "x", **DAILY, "mised_window": "SKIP"}, "mised_window"),
        ({"name": "x", **DAILY, "idempotency_key_template": "{{attempt}}"}, "idempotency_key_template"),
        ({"name": "x\u0000", **DAILY}, "name"),
        ({"name": "x", **DAILY, "after": ["y"]}, "after"),
        ({"name": "x", "after": ["nobody"]}, "after"),
    ],
)
async def test_a_refusal_names_the_field_and_the_rule(operator: Client, body: Any, field: str) -> None:
    refused = await operator.ask(422, "POST", "/jobs", body)
    assert refused["field"] == field
    assert refused["rule"]
    assert refused["detail"] == f"{field}: {refused['rule']}"


@pytest.mark.parametrize(
    ("content", "status"),
    [(b"{", 400), (b"\xff", 400), (b'{"name":NaN}', 400), (b"[" * 100_000, 400), (b"[]", 422), (b"", 400)],
)
async def test_what_is_no_json_object(operator: Client, content: bytes, status: int) -> None:
    headers = {"Content-Type": "application/json"}
    assert (await operator.http.post("/jobs", content=content, headers=headers)).status_code == status


async def test_a_body_says_that_it_is_json_and_is_not_too_large(operator: Client, house: House) -> None:
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    assert (await operator.http.post("/jobs", content=b"{}", headers=form)).status_code == 415
    assert (await operator.http.post("/jobs", content=b"{}")).status_code == 415
    large = b" " * (house.settings.body_bytes + 1)
    headers = {"Content-Type": "application/json"}
    assert (await operator.http.post("/jobs", content=large, headers=headers)).status_code == 413

    async def unannounced() -> Any:
        for _ in range(20):
            yield large[:100_000]

    assert (await operator.http.post("/jobs", content=unannounced(), headers=headers)).status_code == 413
    refused = await operator.ask(422, "POST", "/jobs", {"name": "x", **DAILY, "payload": "x" * 1_100_000})
    assert "1000000" in refused["rule"] or "1,000,000" in refused["rule"]


async def test_a_name_that_is_taken(operator: Client) -> None:
    await operator.job()
    refused = await operator.ask(409, "POST", "/jobs", {"name": "daily", **DAILY})
    assert (refused["field"], refused["names"]) == ("name", ["daily"])


async def test_a_patch_changes_what_it_names_and_if_match_holds_it_back(operator: Client) -> None:
    made = await operator.job(payload=1, max_retries=7)
    path = f"/jobs/{made['job_id']}"
    changed = await operator.ask(200, "PATCH", path, {"payload": 2}, If_Match='"1"')
    assert (changed["payload"], changed["max_retries"], changed["version"]) == (2, 7, 2)
    refused = await operator.ask(412, "PATCH", path, {"payload": 3}, If_Match='"1"')
    assert refused["version"] == 2
    assert (await operator.ask(200, "PATCH", path, {"max_retries": None}, If_Match="*"))["max_retries"] == 3
    assert (await operator.http.get(path)).headers["etag"] == '"3"'
    assert (await operator.ask(400, "PATCH", path, {}, If_Match="x"))["field"] == "If-Match"
    assert (await operator.ask(422, "PATCH", path, {"priority": "urgent"}))["field"] == "priority"


async def test_a_deleted_job_is_gone_and_its_name_is_free(operator: Client) -> None:
    made = await operator.job()
    await operator.ask(204, "DELETE", "/jobs/daily")
    await operator.ask(404, "GET", f"/jobs/{made['job_id']}")
    await operator.ask(404, "DELETE", "/jobs/daily")
    assert (await operator.job())["job_id"] != made["job_id"]


async def test_a_validation_shows_the_coming_times_and_writes_nothing(
    operator: Client, tenant: Tenant
) -> None:
    shown = await operator.ask(200, "POST", "/jobs:validate", WEEKLY_REPORT)
    assert (len(shown["next_runs"]), shown["words"], shown["kind"]) == (5, "at 09:00, on Monday", "cron")
    once = {"name": "o", "schedule": "2030-01-01T00:00:00Z"}
    assert (await operator.ask(200, "POST", "/jobs:validate", once))["next_runs"] == ["2030-01-01T00:00:00Z"]
    await operator.ask(422, "POST", "/jobs:validate", {"name": "x"})
    assert await tenant.jobs() == 0


async def test_the_list_is_filtered(operator: Client) -> None:
    await operator.job(name="mail-a", handler="send", pool="mail", labels={"team": "a", "env": "p"})
    await operator.job(name="mail-b", handler="send", labels={"team": "b"})
    await operator.job(name="other%")
    await operator.ask(200, "POST", "/jobs/mail-b/pause")

    async def names(query: str) -> list[str]:
        found = await operator.ask(200, "GET", f"/jobs?{query}")
        assert (found["total"], found["total_is_exact"]) == (len(found["items"]), True)
        return sorted(job["name"] for job in found["items"])

    assert await names("") == ["mail-a", "mail-b", "other%"]
    assert await names("status=paused") == ["mail-b"]
    assert await names("handler=send") == ["mail-a", "mail-b"]
    assert await names("pool=mail") == ["mail-a"]
    assert await names("label=team:a&label=env:p") == ["mail-a"]
    assert await names("label=team:a&label=env:q") == []
    assert await names("name_prefix=mail-") == ["mail-a", "mail-b"]
    assert await names("name_prefix=other%25") == ["other%"]
    assert await names("name_prefix=%25") == []


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("limit=x", "limit"),
        ("cursor=nonsense", "cursor"),
        ("cursor=cnVuczox", "cursor"),
        ("cursor=am9iczp4", "cursor"),
        ("status=deleted", "status"),
        ("label=team", "label"),
        ("label=a:b&label=a:c", "label"),
        ("handler=%00", "handler"),
        ("name_prefix=%00", "name_prefix"),
    ],
)
async def test_a_filter_that_breaks_a_rule(operator: Client, query: str, field: str) -> None:
    assert (await operator.ask(422, "GET", f"/jobs?{query}"))["field"] == field


async def test_pages_neither_repeat_nor_lose_what_was_there(operator: Client) -> None:
    first = {(await operator.job(name=f"before-{number}"))["name"] for number in range(7)}
    seen, cursor, pages = list[str](), "", 0
    while True:
        page = await operator.ask(200, "GET", f"/jobs?limit=3{cursor}")
        seen += [job["name"] for job in page["items"]]
        assert len(page["items"]) <= 3
        if page["next_cursor"] is None:
            break
        cursor = f"&cursor={page['next_cursor']}"
        await operator.job(name=f"during-{pages}")
        pages += 1
        assert pages < 20, "it never ends"
    assert len(seen) == len(set(seen))
    assert first <= set(seen)


async def test_a_total_is_exact_to_its_bound_and_estimated_beyond(
    operator: Client, house: House, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = b"".join(b'{"handler":"h","schedule":"@daily"}\n' for _ in range(10_000))
    headers = {"Content-Type": "application/x-ndjson"}
    await operator.http.post("/jobs:batch", content=lines, headers=headers)
    exact = await operator.ask(200, "GET", "/jobs?limit=1")
    assert (exact["total"], exact["total_is_exact"]) == (10_000, True)
    await operator.job()
    await house.fetch("ANALYZE jobs")
    estimated = await operator.ask(200, "GET", "/jobs?limit=1")
    assert estimated["total_is_exact"] is False
    assert 10_001 <= estimated["total"] <= 40_000
    few = await operator.ask(200, "GET", "/jobs?handler=daily")
    assert (few["total"], few["total_is_exact"]) == (1, True)


async def test_what_is_no_path_and_no_method(operator: Client, house: House) -> None:
    assert (await operator.http.get("/nothing")).headers["content-type"] == "application/problem+json"
    refused = await operator.http.put("/jobs", json={})
    assert (refused.status_code, refused.headers["allow"]) == (405, "GET, POST")
