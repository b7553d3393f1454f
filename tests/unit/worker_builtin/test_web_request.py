"""The payload of `http`: what is not as it should be is refused with the field and the rule."""

from __future__ import annotations

from typing import Any

import pytest

from mainspring.worker.builtin import InvalidPayload, NotRetryable
from mainspring.worker.builtin.web_request import WebRequest, origin, read_url, shown

URL = "https://hooks.example/report"


def refused(payload: Any) -> InvalidPayload:
    with pytest.raises(InvalidPayload) as caught:
        WebRequest.from_payload(payload)
    assert isinstance(caught.value, NotRetryable)
    assert str(caught.value) == f"payload: {caught.value.field}: {caught.value.rule}"
    return caught.value


def test_a_url_is_enough() -> None:
    request = WebRequest.from_payload({"url": URL})
    assert (request.method, request.body, request.headers) == ("POST", b"", {})
    assert request.expected == frozenset(range(200, 300))
    assert request.seconds == 30


def test_everything_given_is_taken() -> None:
    request = WebRequest.from_payload(
        {
            "url": URL + "?week=1",
            "method": "PUT",
            "headers": {"X-Api-Key": "k", "Content-Type": "application/vnd.example+json"},
            "body": {"grüße": [1, None]},
            "expected_status": [204, "3xx"],
            "timeout_seconds": 1.5,
        }
    )
    assert request.method == "PUT"
    assert request.headers == {"x-api-key": "k", "content-type": "application/vnd.example+json"}
    assert request.body == '{"grüße":[1,null]}'.encode()
    assert request.expected == {204, *range(300, 400)}
    assert request.seconds == 1.5


def test_a_body_brings_its_content_type() -> None:
    assert WebRequest.from_payload({"url": URL, "body": None}).body == b"null"
    assert WebRequest.from_payload({"url": URL, "body": 0}).headers == {"content-type": "application/json"}
    text = WebRequest.from_payload({"url": URL, "body_text": "ü"})
    assert (text.body, text.headers) == ("ü".encode(), {"content-type": "text/plain; charset=utf-8"})
    assert WebRequest.from_payload({"url": URL, "body_text": None}).headers == {}


