"""Where a redirect leads, and what the next hop may know."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from mainspring.worker.builtin import NotRetryable, RequestFailed
from mainspring.worker.builtin.redirects import Hop
from mainspring.worker.builtin.web_request import WebRequest

SECRETS = {"Authorization": "Bearer secret", "X-Api-Key": "secret", "Cookie": "secret"}


def first(**changes: Any) -> Hop:
    payload = {
        "url": "https://a.example/x?q=1",
        "body": {"n": 1},
        "headers": SECRETS | {"Accept": "text/csv"},
    }
    return Hop.first(WebRequest.from_payload(payload | changes))


def follow(hop: Hop, status: int, location: str, expected: frozenset[int] = frozenset()) -> Hop | None:
    return hop.after(httpx.Response(status, headers={"Location": location}), expected)


def led(hop: Hop, status: int, location: str) -> Hop:
    found = follow(hop, status, location)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("status", "method", "following"),
    [
        (301, "POST", "GET"),
        (302, "POST", "GET"),
        (303, "POST", "GET"),
        (303, "PUT", "GET"),
        (301, "PUT", "PUT"),
        (302, "DELETE", "DELETE"),
        (307, "POST", "POST"),
        (308, "PATCH", "PATCH"),
    ],
)
def test_method_and_body_follow_the_status(status: int, method: str, following: str) -> None:
    hop = led(first(method=method), status, "/y")
    assert hop.method == following
    assert str(hop.url) == "https://a.example/y"
    assert (hop.body, "content-type" in hop.headers) == (
        (b'{"n":1}', True) if following == method else (b"", False)
    )


def test_head_stays_head() -> None:
    hop = Hop.first(WebRequest.from_payload({"url": "https://a.example/", "method": "HEAD"}))
    assert led(hop, 303, "/y").method == "HEAD"


def test_at_home_everything_goes_along() -> None:
    hop = led(first(), 307, "https://A.example:443/y")
    assert hop.at_home
    assert {name: hop.headers[name.lower()] for name in SECRETS} == SECRETS


@pytest.mark.parametrize(
    "location", ["https://b.example/", "https://a.example:444/", "//b.example/y", "https://a.example.evil/"]
)
def test_to_another_origin_no_secret_goes_along(location: str) -> None:
    hop = led(first(), 307, location)
    assert not hop.at_home
    assert hop.headers == {"content-type": "application/json", "accept": "text/csv"}


def test_from_http_to_https_is_another_origin() -> None:
    assert not led(first(url="http://a.example/"), 307, "https://a.example/").at_home


def test_a_chain_that_has_left_gets_nothing_back_by_returning() -> None:
    back = led(led(first(), 307, "https://b.example/"), 307, "https://a.example/x")
    assert not back.at_home
    assert "authorization" not in back.headers


def test_what_is_no_redirect_is_the_answer() -> None:
    assert follow(first(), 200, "/y") is None
    assert follow(first(), 304, "/y") is None
    assert follow(first(), 302, "/y", frozenset({302})) is None
    assert first().after(httpx.Response(302), frozenset()) is None


@pytest.mark.parametrize(
    ("location", "rule"),
    [
        ("ftp://b.example/", "does not begin with http"),
        ("file:///etc/passwd", "does not begin with http"),
        ("https://ada:secret@b.example/", "login"),
        ("http://b.example/", "from https to http"),
        ("http://a.example/", "from https to http"),
        ("https://b.example:0/", "port 0"),
    ],
)
def test_where_no_payload_may_lead_no_redirect_does(location: str, rule: str) -> None:
    with pytest.raises(NotRetryable, match=rule):
        follow(first(), 307, location)


def test_a_location_that_is_no_url_is_an_ordinary_failure() -> None:
    with pytest.raises(RequestFailed, match="no URL"):
        follow(first(), 307, "https://[::1")
