"""What an answer means: a result, another attempt at a time, another attempt, or none."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import httpx
import pytest

from mainspring.worker.builtin import NotRetryable, RequestFailed
from mainspring.worker.builtin.answers import LONGEST_BODY, Answer, judge
from mainspring.worker.context import LARGEST_RESULT
from mainspring.worker.signals import Retry

NOW = datetime(2026, 1, 1, tzinfo=UTC)
EXPECTED = frozenset(range(200, 300))


def answer(
    status: int, body: bytes = b"", *, truncated: bool = False, headers: dict[str, str] | None = None
) -> Answer:
    url = httpx.URL("https://hooks.example/a?token=secret")
    sent = [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
    return Answer(url, status, httpx.Headers(sent), body, truncated)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 409, 410, 413, 418, 422, 451, 499])
def test_a_request_that_is_itself_wrong_is_not_sent_again(status: int) -> None:
    with pytest.raises(NotRetryable, match=f"https://hooks.example/a answered {status}"):
        judge(answer(status), EXPECTED, NOW)


@pytest.mark.parametrize("status", [101, 304, 300, 408, 425, 429, 500, 502, 503, 504, 599])
def test_any_other_unexpected_status_is_an_ordinary_failure(status: int) -> None:
    with pytest.raises(RequestFailed, match=str(status)):
        judge(answer(status), EXPECTED, NOW)


def test_an_expected_status_is_a_success_whatever_it_is() -> None:
    for status in (200, 404, 500):
        assert judge(answer(status), frozenset({200, 404, 500}), NOW)["status"] == status
    with pytest.raises(RequestFailed):
        judge(answer(204), frozenset({200}), NOW)


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("5", 5),
        ("0", 1),
        ("3600", 3600),
        ("3601", 3600),
        ("9" * 400, 3600),
        ("Thu, 01 Jan 2026 00:02:00 GMT", 120),
        ("Thu, 01 Jan 2026 00:02:00 -0000", 120),
        ("Wed, 31 Dec 2025 00:00:00 GMT", 1),
        ("Fri, 01 Jan 2027 00:00:00 GMT", 3600),
    ],
)
def test_a_server_that_says_when_is_asked_then(status: int, value: str, seconds: int) -> None:
    with pytest.raises(Retry) as retry:
        judge(answer(status, headers={"Retry-After": value}), EXPECTED, NOW)
    assert retry.value.after == timedelta(seconds=seconds)
    assert str(status) in retry.value.reason


@pytest.mark.parametrize("value", ["", "soon", "-5", "1.5", "Thu, 99 Jan 2026 00:02:00 GMT"])
def test_a_retry_after_that_says_nothing_leaves_it_to_the_backoff(value: str) -> None:
    with pytest.raises(RequestFailed):
        judge(answer(503, headers={"Retry-After": value}), EXPECTED, NOW)


def test_retry_after_means_nothing_with_another_status() -> None:
    with pytest.raises(RequestFailed):
        judge(answer(500, headers={"Retry-After": "5"}), EXPECTED, NOW)
    with pytest.raises(NotRetryable):
        judge(answer(404, headers={"Retry-After": "5"}), EXPECTED, NOW)


def test_an_error_shows_the_beginning_of_the_body_and_never_the_query() -> None:
    with pytest.raises(RequestFailed) as failed:
        judge(answer(500, b"no\n\tdisk " + b"x" * 5000), EXPECTED, NOW)
    assert str(failed.value).startswith(
        "https://hooks.example/a answered 500 Internal Server Error: no disk x"
    )
    assert len(str(failed.value)) < 300
    assert "secret" not in str(failed.value)


def test_a_result_keeps_the_headers_that_matter_and_no_cookie() -> None:
    headers = {"Content-Type": "text/plain", "Set-Cookie": "session=1", "X-Request-Id": "x" * 5000}
    result = judge(answer(200, b"done", headers=headers), EXPECTED, NOW)
    assert result.keys() == {"status", "headers", "body", "truncated"}
    assert result["body"] == "done"
    assert result["headers"].keys() == {"content-type", "x-request-id"}
    assert len(result["headers"]["x-request-id"]) == 1024


def test_a_body_that_is_no_text_is_kept_byte_by_byte() -> None:
    for body in (b"\xff\xfe", b"a\x00b", b"\x1b[31m"):
        result = judge(answer(200, body), EXPECTED, NOW)
        assert "body" not in result
        assert result["body_base64"]


def test_a_character_cut_in_half_does_not_make_a_text_binary() -> None:
    result = judge(answer(200, "aü".encode()[:2], truncated=True), EXPECTED, NOW)
    assert (result["body"], result["truncated"]) == ("a", True)
    assert "body_base64" in judge(answer(200, "aü".encode()[:2]), EXPECTED, NOW)


@pytest.mark.parametrize("piece", [b"\xff", b"\x01", "ü".encode(), "😀".encode(), b'"', b"\n", b"\\"])
def test_the_largest_body_fits_into_the_table_of_results(piece: bytes) -> None:
    body = piece * (LONGEST_BODY // len(piece))
    headers = {"etag": "ü" * 5000, "location": '"' * 5000}
    result = judge(answer(200, body, headers=headers), EXPECTED, NOW)
    assert len(json.dumps(result).encode()) <= LARGEST_RESULT
