"""The core's decisions: what is tried again, how long, and what is raised in the end."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from mainspring.client import Contended, InvalidInput, NameTaken, NoAnswer, NotFound, Unavailable, errors
from mainspring.client.core import Answer, Attempts, Broken, Call, Patience, Request, as_nothing, encode, path
from mainspring.client.routes import installation, jobs, runs
from mainspring.schema import errors as schema_errors

ADDRESS = "http://api:8080"
UNSENT = Broken("refused", sent=False)
CUT = Broken("reset", sent=True)


def answer(status: int, kind: str = "", **headers: str) -> Answer:
    problem = {"type": f"urn:mainspring:{kind}", "detail": "because", "field": "name", "rule": "is short"}
    return Answer(status, json.dumps(problem).encode(), headers)


class Tries:
    """One request's attempts on a clock that the test turns."""

    def __init__(self, request: Request, seconds: float = 30.0, reach: float = 30.0) -> None:
        self.now = 100.0
        self.attempts = Attempts(request, Patience(seconds, reach), lambda: self.now, lambda: 1.0)

    def after(self, outcome: Answer | Broken, *, whole: bool = True) -> float | None:
        wait = self.attempts.wait_after(outcome, whole=whole)
        self.now += wait or 0
        return wait


GET = jobs.get("a").request
PUT = jobs.put("a").request
DELETE = jobs.delete("a").request
POST = jobs.trigger("a").request
POST_WITHOUT_KEY = installation.create_key("a", "viewer").request
PATCH = jobs.edit("a", priority=3).request
PATCH_AT_VERSION = jobs.edit("a", priority=3, version=3).request

REPEATABLE = [GET, PUT, DELETE, POST, PATCH_AT_VERSION]
ONCE = [POST_WITHOUT_KEY, PATCH]


@pytest.mark.parametrize("request_", REPEATABLE)
@pytest.mark.parametrize("outcome", [CUT, answer(502), answer(503), answer(504)])
def test_what_is_repeatable_is_tried_again_when_its_fate_is_unknown(
    request_: Request, outcome: Answer | Broken
) -> None:
    assert Tries(request_).after(outcome) is not None


@pytest.mark.parametrize("request_", ONCE)
@pytest.mark.parametrize("outcome", [CUT, answer(503)])
def test_what_is_not_repeatable_is_not(request_: Request, outcome: Answer | Broken) -> None:
    assert Tries(request_).after(outcome) is None


@pytest.mark.parametrize("request_", REPEATABLE + ONCE)
@pytest.mark.parametrize("outcome", [UNSENT, answer(429, "rate-limited"), answer(409, "contended")])
def test_what_changed_nothing_is_always_tried_again(request_: Request, outcome: Answer | Broken) -> None:
    assert Tries(request_).after(outcome) is not None


@pytest.mark.parametrize(
    "outcome",
    [
        answer(200),
        answer(400, "unreadable"),
        answer(401, "unauthenticated"),
        answer(404, "not-found"),
        answer(409, "name-taken"),
        answer(412, "version-mismatch"),
        answer(422, "invalid-input"),
        answer(429, "quota-exceeded"),
        answer(500, "defect"),
    ],
)
def test_an_answer_that_stays_one_is_not_asked_for_again(outcome: Answer) -> None:
    assert [Tries(request).after(outcome) for request in REPEATABLE] == [None] * len(REPEATABLE)


def test_waits_double_up_to_a_bound_and_end_within_the_budget() -> None:
    tries, waits = Tries(GET), list[float]()
    while (wait := tries.after(UNSENT)) is not None:
        waits.append(wait)
    assert waits == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0, 5.0]
    assert sum(waits) <= 30 < sum(waits) + 5


def test_chance_spreads_the_waits() -> None:
    attempts = Attempts(GET, Patience(30, 30), lambda: 0.0, lambda: 0.0)
    assert attempts.wait_after(UNSENT) == 0.05


def test_retry_after_is_waited_for_and_ends_it_when_that_is_too_long() -> None:
    assert Tries(GET).after(answer(429, "rate-limited", **{"retry-after": "7"})) == 7.0
    assert Tries(GET).after(answer(503, **{"retry-after": "31"})) is None
    assert Tries(GET).after(answer(503, **{"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"})) == 0.1


def test_a_budget_of_nothing_means_one_attempt() -> None:
    assert Tries(GET, seconds=0).after(UNSENT) is None


def test_no_connection_may_be_given_up_earlier_than_the_rest() -> None:
    tries = Tries(GET, reach=0.5)
    assert [tries.after(UNSENT) for _ in range(3)] == [0.1, 0.2, None]
    limited = Tries(GET, reach=0.5)
    assert limited.after(answer(429, "rate-limited", **{"retry-after": "7"})) == 7.0


def test_an_answer_that_broke_off_is_asked_for_again() -> None:
    assert Tries(POST).after(answer(200), whole=False) is not None


def test_a_key_stays_the_same_for_one_call_and_differs_between_two() -> None:
    assert POST.headers["Idempotency-Key"] != jobs.trigger("a").request.headers["Idempotency-Key"]