@pytest.mark.parametrize(
    ("changes", "field", "rule"),
    [
        ({"url": None}, "url", "is missing"),
        ({"url": 5}, "url", "is a number, not a text"),
        ({"url": ""}, "url", "has 0 characters"),
        ({"url": "https://x/" + "a" * 8200}, "url", "characters"),
        ({"url": "hooks.example/report"}, "url", "does not begin with http"),
        ({"url": "ftp://hooks.example/"}, "url", "does not begin with http"),
        ({"url": "file:///etc/passwd"}, "url", "does not begin with http"),
        ({"url": "https://ada:secret@hooks.example/"}, "url", "login"),
        ({"url": "https://ada@hooks.example/"}, "url", "login"),
        ({"url": "https://@hooks.example/"}, "url", "login"),
        ({"url": "https://good.example\\@evil.example/"}, "url", "backslash"),
        ({"url": "https://hooks.example/a b"}, "url", "space"),
        ({"url": "https://hooks.example/\r\nX: y"}, "url", "control character"),
        ({"url": "https:///report"}, "url", "names no host"),
        ({"url": "https://a%2eb/"}, "url", "names no host"),
        ({"url": "https://[fe80::1%25eth0]/"}, "url", "names no host"),
        ({"url": "https://hooks.example:0/"}, "url", "port 0"),
        ({"url": "https://hooks.example:70000/"}, "url", "port 70000"),
        ({"url": "https://hooks.example:x/"}, "url", "is not a URL"),
        ({"method": "post"}, "method", "'post' is not one of GET"),
        ({"method": "CONNECT"}, "method", "not one of"),
        ({"method": ["GET"]}, "method", "a list is not one of"),
        ({"headers": ["a"]}, "headers", "is a list, not an object"),
        ({"headers": {f"h{n}": "" for n in range(65)}}, "headers", "65 entries"),
        ({"headers": {"a b": "c"}}, "headers.a b", "is not a header's name"),
        ({"headers": {"": "c"}}, "headers.", "is not a header's name"),
        ({"headers": {"a": 1}}, "headers.a", "is a number, not a text"),
        ({"headers": {"a": "b\r\nc: d"}}, "headers.a", "ASCII"),
        ({"headers": {"a": "ü"}}, "headers.a", "ASCII"),
        ({"headers": {"a": " b"}}, "headers.a", "spaces at its ends"),
        ({"headers": {"a": "x" * 8193}}, "headers.a", "8193 characters"),
        ({"headers": {"a": "1", "A": "2"}}, "headers.A", "twice"),
        ({"headers": {"Host": "evil.example"}}, "headers.Host", "set by the handler"),
        ({"headers": {"content-length": "0"}}, "headers.content-length", "set by the handler"),
        ({"headers": {"Transfer-Encoding": "chunked"}}, "headers.Transfer-Encoding", "set by the handler"),
        ({"headers": {"Idempotency-Key": "x"}}, "headers.Idempotency-Key", "set by the handler"),
        ({"headers": {"X-Mainspring-Signature": "x"}}, "headers.X-Mainspring-Signature", "set by the"),
        ({"body": 1, "body_text": "1"}, "body_text", "beside body"),
        ({"body_text": {"a": 1}}, "body_text", "is an object, not a text"),
        ({"body_text": "\ud800"}, "body_text", "surrogate"),
        ({"body": "\ud800"}, "body", "surrogate"),
        ({"body": float("nan")}, "body", "is not JSON"),
        ({"method": "GET", "body": 1}, "body", "cannot be sent with GET"),
        ({"method": "HEAD", "body_text": ""}, "body_text", "cannot be sent with HEAD"),
        ({"expected_status": 200}, "expected_status", "is not a list"),
        ({"expected_status": []}, "expected_status", "is not a list of 1–64"),
        ({"expected_status": [99]}, "expected_status", "100–599"),
        ({"expected_status": [True]}, "expected_status", "100–599"),
        ({"expected_status": ["200"]}, "expected_status", "100–599"),
        ({"expected_status": ["6xx"]}, "expected_status", "100–599"),
        ({"timeout_seconds": 0}, "timeout_seconds", "more than 0"),
        ({"timeout_seconds": -1}, "timeout_seconds", "more than 0"),
        ({"timeout_seconds": 86_401}, "timeout_seconds", "at most 86400"),
        ({"timeout_seconds": float("inf")}, "timeout_seconds", "more than 0"),
        ({"timeout_seconds": "5"}, "timeout_seconds", "not a number of seconds"),
        ({"timeout_seconds": True}, "timeout_seconds", "not a number of seconds"),
        ({"timeout": 5}, "timeout", "is not a field of the handler http; did you mean timeout_seconds?"),
        ({"hedaers": None}, "hedaers", "did you mean headers?"),
    ],
)
def test_what_breaks_a_rule_is_refused_by_field_and_rule(
    changes: dict[str, Any], field: str, rule: str
) -> None:
    error = refused({"url": URL} | changes)
    assert error.field == field
    assert rule in error.rule


@pytest.mark.parametrize("payload", [None, [], "https://hooks.example", 5])
def test_a_payload_that_is_no_object_is_refused(payload: Any) -> None:
    assert refused(payload).field == "payload"


def test_an_origin_has_its_default_port() -> None:
    assert origin(read_url("url", "HTTPS://Hooks.Example/")) == ("https", "hooks.example", 443)
    assert origin(read_url("url", "http://hooks.example:80/")) == ("http", "hooks.example", 80)
    assert origin(read_url("url", "http://[::1]:8080/")) == ("http", "::1", 8080)
    assert origin(read_url("url", "http://bücher.example/")) == ("http", "xn--bcher-kva.example", 80)


def test_a_url_is_shown_without_its_query() -> None:
    assert shown(read_url("url", "https://hooks.example:444/a?token=secret#b")) == (
        "https://hooks.example:444/a"
    )
    assert len(shown(read_url("url", "https://hooks.example/" + "a" * 5000))) == 200
