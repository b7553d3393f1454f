"""The job schema as OpenAPI has it, made of the registry's own bounds and words.

The rules live in mainspring.registry.definition; what is written here repeats none of them with a number of
its own. A test holds every bound against the reader it describes, and the names against `FIELDS`: a field
that is added there and not here fails it.

What a schema cannot say (that an expression is a schedule, that a template has its braces) is in the
descriptions, and is refused with 422 all the same.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from mainspring.registry import definition, values, when
from mainspring.registry.templates import LONGEST_TEMPLATE
from mainspring.schedule import DEFAULT_GRACE, DEFAULT_MAX_MISSED, Gap, Repeat
from mainspring.schedule.durations import LONGEST_INTERVAL
from mainspring.schedule.jitter import LONGEST_JITTER
from mainspring.schedule.schedule import LARGEST_MAX_MISSED
from mainspring.schema.states import (
    DEFAULT_PRIORITY,
    HIGHEST_PRIORITY,
    LOWEST_PRIORITY,
    Backoff,
    MissedPolicy,
    OnFailure,
    Overlap,
)

Schema = dict[str, Any]

_POOL = "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"
_EXAMPLE = {
    "name": "send-weekly-report",
    "schedule": "0 9 * * 1",
    "timezone": "America/New_York",
    "payload": {"report_type": "weekly"},
    "idempotency_key_template": "report-{{week}}",
    "max_retries": 3,
    "retry_backoff": "exponential",
    "missed_window": "RUN_ONCE",
    "timeout_seconds": 120,
}


def job_request() -> Schema:
    """The body of a create or replace: every field, none of them required alone."""
    return {
        "type": "object",
        "description": "A job. It has a name or a handler, and a schedule or parents (`after`).",
        "properties": properties(),
        "additionalProperties": False,
        "anyOf": [{"required": ["name"]}, {"required": ["handler"]}],
        "oneOf": [{"required": ["schedule"]}, {"required": ["after"]}],
        "examples": [_EXAMPLE],
    }


def job_changes() -> Schema:
    """The body of a patch: `null` puts a field back to its default."""
    return {
        "type": "object",
        "description": "The fields that change; `null` means the default. Objects are replaced whole.",
        "properties": properties(),
        "additionalProperties": False,
        "examples": [{"payload": {"report_type": "monthly"}, "priority": "high"}],
    }


def properties() -> dict[str, Schema]:
    """Each field of a request."""
    fields = {
        "name": _text(values.LONGEST_NAME, "Unique among the tenant's jobs."),
        "schedule": _text(when.LONGEST_SCHEDULE, "A cron expression, `every …` or an ISO-8601 instant."),
        "timezone": _text(64, "An IANA name; default UTC."),
        "payload": {"description": "Any JSON, at most 64 levels deep."},
        "handler": _text(values.LONGEST_NAME, "Default: the name."),
        "pool": _text(63, "Whose workers run it; default `default`.") | {"pattern": _POOL},
        "priority": {
            "description": f"Default {DEFAULT_PRIORITY}.",
            "anyOf": [
                {"type": "integer", "minimum": LOWEST_PRIORITY, "maximum": HIGHEST_PRIORITY},
                {"enum": list(definition.PRIORITY_WORDS)},
            ],
        },
        "idempotency_key_template": _text(LONGEST_TEMPLATE, "Such as `report-{{week}}`."),
        "max_retries": _number(0, definition.MOST_RETRIES, 3),
        "retry_backoff": _choice(Backoff, Backoff.EXPONENTIAL),
        "missed_window": _choice(MissedPolicy, MissedPolicy.RUN_ONCE),
        "max_missed": _number(1, LARGEST_MAX_MISSED, DEFAULT_MAX_MISSED),
        "grace_seconds": _number(0, _seconds(definition.LONGEST_GRACE), _seconds(DEFAULT_GRACE)),
        "timeout_seconds": _number(1, _seconds(definition.LONGEST_TIMEOUT), 300),
        "overlap": _choice(Overlap, Overlap.ALLOW),
        "jitter_seconds": _number(0, _seconds(LONGEST_JITTER), 0),
        "dst": {
            "type": "object",
            "description": "What happens when clocks change; only with cron.",
            "properties": {
                "gap": _nullable(_choice(Gap, Gap.RUN_AFTER)),
                "repeat": _nullable(_choice(Repeat, Repeat.FIRST)),
            },
            "additionalProperties": False,
        },
        "phase_seconds": _number(0, LONGEST_INTERVAL, 0),
        "starts_at": _text(64, "An ISO-8601 instant; without an offset in the job's time zone."),
        "ends_at": _text(64, "An ISO-8601 instant, exclusive."),
        "after": {
            "type": "array",
            "description": "Ids or names of the jobs to wait for.",
            "items": _text(values.LONGEST_NAME, "An id or a name."),
            "maxItems": values.MOST_PARENTS,
        },
        "on_failure": _choice(OnFailure, OnFailure.SKIP),
        "labels": {
            "type": "object",
            "maxProperties": values.MOST_LABELS,
            "propertyNames": {"minLength": 1, "maxLength": values.LONGEST_LABEL_KEY},
            "additionalProperties": {"type": "string", "maxLength": values.LONGEST_LABEL_VALUE},
        },
    }
    return {name: field if name == "payload" else _nullable(field) for name, field in fields.items()}


def _text(longest: int, description: str) -> Schema:
    return {"type": "string", "minLength": 1, "maxLength": longest, "description": description}


def _number(low: int, high: int, default: int) -> Schema:
    return {"type": "integer", "minimum": low, "maximum": high, "description": f"Default {default}."}


def _choice(words: type[StrEnum], default: StrEnum) -> Schema:
    return {"enum": [word.value for word in words], "description": f"Default {default.value}."}


def _nullable(field: Schema) -> Schema:
    """`null` means the default, everywhere."""
    if "anyOf" in field:
        return field | {"anyOf": [*field["anyOf"], {"type": "null"}]}
    if "enum" in field:
        return field | {"enum": [*field["enum"], None]}
    return field | {"type": [field["type"], "null"]}


def _seconds(duration: Any) -> int:
    return int(duration.total_seconds())