@pytest.mark.parametrize(
    "call",
    [
        jobs.create(name="a"),
        jobs.pause("a"),
        jobs.resume("a"),
        jobs.trigger("a"),
        jobs.backfill("a", "x", "y"),
        runs.cancel("r"),
        runs.redrive(1),
        runs.redrive_many(ids=[1]),
    ],
)
def test_every_post_that_changes_something_has_a_key(call: Call[Any]) -> None:
    assert call.request.headers["Idempotency-Key"]


def test_a_delete_that_finds_nothing_the_second_time_has_deleted() -> None:
    tries, call = Tries(DELETE), jobs.delete("a")
    assert tries.after(CUT) is not None
    assert tries.attempts.wait_after(answer(404, "not-found")) is None
    tries.attempts.conclude(call, answer(404, "not-found"), ADDRESS)
    with pytest.raises(NotFound):
        Tries(DELETE).attempts.conclude(call, answer(404, "not-found"), ADDRESS)


@pytest.mark.parametrize(
    ("outcome", "raised"),
    [
        (answer(404, "not-found"), NotFound),
        (answer(404, "not-found"), schema_errors.NotFound),
        (answer(422, "invalid-input"), InvalidInput),
        (answer(422, "invalid-input"), schema_errors.InvalidInput),
        (answer(400, "unreadable"), InvalidInput),
        (answer(401, "unauthenticated"), errors.Unauthenticated),
        (answer(403, "not-allowed"), schema_errors.NotAllowed),
        (answer(409, "name-taken"), NameTaken),
        (answer(409, "name-taken"), schema_errors.Conflict),
        (answer(409, "contended"), Contended),
        (answer(409, "something-new"), errors.Conflict),
        (answer(412, "version-mismatch"), errors.VersionMismatch),
        (answer(429, "quota-exceeded"), errors.QuotaExceeded),
        (answer(429, "rate-limited"), errors.RateLimited),
        (answer(500, "defect"), Unavailable),
        (answer(418, "teapot"), errors.ApiError),
        (Answer(502, b"<html>bad gateway"), Unavailable),
    ],
)
def test_a_refusal_becomes_the_error_of_its_meaning(outcome: Answer, raised: type[Exception]) -> None:
    with pytest.raises(raised):
        Tries(GET).attempts.conclude(jobs.get("a"), outcome, ADDRESS)


def test_an_error_carries_status_field_and_rule() -> None:
    with pytest.raises(InvalidInput) as caught:
        Tries(GET).attempts.conclude(jobs.get("a"), answer(422, "invalid-input"), ADDRESS)
    error = caught.value
    assert (error.status, error.kind, error.field, error.rule, error.detail, str(error)) == (
        422,
        "invalid-input",
        "name",
        "is short",
        "because",
        "because",
    )


@pytest.mark.parametrize(
    ("request_", "outcome", "maybe"), [(POST, CUT, True), (POST, UNSENT, False), (GET, CUT, False)]
)
def test_no_answer_says_where_and_whether_it_may_have_happened(
    request_: Request, outcome: Broken, maybe: bool
) -> None:
    with pytest.raises(NoAnswer, match=ADDRESS) as caught:
        Tries(request_).attempts.conclude(Call(request_, as_nothing), outcome, ADDRESS)
    assert caught.value.maybe_applied is maybe


def test_what_was_sent_once_may_have_happened_though_the_last_try_was_not_sent() -> None:
    tries = Tries(POST)
    tries.after(CUT)
    tries.after(UNSENT)
    with pytest.raises(NoAnswer) as caught:
        tries.attempts.conclude(jobs.trigger("a"), UNSENT, ADDRESS)
    assert caught.value.maybe_applied


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a b/c", "/api/v1/jobs/a%20b%2Fc"),
        ("..", "/api/v1/jobs/%2E%2E"),
        ("täglich?#%", "/api/v1/jobs/t%C3%A4glich%3F%23%25"),
        ("jobs:x", "/api/v1/jobs/jobs:x"),
    ],
)
def test_a_name_is_one_segment_of_the_path(name: str, expected: str) -> None:
    assert path("jobs", name) == expected


def test_an_instant_without_a_zone_and_a_value_that_is_no_json_are_refused_before_sending() -> None:
    assert encode({"at": datetime(2026, 1, 1, tzinfo=UTC)}) == b'{"at":"2026-01-01T00:00:00+00:00"}'
    for body in (datetime(2026, 1, 1), float("nan"), object()):  # noqa: DTZ001  (that is the point)
        with pytest.raises(schema_errors.InvalidInput, match="cannot be written as JSON"):
            encode({"at": body})


@pytest.mark.parametrize("reason", ["", "two\nlines", "x" * 501])
def test_a_reason_is_one_line(reason: str) -> None:
    with pytest.raises(schema_errors.InvalidInput, match="reason"):
        jobs.delete("a", reason=reason)


def test_a_filter_has_one_parameter_for_each_label() -> None:
    listing = jobs.find(status="active", labels={"team": "a", "tier": "1"})
    assert listing.page("next", 10).request.query == (
        ("status", "active"),
        ("label", "team:a"),
        ("label", "tier:1"),
        ("limit", "10"),
        ("cursor", "next"),
    )
