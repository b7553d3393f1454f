"""A job as its owner writes it, checked: the same fields in the API, the client, files and tests.

`JobRequest.from_mapping` takes the body of a request. What is not given has its default, and so has what is
`null`. Whatever breaks a rule is refused with the field and the rule, before anything is written; a field
that does not exist is refused too, because a policy with a typing mistake in its name would silently not
apply. So is a field that means nothing for the kind of schedule: a DST policy for an interval, a phase for
cron.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from enum import StrEnum
from operator import attrgetter
from typing import Any

from mainspring.registry import values
from mainspring.registry.templates import check_template, uses_name
from mainspring.registry.when import carry_over, inapplicable, place_in_time, read_schedule
from mainspring.schedule import (
    DEFAULT_GRACE,
    DEFAULT_MAX_MISSED,
    Cadence,
    DstPolicy,
    Gap,
    Kind,
    Repeat,
    format_instant,
    load_zone,
    parse_instant,
)
from mainspring.schedule.durations import LONGEST_INTERVAL
from mainspring.schedule.jitter import LONGEST_JITTER
from mainspring.schedule.schedule import LARGEST_MAX_MISSED
from mainspring.schema.errors import InvalidInput
from mainspring.schema.messages import MAXIMUM_BODY, JobDefinition, encode_job
from mainspring.schema.states import (
    DEFAULT_PRIORITY,
    HIGHEST_PRIORITY,
    LOWEST_PRIORITY,
    Backoff,
    JobKind,
    MissedPolicy,
    OnFailure,
    Overlap,
    check_pool,
)

PRIORITY_WORDS = {"high": 8, "normal": DEFAULT_PRIORITY, "low": 2}
LONGEST_TIMEOUT = timedelta(days=30)
LONGEST_GRACE = timedelta(days=366)
MOST_RETRIES = 1000

_SECOND = timedelta(seconds=1)
_TICK = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRequest:
    """What a job is, without what Mainspring adds to it: id, status, version."""

    handler: str
    name: str | None = None
    schedule: str = ""
    """As written; empty for a job that waits for others."""
    cadence: Cadence | None = None
    """The schedule in canonical form; None for a job that waits for others."""
    timezone: str = "UTC"
    payload_json: bytes = b"null"
    pool: str = "default"
    priority: int = DEFAULT_PRIORITY
    idempotency_key_template: str | None = None
    max_retries: int = 3
    retry_backoff: Backoff = Backoff.EXPONENTIAL
    missed_window: MissedPolicy = MissedPolicy.RUN_ONCE
    max_missed: int = DEFAULT_MAX_MISSED
    grace_seconds: int = DEFAULT_GRACE // _SECOND
    timeout_seconds: int = 300
    overlap: Overlap = Overlap.ALLOW
    jitter_seconds: int = 0
    starts_at: datetime | None = None
    ends_at: datetime | None = None
    after: tuple[str, ...] = ()
    """Ids or names, as given; once the registry has found the jobs, their ids in rising order."""
    on_failure: OnFailure = OnFailure.SKIP
    labels: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any], *, default_name: str | None = None) -> JobRequest:
        """Check a request's body; raises InvalidInput for the first rule it breaks."""
        given = _read_fields(values.read_object("job", mapping))
        if default_name is not None and "name" not in given:
            given["name"] = values.check_name(default_name)
        _default_handler(given)
        place_in_time(given)
        if "payload" in given:
            given["payload_json"] = given.pop("payload")
        request = cls(**given)
        request._check_whole()
        return request

    @property
    def kind(self) -> JobKind:
        return JobKind.AFTER if self.cadence is None else JobKind(self.cadence.kind)

    @property
    def run_at(self) -> datetime | None:
        """The one instant of an `at`."""
        if self.cadence is None or self.cadence.kind is not Kind.AT:
            return None
        return parse_instant(self.cadence.expression)

    @property
    def payload(self) -> Any:
        return json.loads(self.payload_json)

    def as_mapping(self) -> dict[str, Any]:
        """The body that would make this job: every field that means something for its kind."""
        whole: dict[str, Any] = {name: _plain(getattr(self, name)) for name in _PLAIN_FIELDS}
        whole["payload"] = self.payload
        if self.cadence is not None:
            whole["dst"] = {"gap": self.cadence.dst.gap.value, "repeat": self.cadence.dst.repeat.value}
            whole["phase_seconds"] = self.cadence.phase
        return {name: value for name, value in whole.items() if name not in inapplicable(self.kind)}

    def with_changes(self, changes: Mapping[str, Any]) -> JobRequest:
        """The job after an edit: fields not named stay, and `null` means the default."""
        carried = carry_over(self.as_mapping(), values.read_object("changes", changes))
        return JobRequest.from_mapping({**carried, **changes})

    def another(self, name: str | None, payload_json: bytes, *, handler_is_name: bool) -> JobRequest:
        """The same job under another name, already checked, and with another payload."""
        handler = name if handler_is_name and name is not None else self.handler
        same = dict(zip(_SAME, _read_same(self), strict=True))  # `replace` takes thrice as long
        made = JobRequest(name=name, payload_json=payload_json, handler=handler, **same)
        made._check_size()
        return made

    def body(self, job_id: int, tenant_id: int, version: int) -> bytes:
        """The bytes that follow the prefix of each of the job's messages."""
        return encode_job(
            JobDefinition(
                job_id,
                tenant_id,
                version,
                self.handler,
                self.payload_json,
                self.name or "",
                self.timezone,
                self.idempotency_key_template or "",
                self.priority,
                self.missed_window,
                self.overlap,
                self.retry_backoff,
                self.max_retries,
                self.timeout_seconds,
                self.grace_seconds,
            )
        )

    def _check_whole(self) -> None:
        """Rules between fields."""
        template = self.idempotency_key_template
        if self.name is None and template is not None and uses_name(template):
            raise InvalidInput("idempotency_key_template", "uses {{name}}, but the job has none")
        if self.starts_at is not None and self.ends_at is not None:
            self._check_window(self.starts_at, self.ends_at)
        self._check_size()

    def _check_size(self) -> None:
        if len(self.payload_json) > MAXIMUM_BODY // 2:  # a smaller one cannot break the rule
            self.body(job_id=1, tenant_id=1, version=1)

    def _check_window(self, starts_at: datetime, ends_at: datetime) -> None:
        if ends_at <= starts_at:
            raise InvalidInput("ends_at", "is not after starts_at")
        assert self.cadence is not None
        first = self.cadence.next_after(starts_at - _TICK)
        if first is None or first >= ends_at:
            raise InvalidInput("ends_at", "the schedule has no occurrence between starts_at and ends_at")


