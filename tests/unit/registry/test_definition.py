"""A request is read whole or refused with the field and the rule."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from mainspring.registry import FIELDS, JobRequest
from mainspring.schedule import Cadence, DstPolicy, Gap, Kind, Repeat, parse_instant
from mainspring.schema.errors import InvalidInput
from mainspring.schema.messages import MAXIMUM_BODY, decode_job
from mainspring.schema.states import Backoff, JobKind, MissedPolicy, OnFailure, Overlap

DAILY = {"name": "report", "schedule": "@daily"}
WEEKLY_REPORT = json.loads(
    """{"name":"send-weekly-report","schedule":"0 9 * * 1","timezone":"America/New_York",
        "payload":{"report_type":"weekly"},"idempotency_key_template":"report-{{week}}","max_retries":3,
        "retry_backoff":"exponential","missed_window":"RUN_ONCE","timeout_seconds":120}"""
)
EVERY_FIELD = {
    "name": "report",
    "schedule": "30 2 * * *",
    "timezone": "America/New_York",
    "payload": {"to": ["Ana", "Zoë"]},
    "handler": "send-report",
    "pool": "mail",
    "priority": 9,
    "idempotency_key_template": "{{name}}-{{date}}",
    "max_retries": 0,
    "retry_backoff": "fixed",
    "missed_window": "RUN_ALL",
    "max_missed": 7,
    "grace_seconds": 0,
    "timeout_seconds": 1,
    "overlap": "queue_one",
    "jitter_seconds": 240,
    "dst": {"gap": "skip", "repeat": "both"},
    "starts_at": "2026-01-01T00:00:00Z",
    "ends_at": "2027-01-01T00:00:00Z",
    "labels": {"team": "mail"},
}


def read(**changes: Any) -> JobRequest:
    return JobRequest.from_mapping({**DAILY, **changes})


def test_the_body_of_the_api_page_is_accepted_as_it_stands() -> None:
    request = JobRequest.from_mapping(WEEKLY_REPORT)
    assert request.handler == request.name == "send-weekly-report"
    assert request.cadence == Cadence(Kind.CRON, "0 9 * * 1", "America/New_York")
    assert request.payload == {"report_type": "weekly"}
    assert request.idempotency_key_template == "report-{{week}}"
    assert (request.max_retries, request.timeout_seconds) == (3, 120)


def test_what_is_not_given_has_its_default_and_so_has_null() -> None:
    request = JobRequest.from_mapping(DAILY)
    assert request == JobRequest(
        name="report", handler="report", schedule="@daily", cadence=Cadence(Kind.CRON, "0 0 * * *")
    )
    assert request.payload is None
    assert JobRequest.from_mapping({**dict.fromkeys(FIELDS), **DAILY}) == request


def test_every_field_is_read() -> None:
    request = JobRequest.from_mapping(EVERY_FIELD)
    assert request == JobRequest(
        name="report",
        handler="send-report",
        schedule="30 2 * * *",
        cadence=Cadence(Kind.CRON, "30 2 * * *", "America/New_York", DstPolicy(Gap.SKIP, Repeat.BOTH)),
        timezone="America/New_York",
        payload_json='{"to":["Ana","Zoë"]}'.encode(),
        pool="mail",
        priority=9,
        idempotency_key_template="{{name}}-{{date}}",
        max_retries=0,
        retry_backoff=Backoff.FIXED,
        missed_window=MissedPolicy.RUN_ALL,
        max_missed=7,
        grace_seconds=0,
        timeout_seconds=1,
        overlap=Overlap.QUEUE_ONE,
        jitter_seconds=240,
        starts_at=parse_instant("2026-01-01T00:00:00Z"),
        ends_at=parse_instant("2027-01-01T00:00:00Z"),
        labels={"team": "mail"},
    )


@pytest.mark.parametrize(
    "body",
    [
        EVERY_FIELD,
        {"handler": "h", "schedule": "every 1h", "phase_seconds": 60},
        {"handler": "h", "schedule": "2027-01-01T09:00", "timezone": "Asia/Tokyo", "jitter_seconds": 5},
        {"handler": "h", "after": ["a", "b"], "on_failure": "run"},
    ],
)
def test_a_request_written_out_is_read_back_as_the_same(body: dict[str, Any]) -> None:
    request = JobRequest.from_mapping(body)
    written = request.as_mapping()
    assert JobRequest.from_mapping(json.loads(json.dumps(written))) == request
    assert body.items() <= written.items()


def test_the_ready_bytes_carry_what_a_worker_needs() -> None:
    job = decode_job(JobRequest.from_mapping(EVERY_FIELD).body(7, 3, 2))
    assert (job.job_id, job.tenant_id, job.version) == (7, 3, 2)
    assert (job.handler, job.name, job.timezone) == ("send-report", "report", "America/New_York")
    assert job.payload() == {"to": ["Ana", "Zoë"]}
    assert job.idempotency_key_template == "{{name}}-{{date}}"
    assert (job.priority, job.max_retries, job.timeout_seconds, job.grace_seconds) == (9, 0, 1, 0)
    assert (job.missed_window, job.overlap, job.backoff) == ("RUN_ALL", "queue_one", "fixed")


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ({"schedule": "*/5 * * * *"}, JobKind.CRON),
        ({"schedule": "every 90s"}, JobKind.EVERY),
        ({"schedule": "2027-01-01T00:00:00Z"}, JobKind.AT),
        ({"after": ["other"]}, JobKind.AFTER),
    ],
)
def test_the_schedule_decides_the_kind(body: dict[str, Any], kind: JobKind) -> None:
    assert JobRequest.from_mapping({"name": "a", **body}).kind is kind


def test_the_name_may_come_from_elsewhere_and_the_body_overrides_it() -> None:
    assert JobRequest.from_mapping({"schedule": "@daily"}, default_name="a").handler == "a"
    assert JobRequest.from_mapping(DAILY, default_name="a").name == "report"
    with pytest.raises(InvalidInput, match="name: has 0 characters"):
        JobRequest.from_mapping({"schedule": "@daily"}, default_name="")


def test_a_job_with_a_handler_needs_no_name() -> None:
    request = JobRequest.from_mapping({"handler": "h", "schedule": "@daily"})
    assert (request.name, request.handler) == (None, "h")


@pytest.mark.parametrize(("word", "number"), [("high", 8), ("normal", 5), ("low", 2), (0, 0), (9, 9)])
def test_priority_is_a_number_or_a_word(word: object, number: int) -> None:
    assert read(priority=word).priority == number


def test_time_zones_do_not_split_intervals_and_instants_into_more_cadences() -> None:
    assert read(schedule="every 1h", timezone="Asia/Tokyo").cadence == read(schedule="every 60m").cadence
    tokyo = read(schedule="2027-01-01T09:00", timezone="Asia/Tokyo")
    assert tokyo.cadence == read(schedule="2027-01-01T00:00:00Z").cadence
    assert tokyo.run_at == parse_instant("2027-01-01T00:00:00Z")
    assert tokyo.timezone == "Asia/Tokyo"


def test_bounds_without_an_offset_are_read_in_the_jobs_zone() -> None:
    request = read(timezone="Asia/Tokyo", starts_at="2027-01-01T09:00", ends_at="2027-02-01T00:00:00Z")
    assert request.starts_at == parse_instant("2027-01-01T00:00:00Z")
    assert request.ends_at == parse_instant("2027-02-01T00:00:00Z")


def test_white_space_in_a_schedule_is_not_part_of_it() -> None:
    assert read(schedule=" 0\t9  * * 1 ").schedule == "0 9 * * 1"


def test_defaults_may_be_given_for_kinds_to_which_they_mean_nothing() -> None:
    assert read(after=[], phase_seconds=0, on_failure="skip").kind is JobKind.CRON
    waiting = {"name": "b", "after": ["a"], "jitter_seconds": 0, "phase_seconds": 0, "dst": {}}
    assert JobRequest.from_mapping(waiting).on_failure is OnFailure.SKIP


def test_parents_are_kept_once_each_in_order() -> None:
    assert JobRequest.from_mapping({"name": "x", "after": ["b", "a", "b"]}).after == ("b", "a")


DEEP: list[Any] = []
for _ in range(2000):
    DEEP = [DEEP]

REFUSED = [
    ({"name": None}, "name", "is missing; a job needs a name or a handler"),
    ({"name": ""}, "name", "has 0 characters, not 1–200"),
    ({"name": "x" * 201}, "name", "has 201 characters"),
    ({"name": "a\x00b"}, "name", "holds the control character U+0000"),
    ({"name": "a\nb"}, "name", "U+000A"),
    ({"name": "a\u2028b"}, "name", "U+2028"),
    ({"name": "\ud800"}, "name", "U+D800"),
    ({"name": " a"}, "name", "begins or ends with white space"),
    ({"name": 7}, "name", "7 is not a text"),
    ({"name": "j_0000000000001"}, "name", "is spelled like a job id"),
    ({"name": DEEP}, "name", "a value of type list is not a text"),
    ({"handler": ""}, "handler", "has 0 characters"),
    ({"handler": True}, "handler", "True is not a text"),
    ({"schedule": None}, "schedule", "is missing; give one, or name the jobs to wait for"),
    ({"schedule": ""}, "schedule", "empty"),
    ({"schedule": 5}, "schedule", "5 is not a text"),
    ({"schedule": "61 * * * *"}, "schedule", "minute: 61 is not in 0–59"),
    ({"schedule": "0 0 30 2 *"}, "schedule", "can never fire"),
    ({"schedule": "every 0s"}, "schedule", "every: an interval of zero"),
    ({"schedule": "2026-02-30T00:00:00Z"}, "schedule", "at: "),
    ({"schedule": "1969-12-31T23:59:59Z"}, "schedule", "is not between the years 1970 and 9999"),
    ({"schedule": "9999-12-31T23:59:59Z"}, "schedule", "is not between the years 1970 and 9999"),
    ({"schedule": "*" * 1025}, "schedule", "has 1025 characters"),
    ({"schedule": "2026-03-08T02:30", "timezone": "America/New_York"}, "schedule", "does not exist"),
    ({"timezone": "Mars/Olympus"}, "timezone", "is not an IANA time zone"),
    ({"timezone": "america/new york"}, "timezone", "did you mean America/New_York?"),
    ({"timezone": []}, "timezone", "a value of type list is not a text"),
    ({"payload": {1: 2}}, "payload", "the key 1 is not a text"),
    ({"payload": math.nan}, "payload", "is not JSON"),
    ({"payload": {"a": {1, 2}}}, "payload", "is not JSON"),
    ({"payload": "\ud800"}, "payload", "surrogate"),
    ({"payload": DEEP}, "payload", "is nested deeper than 64 levels"),
    ({"payload": "x" * MAXIMUM_BODY}, "payload", "more than 1000000"),
    ({"pool": "Mail"}, "pool", "lower-case letters"),
    ({"pool": 1}, "pool", "1 is not a text"),
    ({"priority": 10}, "priority", "10 is not in 0–9"),
    ({"priority": -1}, "priority", "-1 is not in 0–9"),
    ({"priority": True}, "priority", "True is not a whole number"),
    ({"priority": 5.0}, "priority", "5.0 is not a whole number"),
    ({"priority": "urgent"}, "priority", "'urgent' is not one of high, normal, low, or 0–9"),
    ({"idempotency_key_template": "{{weak}}"}, "idempotency_key_template", "did you mean {{week}}?"),
    ({"idempotency_key_template": "{{attempt}}"}, "idempotency_key_template", "same for every attempt"),
    (
        {"name": None, "handler": "h", "idempotency_key_template": "{{name}}"},
        "idempotency_key_template",
        "uses {{name}}, but the job has none",
    ),
    ({"max_retries": -1}, "max_retries", "-1 is not in 0–1000"),
    ({"max_retries": "3"}, "max_retries", "'3' is not a whole number"),
    ({"max_retries": 10**5000}, "max_retries", "a value of type int is not in"),
    ({"retry_backoff": "random"}, "retry_backoff", "is not one of exponential, linear, fixed, none"),
    ({"retry_backoff": ["fixed"]}, "retry_backoff", "a value of type list is not one of"),
    ({"missed_window": "run_once"}, "missed_window", "'run_once' is not one of SKIP, RUN_ONCE, RUN_ALL"),
    ({"max_missed": 0}, "max_missed", "0 is not in 1–10000"),
    ({"grace_seconds": -1}, "grace_seconds", "-1 is not in 0–"),
    ({"timeout_seconds": 0}, "timeout_seconds", "0 is not in 1–2592000"),
    ({"timeout_seconds": False}, "timeout_seconds", "False is not a whole number"),
    ({"overlap": "deny"}, "overlap", "is not one of allow, skip, queue_one, cancel_running"),
    ({"jitter_seconds": 86_401}, "jitter_seconds", "86401 is not in 0–86400"),
    ({"dst": "skip"}, "dst", "'skip' is not an object"),
    ({"dst": {"gapp": "skip"}}, "dst", "'gapp' is neither gap nor repeat; did you mean gap?"),
    ({"dst": {"gap": "never"}}, "dst.gap", "'never' is not one of run_after, skip"),
    ({"dst": {"repeat": 2}}, "dst.repeat", "2 is not one of first, second, both"),
    ({"schedule": "every 1h", "dst": {"gap": "skip"}}, "dst", "only cron has a DST policy"),
    ({"phase_seconds": 60}, "phase_seconds", "only `every` has a phase, and this job is `cron`"),
    ({"schedule": "every 60s", "phase_seconds": 60}, "phase_seconds", "60 is not in 0–59"),
    ({"phase_seconds": -1}, "phase_seconds", "-1 is not in 0–"),
    ({"starts_at": "soon"}, "starts_at", "is not an ISO-8601 instant"),
    ({"starts_at": 1}, "starts_at", "1 is not a text"),
    ({"starts_at": "0001-01-01T00:00:00Z"}, "starts_at", "is not between the years 1970 and 9999"),
    ({"ends_at": "2026-01-01"}, "ends_at", "has no time of day"),
    (
        {"starts_at": "2026-01-02T00:00:00Z", "ends_at": "2026-01-01T00:00:00Z"},
        "ends_at",
        "is not after starts_at",
    ),
    (
        {"starts_at": "2026-01-01T00:00:01Z", "ends_at": "2026-01-02T00:00:00Z"},
        "ends_at",
        "no occurrence between starts_at and ends_at",
    ),
    (
        {"schedule": "2026-01-01T00:00:00Z", "ends_at": "2027-01-01T00:00:00Z"},
        "ends_at",
        "only a recurring schedule has an end",
    ),
    ({"after": ["a"]}, "after", "a job has a schedule or waits for other jobs, not both"),
    ({"schedule": None, "after": []}, "schedule", "is missing"),
    ({"after": "a"}, "after", "'a' is not a list"),
    ({"after": [7]}, "after", "7 is not a text"),
    ({"after": [""]}, "after", "has 0 characters"),
    ({"after": [f"job-{number}" for number in range(101)]}, "after", "names 101 jobs, more than 100"),
    ({"schedule": None, "after": ["a"], "jitter_seconds": 5}, "jitter_seconds", "only a schedule has a"),
    ({"on_failure": "run"}, "on_failure", "only a job that waits for others can choose"),
    ({"schedule": None, "after": ["a"], "on_failure": "retry"}, "on_failure", "is not one of skip, run"),
    ({"labels": ["a"]}, "labels", "is not an object"),
    ({"labels": {"a": 1}}, "labels", "a: 1 is not a text"),
    ({"labels": {"a": None}}, "labels", "a: None is not a text"),
    ({"labels": {"": "x"}}, "labels", "has 0 characters, not 1–63"),
    ({"labels": {"a": "x" * 201}}, "labels", "a: has 201 characters"),
    ({"labels": {"a\x00": "x"}}, "labels", "U+0000"),
    ({"labels": {str(number): "x" for number in range(65)}}, "labels", "has 65 entries, more than 64"),
    ({"timeout_second": 5}, "timeout_second", "is not a field of a job; did you mean timeout_seconds?"),
    ({"zzz": None}, "zzz", "is not a field of a job"),
    ({"cron": "x", "tz": "UTC"}, "cron", "; nor is tz"),
]


@pytest.mark.parametrize(("changes", "field", "rule"), REFUSED)
def test_refused_with_the_field_and_the_rule(changes: dict[str, Any], field: str, rule: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        read(**changes)
    assert refusal.value.field == field
    assert rule in refusal.value.rule


def test_every_field_is_among_the_refusals() -> None:
    assert {field.partition(".")[0] for _, field, _ in REFUSED} >= set(FIELDS)


@pytest.mark.parametrize("body", [None, [], "name", 5])
def test_a_body_that_is_no_object_is_refused(body: Any) -> None:
    with pytest.raises(InvalidInput, match=r"job: .* is not an object"):
        JobRequest.from_mapping(body)


def test_the_largest_payload_fits_exactly() -> None:
    spare = MAXIMUM_BODY - len(read(payload="").body(1, 1, 1))
    assert len(read(payload="x" * spare).body(1, 1, 1)) == MAXIMUM_BODY
    with pytest.raises(InvalidInput, match=f"payload: the job takes {MAXIMUM_BODY + 1} bytes"):
        read(payload="x" * (spare + 1))


def test_an_empty_label_is_a_label() -> None:
    assert read(labels={"urgent": ""}).labels == {"urgent": ""}
