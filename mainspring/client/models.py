"""What the API answers, as frozen objects: instants are aware datetimes, lists are tuples.

A field that this version does not know is ignored, so an older client reads a newer API. One that is
missing is an error at once, rather than a surprise later.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Hashable, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from typing import Any, Generic, TypedDict, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from mainspring.client.errors import ApiError, UnreadableAnswer

T = TypeVar("T")

ENDED = frozenset({"succeeded", "dead", "cancelled", "skipped", "recalled", "missed"})
"""After these nothing follows; after `failed` and `lost` the next attempt does."""


class JobFields(TypedDict, total=False):
    """A job as its owner writes it; docs/jobs.md has each field's rule."""

    name: str | None
    handler: str | None
    schedule: str | None
    timezone: str | None
    payload: Any
    pool: str | None
    priority: int | str | None
    idempotency_key_template: str | None
    max_retries: int | None
    retry_backoff: str | None
    missed_window: str | None
    max_missed: int | None
    grace_seconds: int | None
    timeout_seconds: int | None
    overlap: str | None
    jitter_seconds: int | None
    dst: Mapping[str, str] | None
    phase_seconds: int | None
    starts_at: datetime | str | None
    ends_at: datetime | str | None
    after: list[str] | tuple[str, ...] | None
    on_failure: str | None
    labels: Mapping[str, str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job as it stands."""

    job_id: str
    name: str | None
    handler: str
    schedule: str | None
    timezone: str
    payload: Any
    pool: str
    priority: int
    idempotency_key_template: str | None
    max_retries: int
    retry_backoff: str
    missed_window: str
    max_missed: int
    grace_seconds: int
    timeout_seconds: int
    overlap: str
    jitter_seconds: int
    dst: Mapping[str, str] | None
    phase_seconds: int
    starts_at: datetime | None
    ends_at: datetime | None
    after: tuple[str, ...]
    on_failure: str | None
    labels: Mapping[str, str]
    kind: str
    status: str
    version: int
    valid_from: datetime
    created_at: datetime
    updated_at: datetime
    paused_reason: str | None
    resume_at: datetime | None
    next_run_at: datetime | None

    @property
    def label(self) -> str:
        """What people call it: its name, or its id."""
        return self.name or self.job_id

    def definition(self) -> dict[str, Any]:
        """The fields that its owner wrote, as JSON has them: what `put` would take to make this job."""
        return {name: _written(getattr(self, name)) for name in JobFields.__annotations__}


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One attempt at an occurrence."""

    run_id: str
    job_id: str
    scheduled_at: datetime
    attempt: int
    status: str
    worker: str
    claimed_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    duration_ms: int | None
    error: str | None
    result: Any = None

    @property
    def duration(self) -> timedelta | None:
        return None if self.duration_ms is None else timedelta(milliseconds=self.duration_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """What a handler said."""

    line: int
    at: datetime
    level: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDetail(Run):
    """A run with its log and its progress."""

    progress: str | None
    log: tuple[LogLine, ...]
    log_next_cursor: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDetail(Job):
    """A job with its last run and its coming fire times."""

    last_run: Run | None
    next_runs: tuple[datetime, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Validated:
    """What a job would be."""

    kind: str
    words: str
    next_runs: tuple[datetime, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Triggered:
    """A run that was asked for."""

    run_id: str
    scheduled_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancellation:
    """A run that was asked to stop."""

    run_id: str
    state: str
    reason: str | None
    requested_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Backfill:
    """Occurrences of a range that are to run, or would; `instants` are the first of them."""

    count: int
    instants: tuple[datetime, ...]
    dry_run: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why a job ran, or did not run, at an instant."""

    job_id: str
    at: datetime
    verdict: str
    text: str
    facts: Mapping[str, Any]
    runs: tuple[Run, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A run that has no attempt left."""

    id: int
    run_id: str
    job_id: str
    scheduled_at: datetime
    attempt: int
    pool: str
    handler: str | None
    reason: str
    error: str | None
    fingerprint: str
    created_at: datetime
    redriven_at: datetime | None
    previous_id: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterDetail(DeadLetter):
    """A dead letter with its traceback and its payload."""

    traceback: str | None
    payload: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterKind:
    """Dead letters of one fingerprint; `open` of them have not been redriven."""

    fingerprint: str
    handler: str | None
    error: str | None
    count: int
    open: int
    first: datetime
    last: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Redriven:
    """The run that follows a dead letter."""

    run_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedLetter:
    """A dead letter that cannot be redriven, and why."""

    id: int
    status: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Redrive:
    """Dead letters that were redriven, or would be."""

    count: int
    runs: tuple[str, ...]
    refused: tuple[RefusedLetter, ...]
    dry_run: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """A shard, its leader and how far it has fired."""

    shard: int
    leader: str | None
    epoch: int
    mark: datetime
    lag_seconds: float
    gap_to: datetime | None
    cadences: int
    timers: int
    published_last_minute: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """A worker's life; `status` is alive, stopped or dead."""

    worker: str
    pool: str
    lanes: tuple[str, ...]
    handlers: tuple[str, ...]
    concurrency: int
    status: str
    started_at: datetime
    heartbeat_at: datetime
    running: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """A group of workers that share code."""

    pool: str
    jobs: int
    workers: int
    dead_letters: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastSecond:
    """How many jobs are expected in a second."""

    at: datetime
    jobs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """The seconds of a range in which something is expected."""

    start: datetime = field(metadata={"name": "from"})
    end: datetime = field(metadata={"name": "to"})
    seconds: tuple[ForecastSecond, ...]
    is_complete: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PayloadSchema:
    """What a handler's payloads must look like."""

    handler: str
    schema: Any
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """An API key; its secret is nowhere."""

    id: int
    name: str
    role: str
    handlers: tuple[str, ...] | None
    created_at: datetime
    revoked_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewKey(Key):
    """A key that was just made: the secret is shown this once."""

    secret: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRow:
    """Who changed what."""

    id: int
    at: datetime
    actor: str
    action: str
    subject: str
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None
    reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """The tenant of the key, its limits, and the key itself."""

    tenant: str
    maximum_jobs: int | None
    maximum_running: int | None
    requests_per_second: int | None
    jobs: int
    role: str
    key: str
    jobs_is_exact: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[T]):
    """One page of a list; `next_cursor` is None on the last."""

    items: tuple[T, ...]
    next_cursor: str | None
    total: int | None = None
    total_is_exact: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """What became of one line of a batch: a job, or the reason why there is none."""

    line: int
    job_id: str | None
    refusal: ApiError | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitted:
    """What became of a batch; `refusals` are the first thousand."""

    created: int
    refused: int
    refusals: tuple[Answered, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a batch is: lines sent, and what was answered so far."""

    sent: int
    created: int
    refused: int


def read(model: type[T], answer: object) -> T:
    """An answer's object as the model."""
    if not isinstance(answer, Mapping):
        raise UnreadableAnswer(f"{model.__name__} is not an object")
    given: dict[str, Any] = {}
    for name, key, convert, required in _plan(cast("Hashable", model)):
        if key in answer:
            given[name] = _converted(model, key, convert, answer[key])
        elif required:
            raise UnreadableAnswer(f"{model.__name__} has no {key}")
    return model(**given)


def read_page(model: type[T], answer: object) -> Page[T]:
    """A list's page."""
    if not isinstance(answer, Mapping) or not isinstance(answer.get("items"), list):
        raise UnreadableAnswer("a list has no items")
    return Page(
        items=tuple(read(model, item) for item in answer["items"]),
        next_cursor=answer.get("next_cursor"),
        total=answer.get("total"),
        total_is_exact=answer.get("total_is_exact", True),
    )


def _converted(model: type[Any], key: str, convert: Callable[[Any], Any], value: object) -> Any:
    try:
        return convert(value)
    except (TypeError, ValueError) as error:
        raise UnreadableAnswer(f"{key} of {model.__name__}: {error}") from error


@cache
def _plan(model: Any) -> tuple[tuple[str, str, Callable[[Any], Any], bool], ...]:
    """For each field: its name, its key in the answer, how to read it, whether it must be there."""
    hints = get_type_hints(model)
    return tuple(
        (
            each.name,
            each.metadata.get("name", each.name),
            _reader(hints[each.name]),
            each.default is MISSING,
        )
        for each in fields(model)
    )


def _reader(hint: Any) -> Callable[[Any], Any]:
    arguments = get_args(hint)
    if get_origin(hint) in (Union, types.UnionType):
        present = next(argument for argument in arguments if argument is not type(None))
        return partial(_optional, _reader(present))
    if get_origin(hint) is tuple:
        return partial(_many, _reader(arguments[0]))
    if hint is datetime:
        return _instant
    return partial(read, hint) if is_dataclass(hint) and isinstance(hint, type) else _as_it_is


def _optional(convert: Callable[[Any], Any], value: Any) -> Any:
    return None if value is None else convert(value)


def _many(convert: Callable[[Any], Any], value: Any) -> tuple[Any, ...]:
    return tuple(map(convert, value))


def _instant(value: Any) -> datetime:
    instant = datetime.fromisoformat(value)
    if instant.tzinfo is None:
        raise ValueError(f"{value!r} has no offset")
    return instant


def _written(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return list(value) if isinstance(value, tuple) else value


def _as_it_is(value: Any) -> Any:
    return value
