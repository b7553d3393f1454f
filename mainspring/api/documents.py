"""Everything that is answered, as JSON Schema: what the document says, and tests hold answers against."""

from __future__ import annotations

from typing import Any

from mainspring.api.job_schema import job_changes, job_request, properties
from mainspring.api.problems import MEDIA_TYPE
from mainspring.api.shapes import DEFINITION
from mainspring.registry.keys import Role
from mainspring.schema.states import DeadReason, JobKind, JobStatus, LogLevel, Outcome

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
NUMBER: Schema = {"type": "integer"}
FLAG: Schema = {"type": "boolean"}
ANYTHING: Schema = {}
INSTANT: Schema = {"type": "string", "format": "date-time"}


def maybe(schema: Schema) -> Schema:
    return schema | {"type": [schema["type"], "null"]}


def many(schema: Schema) -> Schema:
    return {"type": "array", "items": schema}


def words(*choices: str) -> Schema:
    return {"type": "string", "enum": list(choices)}


def named(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def record(**fields: Schema) -> Schema:
    """An object with exactly these fields."""
    return {
        "type": "object",
        "properties": fields,
        "required": list(fields),
        "additionalProperties": False,
    }


def listing(item: Schema, **more: Schema) -> Schema:
    return record(items=many(item), next_cursor=maybe(TEXT), **more)


def _definition() -> dict[str, Schema]:
    """A job's own fields as they are answered: all there, numbers as numbers."""
    fields = properties()
    fields["priority"] = NUMBER
    fields["payload"] = ANYTHING
    for name in ("starts_at", "ends_at"):
        fields[name] = maybe(INSTANT)
    fields["after"] = many(TEXT)
    return {name: fields[name] for name in DEFINITION}


_JOB = {
    "job_id": TEXT,
    **_definition(),
    "kind": words(*JobKind),
    "status": words(*(status for status in JobStatus if status is not JobStatus.DELETED)),
    "version": NUMBER,
    "valid_from": INSTANT,
    "created_at": INSTANT,
    "updated_at": INSTANT,
    "paused_reason": maybe(TEXT),
    "resume_at": maybe(INSTANT),
    "next_run_at": maybe(INSTANT),
}
_RUN = {
    "run_id": TEXT,
    "job_id": TEXT,
    "scheduled_at": INSTANT,
    "attempt": NUMBER,
    "status": words(*(outcome.word for outcome in Outcome)),
    "worker": TEXT,
    "claimed_at": INSTANT,
    "started_at": maybe(INSTANT),
    "finished_at": maybe(INSTANT),
    "duration_ms": maybe(NUMBER),
    "error": maybe(TEXT),
    "result": ANYTHING,
}
_LETTER = {
    "id": NUMBER,
    "run_id": TEXT,
    "job_id": TEXT,
    "scheduled_at": INSTANT,
    "attempt": NUMBER,
    "pool": TEXT,
    "handler": maybe(TEXT),
    "reason": words(*DeadReason),
    "error": maybe(TEXT),
    "fingerprint": TEXT,
    "created_at": INSTANT,
    "redriven_at": maybe(INSTANT),
    "previous_id": maybe(NUMBER),
}
_KEY = {
    "id": NUMBER,
    "name": TEXT,
    "role": words(*Role),
    "handlers": {"type": ["array", "null"], "items": TEXT},
    "created_at": INSTANT,
    "revoked_at": maybe(INSTANT),
}
_LINE = record(line=NUMBER, at=INSTANT, level=words(*LogLevel), message=TEXT)
VERDICTS = (
    *(outcome.word for outcome in Outcome if outcome is not Outcome.VOID),
    *("queued", "scheduled", "waiting", "not_due", "before_valid_from", "before_start", "after_end"),
    *("paused", "deleted", "completed", "unknown"),
)

COMPONENTS: dict[str, Schema] = {
    "JobRequest": job_request(),
    "JobChanges": job_changes(),
    "Job": record(**_JOB),
    "JobDetail": record(
        **_JOB, last_run={"anyOf": [named("Run"), {"type": "null"}]}, next_runs=many(INSTANT)
    ),
    "Jobs": listing(named("Job"), total=NUMBER, total_is_exact=FLAG),
    "Validated": record(kind=words(*JobKind), words=TEXT, next_runs=many(INSTANT)),
    "Run": record(**_RUN),
    "RunDetail": record(**_RUN, progress=maybe(TEXT), log=many(_LINE), log_next_cursor=maybe(TEXT)),
    "Runs": listing(named("Run")),
    "Log": listing(_LINE),
    "Triggered": record(run_id=TEXT, scheduled_at=INSTANT),
    "Cancellation": record(
        run_id=TEXT,
        state=words("scheduled", "waiting", "queued", "running"),
        reason=maybe(TEXT),
        requested_at=INSTANT,
    ),
    "Backfill": record(count=NUMBER, instants=many(INSTANT), dry_run=FLAG),
    "Explanation": record(
        job_id=TEXT,
        at=INSTANT,
        verdict=words(*VERDICTS),
        text=TEXT,
        facts={"type": "object", "additionalProperties": {"type": ["string", "integer", "boolean", "null"]}},
        runs=many(named("Run")),
    ),
    "DeadLetter": record(**_LETTER),
    "DeadLetterDetail": record(**_LETTER, traceback=maybe(TEXT), payload=ANYTHING),
    "DeadLetters": listing(named("DeadLetter"), total=NUMBER, total_is_exact=FLAG),
    "DeadLettersSummary": listing(
        record(
            fingerprint=TEXT,
            handler=maybe(TEXT),
            error=maybe(TEXT),
            count=NUMBER,
            open=NUMBER,
            first=INSTANT,
            last=INSTANT,
        )
    ),
    "Redriven": record(run_id=TEXT),
    "Redrive": record(
        count=NUMBER,
        runs=many(TEXT),
        refused=many(record(id=NUMBER, status=TEXT, detail=TEXT)),
        dry_run=FLAG,
    ),
    "Shards": listing(
        record(
            shard=NUMBER,
            leader=maybe(TEXT),
            epoch=NUMBER,
            mark=INSTANT,
            lag_seconds={"type": "number"},
            gap_to=maybe(INSTANT),
            cadences=NUMBER,
            timers=NUMBER,
            published_last_minute=NUMBER,
        )
    ),
    "Workers": listing(
        record(
            worker=TEXT,
            pool=TEXT,
            lanes=many(TEXT),
            handlers=many(TEXT),
            concurrency=NUMBER,
            status=words("alive", "stopped", "dead"),
            started_at=INSTANT,
            heartbeat_at=INSTANT,
            running=NUMBER,
        )
    ),
    "Pools": listing(record(pool=TEXT, jobs=NUMBER, workers=NUMBER, dead_letters=NUMBER)),
    "Forecast": record(
        **{"from": INSTANT, "to": INSTANT},
        seconds=many(record(at=INSTANT, jobs=NUMBER)),
        is_complete=FLAG,
    ),
    "PayloadSchema": record(handler=TEXT, schema={"type": ["object", "boolean"]}, updated_at=INSTANT),
    "PayloadSchemas": listing(named("PayloadSchema")),
    "Key": record(**_KEY),
    "NewKey": record(**_KEY, secret=TEXT),
    "Keys": listing(named("Key")),
    "AuditRows": listing(
        record(
            id=NUMBER,
            at=INSTANT,
            actor=TEXT,
            action=TEXT,
            subject=TEXT,
            before={"type": ["object", "null"]},
            after={"type": ["object", "null"]},
            reason=maybe(TEXT),
        )
    ),
    "Tenant": record(
        tenant=TEXT,
        maximum_jobs=maybe(NUMBER),
        maximum_running=maybe(NUMBER),
        requests_per_second=maybe(NUMBER),
        jobs=NUMBER,
        jobs_is_exact=FLAG,
        key=TEXT,
        role=words(*Role),
    ),
    "Health": record(alive=FLAG, ready=FLAG, reasons=many(TEXT)),
    "Problem": {
        "type": "object",
        "description": "RFC 9457; `field` and `rule` where one field broke one rule.",
        "properties": {
            "type": TEXT,
            "title": TEXT,
            "status": NUMBER,
            "detail": TEXT,
            "field": TEXT,
            "rule": TEXT,
            "names": many(TEXT),
            "version": NUMBER,
        },
        "required": ["type", "title", "status", "detail"],
        "additionalProperties": False,
    },
}

_WHY = {
    400: "A body or a header that cannot be read",
    401: "No key, or one that is not valid",
    403: "The key's role or handlers do not allow it",
    404: "The tenant has no such thing",
    409: "What exists stands against it",
    412: "The job is at another version",
    413: "Too large",
    415: "A body of another media type",
    422: "A value breaks a rule: `field` and `rule` say which",
    429: "Too many requests, or too many jobs; wait for Retry-After",
    503: "The database cannot be reached",
}
_RETRY = {"Retry-After": {"description": "Seconds.", "required": True, "schema": {"type": "integer"}}}


def responses(
    status: int, name: str | None, *more: int, headers: Schema | None = None
) -> dict[int | str, Any]:
    """What an operation answers: its success, and the refusals that every one has, and more of them."""
    success: Schema = {"description": "Done" if name is None else name}
    if name is not None:
        success["content"] = {"application/json": {"schema": named(name)}}
    if headers:
        success["headers"] = headers
    every = {400, 401, 403, 404, 422, 429, 503, *more}
    answers: dict[int | str, Any] = {each: refusal(each) for each in sorted(every)}
    answers[status] = success
    return answers


def refusal(status: int) -> Schema:
    described = {
        "description": _WHY[status],
        "content": {MEDIA_TYPE: {"schema": named("Problem")}},
    }
    return described | {"headers": _RETRY} if status in (429, 503) else described


def body(schema: Schema, *, required: bool = True, media_type: str = "application/json") -> Schema:
    """An operation's request body, for `openapi_extra`."""
    return {"requestBody": {"required": required, "content": {media_type: {"schema": schema}}}}


def header(name: str, description: str, schema: Schema) -> Schema:
    return {"name": name, "in": "header", "required": False, "description": description, "schema": schema}
