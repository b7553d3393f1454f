"""The client and the API agree: a method for each route, a model for each answer, known filters alone."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any

import pytest
from fastapi.routing import APIRoute

from mainspring.api.documents import COMPONENTS
from mainspring.api.job_schema import properties
from mainspring.api.problems import TABLE
from mainspring.api.routes import access, batch, changes, cluster, jobs, letters, runs
from mainspring.client import models
from mainspring.client.core import Call, Listing, Request
from mainspring.client.errors import refusal
from mainspring.client.routes import installation as there
from mainspring.client.routes import jobs as job_calls
from mainspring.client.routes import runs as run_calls
from mainspring.client.submission import batch as batch_call

MODELS: dict[str, type[Any]] = {
    "Job": models.Job,
    "JobDetail": models.JobDetail,
    "Validated": models.Validated,
    "Run": models.Run,
    "RunDetail": models.RunDetail,
    "Triggered": models.Triggered,
    "Cancellation": models.Cancellation,
    "Backfill": models.Backfill,
    "Explanation": models.Explanation,
    "DeadLetter": models.DeadLetter,
    "DeadLetterDetail": models.DeadLetterDetail,
    "DeadLettersSummary": models.DeadLetterKind,
    "Redriven": models.Redriven,
    "Redrive": models.Redrive,
    "Shards": models.Shard,
    "Workers": models.Worker,
    "Pools": models.Pool,
    "Forecast": models.Forecast,
    "PayloadSchema": models.PayloadSchema,
    "Key": models.Key,
    "NewKey": models.NewKey,
    "AuditRows": models.AuditRow,
    "Tenant": models.Tenant,
}
AT = "2026-01-01T00:00:00Z"
CALLS: list[Call[Any] | Listing[Any]] = [
    job_calls.create(name="a"),
    job_calls.put("a"),
    job_calls.validate(name="a"),
    job_calls.get("a"),
    job_calls.find(status="active", handler="h", pool="p", labels={"a": "b"}, name_prefix="n"),
    job_calls.edit("a", priority=1),
    job_calls.delete("a"),
    job_calls.pause("a"),
    job_calls.resume("a"),
    job_calls.trigger("a"),
    job_calls.backfill("a", AT, AT),
    job_calls.explain("a", AT),
    job_calls.runs("a"),
    batch_call(b"", atomic=True, reason=None),
    run_calls.get("r"),
    run_calls.log("r"),
    run_calls.cancel("r"),
    run_calls.get_letter(1),
    run_calls.find_letters(fingerprint="f", handler="h", job="j", since=AT, redriven=True),
    run_calls.summary(),
    run_calls.redrive(1),
    run_calls.redrive_many(ids=[1]),
    there.shards(),
    there.workers(),
    there.pools(),
    there.forecast(AT, 60),
    there.tenant(),
    there.audit(subject="s", actor="a", action="x", since=AT),
    there.list_schemas(),
    there.get_schema("h"),
    there.put_schema("h", {}),
    there.delete_schema("h"),
    there.list_keys(),
    there.create_key("k", "viewer"),
    there.revoke_key(1),
]


def routes() -> list[APIRoute]:
    routers = (jobs, batch, changes, runs, letters, cluster, access)
    return [route for each in routers for route in each.router.routes if isinstance(route, APIRoute)]


def route_of(request: Request) -> APIRoute:
    """The first that takes it, as the API finds it."""
    path = request.path.removeprefix("/api/v1")
    for route in routes():
        pattern = re.sub(r"\{\w+\}", "[^/]+", route.path)
        if request.method in (route.methods or ()) and re.fullmatch(pattern, path):
            return route
    raise AssertionError(f"the API has no {request.method} {path}")


def request_of(call: Call[Any] | Listing[Any]) -> Request:
    return call.page("cursor", 10).request if isinstance(call, Listing) and _has_pages(call) else _one(call)


def _has_pages(listing: Listing[Any]) -> bool:
    return listing.path not in ("/api/v1/shards", "/api/v1/pools", "/api/v1/dead-letters:summary")


def _one(call: Call[Any] | Listing[Any]) -> Request:
    return call.page().request if isinstance(call, Listing) else call.request


def test_every_route_of_the_api_has_a_method_of_the_client() -> None:
    reached = {id(route_of(request_of(call)).endpoint) for call in CALLS}
    missing = [f"{route.methods} {route.path}" for route in routes() if id(route.endpoint) not in reached]
    assert missing == []


@pytest.mark.parametrize("call", CALLS)
def test_every_parameter_that_is_sent_is_one_of_the_route(call: Call[Any] | Listing[Any]) -> None:
    request = request_of(call)
    known = {parameter.alias for parameter in route_of(request).dependant.query_params}
    assert {name for name, _ in request.query} <= known


@pytest.mark.parametrize("name", MODELS)
def test_every_answer_has_a_model_with_its_fields(name: str) -> None:
    schema = COMPONENTS[name]["properties"]
    if "items" in schema:
        schema = schema["items"]["items"]["properties"]
    assert {each.metadata.get("name", each.name) for each in fields(MODELS[name])} == set(schema)


def test_a_jobs_fields_are_those_of_the_api() -> None:
    assert set(models.JobFields.__annotations__) == set(properties())


def test_every_refusal_of_the_table_is_an_error_of_its_own_status() -> None:
    for _, kind in TABLE:
        error = refusal(kind.status, {"type": f"urn:mainspring:{kind.slug}", "detail": "x"})
        assert (error.status, error.kind) == (kind.status, kind.slug)
        assert type(error).__name__ != "ApiError", kind
