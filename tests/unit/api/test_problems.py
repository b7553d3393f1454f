"""Every error that a caller can cause has its status; nothing else shows what it says."""

from __future__ import annotations

import json

import pytest

from mainspring.api import problems
from mainspring.schema import errors

CASES = [
    (errors.InvalidInput("f", "r"), 422, "invalid-input"),
    (problems.BadRequest("f", "r"), 400, "unreadable"),
    (problems.TooLarge("f", "r"), 413, "too-large"),
    (problems.WrongMediaType("f", "r"), 415, "wrong-media-type"),
    (problems.KeyReused(), 422, "key-reused"),
    (errors.NotFound("job", "x"), 404, "not-found"),
    (errors.NotAllowed("r"), 403, "not-allowed"),
    (problems.Unauthenticated("r"), 401, "unauthenticated"),
    (errors.QuotaExceeded(maximum=3, room=0), 429, "quota-exceeded"),
    (problems.RateLimited(7), 429, "rate-limited"),
    (errors.NameTaken(("a",)), 409, "name-taken"),
    (errors.VersionMismatch(expected=1, actual=2), 412, "version-mismatch"),
    (errors.WrongStatus("pause", "completed"), 409, "wrong-status"),
    (errors.RunEnded("cancel", "dead"), 409, "run-ended"),
    (errors.RedriveRefused(1, "x", "y"), 409, "redrive-refused"),
    (errors.Contended("x"), 409, "contended"),
    (errors.DatabaseUnavailable("at host:5432"), 503, "unavailable"),
    (errors.PartitionBusy("runs_1", "x"), 503, "unavailable"),
]


@pytest.mark.parametrize(("error", "status", "slug"), CASES, ids=lambda case: type(case).__name__)
def test_the_table(error: Exception, status: int, slug: str) -> None:
    response = problems.answer(error)
    body = json.loads(bytes(response.body))
    assert (response.status_code, body["status"], body["type"]) == (status, status, f"urn:mainspring:{slug}")
    assert response.media_type == "application/problem+json"
    assert ("retry-after" in response.headers) == (status in (429, 503))
    assert ("www-authenticate" in response.headers) == (status == 401)


def test_field_and_rule_stand_apart() -> None:
    body = problems.describe(errors.InvalidInput("max_retries", "-1 is not in 0–1000"))
    assert (body["field"], body["rule"]) == ("max_retries", "-1 is not in 0–1000")


@pytest.mark.parametrize("error", [ValueError("secret"), errors.DatabaseUnavailable("secret")])
def test_what_is_inside_stays_inside(error: Exception) -> None:
    assert "secret" not in json.dumps(problems.describe(error))
    assert problems.answer(error).status_code >= 500
