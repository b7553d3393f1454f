"""The payload of the `http` handler, checked: what is asked of whom, and which answers are good.

url                required; http or https, without a login in it; the fragment is not sent
method             GET, HEAD, POST (default), PUT, PATCH, DELETE or OPTIONS
headers            by name; those that the handler or HTTP itself sets are refused
body, body_text    a JSON value, or a text sent as it is; not with GET and HEAD
expected_status    codes and ranges such as "2xx"; default 200–299
timeout_seconds    for everything together, redirects included; default 30
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv6Address
from typing import Any

import httpx

from mainspring.worker.builtin import fields
from mainspring.worker.builtin.failures import InvalidPayload

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
WITHOUT_BODY = ("GET", "HEAD")
DEFAULT_SECONDS = 30.0
LONGEST_SECONDS = 86_400.0
LONGEST_URL = 8_192
LONGEST_HEADER = 8_192
MOST_HEADERS = 64
MOST_EXPECTED = 64

PORTS = {"http": 80, "https": 443}
_FIELDS = ("url", "method", "headers", "body", "body_text", "expected_status", "timeout_seconds")
_ANY_VALUE = ("body",)
_SUCCESS = frozenset(range(200, 300))
_HOST = re.compile(r"[a-z0-9._-]{1,253}")
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}")
_HEADER_VALUE = re.compile(r"[\x20-\x7e]*")
_RANGE = re.compile(r"[1-5]xx")
_OURS = "x-mainspring-"
_REFUSED_HEADERS = frozenset(
    {
        "accept-encoding",
        "connection",
        "content-length",
        "expect",
        "host",
        "idempotency-key",
        "keep-alive",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WebRequest:
    """What a payload asks for."""

    url: httpx.URL
    method: str
    headers: Mapping[str, str]
    """By name in lower case, the content type included."""
    body: bytes
    expected: frozenset[int]
    seconds: float

    @classmethod
    def from_payload(cls, payload: Any) -> WebRequest:
        """Check a payload; raises InvalidPayload for the first rule it breaks."""
        given = fields.read_payload(payload, "http", _FIELDS, _ANY_VALUE)
        if "url" not in given:
            raise InvalidPayload("url", "is missing")
        method = _read_method(given.get("method", "POST"))
        body = _read_body(given, method)
        headers = _read_headers(given.get("headers", {}))
        if body is not None:
            text = "text/plain; charset=utf-8" if "body_text" in given else "application/json"
            headers = {"content-type": text} | headers
        return cls(
            url=read_url("url", given["url"]),
            method=method,
            headers=headers,
            body=body or b"",
            expected=_read_expected(given["expected_status"]) if "expected_status" in given else _SUCCESS,
            seconds=_read_seconds(given),
        )


def read_url(field: str, value: Any) -> httpx.URL:
    """An absolute URL that names a host and nobody's login."""
    text = fields.read_text(field, value, LONGEST_URL)
    if "\\" in text or not text.isprintable() or " " in text:
        raise InvalidPayload(field, "holds a space, a backslash or a control character")
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL as error:
        raise InvalidPayload(field, f"is not a URL: {error}") from None
    if url.scheme not in PORTS:
        raise InvalidPayload(field, "does not begin with http:// or https://")
    if url.userinfo or "@" in _authority(text):
        raise InvalidPayload(field, "holds a login; send it in a header")
    if not _is_host(url.raw_host.decode("ascii")):
        raise InvalidPayload(field, "names no host, or one with characters that no host has")
    if url.port is not None and not 1 <= url.port <= 65_535:
        raise InvalidPayload(field, f"the port {url.port} is not in 1–65535")
    return url


def origin(url: httpx.URL) -> tuple[str, str, int]:
    """Scheme, host and port: what a secret may not cross."""
    return url.scheme, url.raw_host.decode("ascii"), url.port or PORTS[url.scheme]


def shown(url: httpx.URL) -> str:
    """A URL as an error may show it: its query may hold a secret."""
    return fields.shorten(f"{url.scheme}://{url.netloc.decode('ascii')}{url.path}", 200)


def _authority(text: str) -> str:
    return re.split(r"[/?#]", text.partition("//")[2], maxsplit=1)[0]


def _is_host(host: str) -> bool:
    if _HOST.fullmatch(host):
        return True
    try:
        IPv6Address(host)
    except ValueError:
        return False
    return "%" not in host


def _read_method(value: Any) -> str:
    if value not in METHODS:
        shown_value = repr(fields.shorten(value)) if isinstance(value, str) else fields.kind_of(value)
        raise InvalidPayload("method", f"{shown_value} is not one of {', '.join(METHODS)}")
    return str(value)


def _read_body(given: Mapping[str, Any], method: str) -> bytes | None:
    body = fields.one_of_both(given, "body", "body_text")
    if body is not None and method in WITHOUT_BODY:
        field = "body" if "body" in given else "body_text"
        raise InvalidPayload(field, f"cannot be sent with {method}")
    return body


def _read_headers(value: Any) -> dict[str, str]:
    headers: dict[str, str] = {}
    for name, content in fields.read_object("headers", value, MOST_HEADERS).items():
        field = f"headers.{fields.shorten(name)}"
        if not _HEADER_NAME.fullmatch(name):
            raise InvalidPayload(field, "is not a header's name")
        lower = name.lower()
        if lower in _REFUSED_HEADERS or lower.startswith(_OURS):
            raise InvalidPayload(field, "is set by the handler itself")
        if lower in headers:
            raise InvalidPayload(field, "is given twice")
        headers[lower] = _read_header(field, content)
    return headers


def _read_header(field: str, value: Any) -> str:
    content = fields.read_text(field, value, LONGEST_HEADER, shortest=0)
    if not _HEADER_VALUE.fullmatch(content) or content != content.strip():
        raise InvalidPayload(field, "holds something else than ASCII, or spaces at its ends")
    return content


def _read_expected(value: Any) -> frozenset[int]:
    if not isinstance(value, list) or not 1 <= len(value) <= MOST_EXPECTED:
        raise InvalidPayload("expected_status", f"is not a list of 1–{MOST_EXPECTED} codes or ranges")
    return frozenset().union(*(_read_status(each) for each in value))


def _read_status(value: Any) -> range:
    if isinstance(value, str) and _RANGE.fullmatch(value):
        first = int(value[0]) * 100
        return range(first, first + 100)
    if type(value) is int and 100 <= value <= 599:
        return range(value, value + 1)
    raise InvalidPayload("expected_status", "holds something else than 100–599 and 1xx–5xx")


def _read_seconds(given: Mapping[str, Any]) -> float:
    value = given.get("timeout_seconds", DEFAULT_SECONDS)
    return fields.read_seconds("timeout_seconds", value, LONGEST_SECONDS)
