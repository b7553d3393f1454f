"""Jobs: create, replace, read, list, change, delete."""

from __future__ import annotations

import json
import re
from typing import Annotated, Any
from urllib.parse import unquote

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from mainspring.api import documents, paging, reading, shapes
from mainspring.api.access import Caller, Operator, Viewer
from mainspring.api.idempotency import perform
from mainspring.api.problems import BadRequest
from mainspring.api.shapes import Json
from mainspring.registry import Job, JobRequest, values
from mainspring.registry.edge import connected
from mainspring.registry.runs import Run
from mainspring.schedule import Kind, describe
from mainspring.schema.errors import InvalidInput, NotFound
from mainspring.schema.queries import query
from mainspring.schema.states import JobStatus

EXACT = 10_000
"""Totals are counted up to here, and estimated beyond."""

router = APIRouter(tags=["jobs"])
_ETAG = {"ETag": {"description": "The version, for If-Match.", "schema": documents.TEXT}}
_VERSION = re.compile(r'(?:W/)?"(\d{1,9})"|(\d{1,9})', re.ASCII)
_STATUSES = tuple(status for status in JobStatus if status is not JobStatus.DELETED)


async def find(caller: Caller, id_or_name: str) -> Job:
    """The job of a path: by id or name, which is one segment whatever is in it."""
    return await caller.services.registry.find(caller.tenant_id, segment(id_or_name))


def segment(text: str) -> str:
    """A segment of the path as it was meant: the slash and the percent sign in it are still encoded."""
    return unquote(text)


def with_version(job: Job) -> dict[str, str]:
    return {"ETag": f'"{job.version}"'}


@router.post(
    "/jobs",
    status_code=201,
    summary="Create a job",
    responses=documents.responses(201, "Job", 409, 413, 415),
    openapi_extra=documents.body(documents.named("JobRequest")),
)
async def create_job(request: Request, caller: Operator) -> Response:
    body, given = await reading.read_object(request)

    async def change(by: Any) -> Job:
        return await caller.services.registry.create(caller.tenant_id, JobRequest.from_mapping(given), by=by)

    answer = await perform(request, caller, body, 201, shapes.job, change)
    caller.services.metrics.registered.inc()
    return answer


@router.put(
    "/jobs/{job}",
    summary="Create the job of this name, or make it what the body says",
    responses=documents.responses(200, "Job", 409, 413, 415, headers=_ETAG)
    | {201: documents.responses(201, "Job", headers=_ETAG)[201]},
    openapi_extra=documents.body(documents.named("JobRequest")),
)
async def put_job(request: Request, job: str, caller: Operator) -> Response:
    _, given = await reading.read_object(request)
    name = values.check_name(segment(job))
    if given.get("name") not in (None, name):
        raise InvalidInput("name", f"is not {name!r}, which the path says")
    job_request = JobRequest.from_mapping({**given, "name": name})
    made, created = await caller.services.registry.put(caller.tenant_id, job_request, by=caller.actor())
    if created:
        caller.services.metrics.registered.inc()
    return Json(shapes.job(made), 201 if created else 200, with_version(made))


@router.post(
    "/jobs:validate",
    summary="Check a job without creating it",
    responses=documents.responses(200, "Validated", 413, 415),
    openapi_extra=documents.body(documents.named("JobRequest")),
)
async def validate_job(request: Request, caller: Viewer) -> Response:
    _, given = await reading.read_object(request)
    job_request = JobRequest.from_mapping(given)
    async with connected(caller.services.pool) as connection:
        await caller.services.schemas.examine(connection, caller.tenant_id, job_request)
        now = await connection.fetchval(query("database_now"))
    cadence, coming = job_request.cadence, []
    if cadence is not None and cadence.kind is Kind.AT:
        coming = [cadence.expression]
    elif cadence is not None:
        after = now if job_request.starts_at is None else max(now, job_request.starts_at)
        for _ in range(shapes.COMING):
            following = cadence.next_after(after)
            if following is None or (job_request.ends_at is not None and following >= job_request.ends_at):
                break
            coming.append(shapes.text_of(following))
            after = following
    in_words = "after other jobs" if cadence is None else describe(cadence)
    return Json({"kind": job_request.kind.value, "words": in_words, "next_runs": coming})