def _read_fields(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """Each field that was given, checked by itself."""
    given: dict[str, Any] = {}
    for name, value in mapping.items():
        reader = _READERS.get(name)
        if reader is None:
            raise InvalidInput(str(name), _unknown(mapping))
        if value is not None:
            given[name] = reader(value)
    return given


def _unknown(mapping: Mapping[str, Any]) -> str:
    unknown = [str(name) for name in mapping if name not in _READERS]
    others = f"; nor is {', '.join(unknown[1:6])}" if len(unknown) > 1 else ""
    return f"is not a field of a job{values.nearest(unknown[0], _READERS)}{others}"


def _default_handler(given: dict[str, Any]) -> None:
    if "handler" in given:
        return
    if "name" not in given:
        raise InvalidInput("name", "is missing; a job needs a name or a handler")
    given["handler"] = given["name"]


def _plain(value: Any) -> Any:
    """A value as JSON has it."""
    if isinstance(value, datetime):
        return format_instant(value)
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, tuple):
        return list(value)
    return dict(value) if isinstance(value, Mapping) else value


def _read_timezone(value: Any) -> str:
    name = values.check_text("timezone", value, 64)
    load_zone(name)
    return name


def _read_priority(value: Any) -> int:
    if not isinstance(value, str):
        return _read_priority_number(value)
    if value not in PRIORITY_WORDS:
        raise InvalidInput("priority", f"{value[:40]!r} is not one of {', '.join(PRIORITY_WORDS)}, or 0–9")
    return PRIORITY_WORDS[value]


def _read_dst(value: Any) -> DstPolicy:
    given = values.read_object("dst", value)
    for name in given:
        if name not in _DST_READERS:
            hint = values.nearest(str(name), _DST_READERS)
            raise InvalidInput("dst", f"{str(name)[:40]!r} is neither gap nor repeat{hint}")
    return DstPolicy(
        **{name: _DST_READERS[name](choice) for name, choice in given.items() if choice is not None}
    )


_read_priority_number = values.whole_number("priority", LOWEST_PRIORITY, HIGHEST_PRIORITY)
_DST_READERS: Mapping[str, Callable[[Any], Any]] = {
    "gap": values.one_of("dst.gap", Gap),
    "repeat": values.one_of("dst.repeat", Repeat),
}
_READERS: Mapping[str, Callable[[Any], Any]] = {
    "name": values.check_name,
    "schedule": read_schedule,
    "timezone": _read_timezone,
    "payload": values.write_payload,
    "handler": values.text("handler", values.LONGEST_NAME),
    "pool": lambda value: check_pool(values.check_text("pool", value, 63)),
    "priority": _read_priority,
    "idempotency_key_template": lambda value: check_template(
        values.check_text("idempotency_key_template", value, 1000)
    ),
    "max_retries": values.whole_number("max_retries", 0, MOST_RETRIES),
    "retry_backoff": values.one_of("retry_backoff", Backoff),
    "missed_window": values.one_of("missed_window", MissedPolicy),
    "max_missed": values.whole_number("max_missed", 1, LARGEST_MAX_MISSED),
    "grace_seconds": values.whole_number("grace_seconds", 0, LONGEST_GRACE // _SECOND),
    "timeout_seconds": values.whole_number("timeout_seconds", 1, LONGEST_TIMEOUT // _SECOND),
    "overlap": values.one_of("overlap", Overlap),
    "jitter_seconds": values.whole_number("jitter_seconds", 0, LONGEST_JITTER // _SECOND),
    "dst": _read_dst,
    "phase_seconds": values.whole_number("phase_seconds", 0, LONGEST_INTERVAL),
    "starts_at": values.text("starts_at", 64),
    "ends_at": values.text("ends_at", 64),
    "after": values.read_parents,
    "on_failure": values.one_of("on_failure", OnFailure),
    "labels": values.read_labels,
}
FIELDS = tuple(_READERS)
"""The fields of a request, as a body spells them."""

_SAME = tuple(
    each.name for each in fields(JobRequest) if each.name not in ("name", "payload_json", "handler")
)
_read_same = attrgetter(*_SAME)
_PLAIN_FIELDS = tuple(
    each.name for each in fields(JobRequest) if each.name not in ("cadence", "payload_json")
)