@router.get("/jobs", summary="List jobs", responses=documents.responses(200, "Jobs"))
async def list_jobs(
    caller: Viewer,
    status: Annotated[str | None, Query(description=f"One of {', '.join(_STATUSES)}.")] = None,
    handler: Annotated[str | None, Query()] = None,
    pool: Annotated[str | None, Query()] = None,
    label: Annotated[list[str] | None, Query(description="key:value; several must all hold.")] = None,
    name_prefix: Annotated[str | None, Query()] = None,
    limit: paging.Limit = paging.DEFAULT_PAGE,
    cursor: paging.Cursor = None,
) -> Response:
    where = (
        caller.tenant_id,
        None if status is None else _read_status(status),
        *(
            None if value is None else values.check_text(field, value, values.LONGEST_NAME)
            for field, value in (("handler", handler), ("pool", pool))
        ),
        _read_labels(label or []),
        *_name_bounds(name_prefix),
    )
    after = paging.decode_serial("jobs", cursor)
    async with connected(caller.services.pool) as connection:
        rows = await connection.fetch(query("list_jobs"), *where, after, limit + 1)
        total = await connection.fetchval(query("count_jobs"), *where, EXACT + 1)
        is_exact = total <= EXACT
        if not is_exact:
            plan = json.loads(await connection.fetchval(query("estimate_jobs"), *where))
            total = max(total, plan[0]["Plan"]["Plan Rows"])
    found, last = paging.cut([Job.from_row(row) for row in rows], limit)
    following = None if last is None else paging.encode("jobs", last.id)
    items = [shapes.job(job) for job in found]
    return Json(paging.page(items, following, total=total, total_is_exact=is_exact))


@router.get(
    "/jobs/{job}",
    summary="Get a job with its last run and its coming fire times",
    responses=documents.responses(200, "JobDetail", headers=_ETAG),
)
async def get_job(job: str, caller: Viewer) -> Response:
    found = await find(caller, job)
    async with connected(caller.services.pool) as connection:
        row = await connection.fetchrow(query("last_runs"), found.id)
    last = None if row is None else shapes.run(Run(*row))
    body = shapes.job(found) | {"last_run": last, "next_runs": shapes.next_runs(found)}
    return Json(body, headers=with_version(found))


@router.patch(
    "/jobs/{job}",
    summary="Change some fields of a job",
    responses=documents.responses(200, "Job", 409, 412, 413, 415, headers=_ETAG),
    openapi_extra=documents.body(documents.named("JobChanges"))
    | {"parameters": [documents.header("If-Match", "The version to change.", documents.TEXT)]},
)
async def patch_job(request: Request, job: str, caller: Operator) -> Response:
    expected = _expected_version(request.headers.get("if-match"))
    _, changes = await reading.read_object(request)
    found = await find(caller, job)
    changed = await caller.services.registry.edit(
        caller.tenant_id, found.id, changes, expected_version=expected, by=caller.actor()
    )
    return Json(shapes.job(changed), headers=with_version(changed))


@router.delete(
    "/jobs/{job}",
    status_code=204,
    summary="Delete a job",
    responses=documents.responses(204, None, 409),
    response_class=Response,
)
async def delete_job(job: str, caller: Operator) -> Response:
    job_id = await id_of(caller, segment(job))
    await caller.services.registry.delete(caller.tenant_id, job_id, by=caller.actor())
    return Response(status_code=204)


async def id_of(caller: Caller, id_or_name: str) -> int:
    """The id alone, of a job that may be unreadable because its time zone is gone."""
    if values.is_job_id(id_or_name):
        return reading.job_id_of("job", id_or_name)
    if not values.is_name(id_or_name):
        raise NotFound("job", ascii(id_or_name[:60]))
    async with connected(caller.services.pool) as connection:
        job_id: int | None = await connection.fetchval(query("id_of_name"), caller.tenant_id, id_or_name)
    if job_id is None:
        raise NotFound("job", repr(id_or_name))
    return job_id


def _expected_version(given: str | None) -> int | None:
    if given is None or given.strip() == "*":
        return None
    matched = _VERSION.fullmatch(given.strip())
    if matched is None:
        raise BadRequest("If-Match", 'is not a version such as "3"')
    return int(matched[1] or matched[2])


def _read_status(status: str) -> str:
    if status not in _STATUSES:
        raise InvalidInput("status", f"{status[:40]!r} is not one of {', '.join(_STATUSES)}")
    return status


def _read_labels(labels: list[str]) -> str | None:
    """`key:value` of each as one object that a job's labels must contain."""
    wanted: dict[str, str] = {}
    for label in labels:
        key, colon, value = label.partition(":")
        if not colon:
            raise InvalidInput("label", f"{label[:40]!r} is not key:value")
        if wanted.setdefault(key, value) != value:
            raise InvalidInput("label", f"{key[:40]!r} cannot have two values")
    if not wanted:
        return None
    try:
        return json.dumps(values.read_labels(wanted))
    except InvalidInput as refusal:
        raise InvalidInput("label", refusal.rule) from None


def _name_bounds(prefix: str | None) -> tuple[str | None, str | None]:
    """From the prefix on, and below everything that does not begin with it."""
    if not prefix:
        return None, None
    if len(prefix) > values.LONGEST_NAME or not prefix.isprintable():
        raise InvalidInput("name_prefix", "is not the beginning of a name")
    return prefix, prefix + chr(0x10FFFF)
