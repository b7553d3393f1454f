"""The request core: builds requests, judges what comes of them, reads answers. No input or output, no clock.

Both clients are a loop around it: send, ask `Attempts` how long to wait before the next try, wait, send
again.

**What is tried again, and why that is safe.**

| what happened | tried again | why it does no harm |
|---|---|---|
| no connection was made | always | nothing was sent |
| 429 `rate-limited`, 409 `contended` | always | refused before anything was changed |
| the connection broke, no answer in time, 502, 503, 504 | if *repeatable* | whether it happened is unknown |
| anything else | never | a refusal stays one; 429 `quota-exceeded` does not pass by waiting |

Repeatable is what may happen twice and means the same once: GET, PUT and DELETE; a POST with an
Idempotency-Key, and the client makes one for every POST that takes one (the API keeps the key with the
answer in the transaction of the change, so the second time answers what the first one did); a PATCH with
If-Match, whose second copy meets another version and is refused. So a PATCH without a version, and the
making of an API key, whose secret the API does not keep, are only tried again when nothing was sent. A
DELETE that is tried again and finds nothing has deleted it the first time. A PATCH with If-Match that is
refused on a repetition may have been its own first copy: read the job again.

**How long.** Waits double from 0.1 s up to 5 s, half of each by chance, so that clients which failed
together do not come back together. `Retry-After` is waited for as it stands. All attempts together stay
within `retry_seconds` (30 s): a wait that would go beyond ends it, and the last outcome is raised. 0 means
one attempt. While no connection is made at all it may be given up earlier, after `unreachable_seconds`.

**Timeouts** are `timeout` seconds without a byte (60 s), and 5 s for a connection; a run is waited for by
asking again, not by a connection that hangs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, TypeVar
from urllib.parse import quote
from uuid import uuid4

from mainspring.client.errors import NoAnswer, UnreadableAnswer, refusal
from mainspring.client.models import Page, read, read_page
from mainspring.schema.errors import InvalidInput

PREFIX = "/api/v1"
CONNECT_SECONDS = 5.0
LONGEST_REASON = 500

_FIRST_WAIT = 0.1
_LONGEST_WAIT = 5.0
_UNKNOWN_FATE = frozenset({502, 503, 504})
_HARMLESS = frozenset({"rate-limited", "contended"})
_IDEMPOTENT = frozenset({"GET", "PUT", "DELETE"})

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is sent."""

    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes | None = None

    @property
    def repeatable(self) -> bool:
        """Whether it may happen twice and means the same once."""
        if self.method in _IDEMPOTENT or "Idempotency-Key" in self.headers:
            return True
        return self.method == "PATCH" and "If-Match" in self.headers


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    status: int
    content: bytes
    headers: Mapping[str, str] = field(default_factory=dict)

    def json(self) -> Any:
        try:
            return json.loads(self.content)
        except ValueError as error:
            raise UnreadableAnswer(f"it is not JSON ({self.status})") from error

    def problem(self) -> Mapping[str, Any]:
        """What a refusal says; of a proxy on the way, which says it otherwise, nothing."""
        try:
            found = json.loads(self.content)
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}

    @property
    def retry_after(self) -> float | None:
        """Seconds; an HTTP date, which this API never sends, is not read."""
        given = self.headers.get("retry-after", "")
        return float(given) if given.isascii() and given.isdigit() else None


@dataclass(frozen=True, slots=True)
class Broken:
    """No answer: why, and whether anything was sent."""

    reason: str
    sent: bool


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """A request, and how its answer is read; `is_whole` tells an answer that broke off half-way."""

    request: Request
    read: Callable[[Answer], T]
    is_whole: Callable[[Answer], bool] = lambda _: True


@dataclass(frozen=True, slots=True)
class Listing(Generic[T]):
    """A list that comes in pages."""

    model: type[T]
    path: str
    query: tuple[tuple[str, str], ...]

    def page(self, cursor: str | None = None, limit: int | None = None) -> Call[Page[T]]:
        more = [("limit", limit), ("cursor", cursor)]
        asked = tuple((name, str(value)) for name, value in more if value is not None)
        request = Request(method="GET", path=self.path, query=self.query + asked)
        return Call(request, lambda answer: read_page(self.model, answer.json()))


@dataclass(frozen=True, slots=True)
class Patience:
    """How long the attempts of a request may take together; how long while no connection is made."""

    retry_seconds: float
    unreachable_seconds: float


class Attempts:
    """The tries of one request, and the decision after each."""

    def __init__(
        self,
        request: Request,
        patience: Patience,
        now: Callable[[], float],
        chance: Callable[[], float],
    ) -> None:
        self._request = request
        self._now = now
        self._chance = chance
        self._deadline = now() + patience.retry_seconds
        self._reached_by = now() + min(patience.unreachable_seconds, patience.retry_seconds)
        self._made = 0
        self._maybe_applied = False

    def wait_after(self, outcome: Answer | Broken, *, whole: bool = True) -> float | None:
        """Seconds until the next try; None: the outcome stands."""
        if not self._may_repeat(outcome, whole=whole):
            return None
        self._maybe_applied = self._maybe_applied or _has_unknown_fate(outcome)
        wait = self._backoff()
        if isinstance(outcome, Answer) and outcome.retry_after is not None:
            wait = outcome.retry_after
        self._made += 1
        unsent = isinstance(outcome, Broken) and not outcome.sent
        return wait if self._now() + wait <= (self._reached_by if unsent else self._deadline) else None

    def conclude(self, call: Call[T], outcome: Answer | Broken, address: str) -> T:
        """The result, or the error that the last outcome is."""
        if isinstance(outcome, Broken):
            maybe = self._maybe_applied or outcome.sent
            changes = self._request.method != "GET"
            raise NoAnswer(address, outcome.reason, maybe_applied=changes and maybe)
        if 200 <= outcome.status < 300 or self._is_gone_already(outcome):
            return call.read(outcome)
        raise refusal(outcome.status, outcome.problem(), outcome.retry_after)

    def _may_repeat(self, outcome: Answer | Broken, *, whole: bool) -> bool:
        if isinstance(outcome, Broken):
            return not outcome.sent or self._request.repeatable
        if outcome.status in _UNKNOWN_FATE or not whole:
            return self._request.repeatable
        kind = str(outcome.problem().get("type", "")).rpartition(":")[2] if outcome.status >= 400 else ""
        return kind in _HARMLESS

    def _is_gone_already(self, answer: Answer) -> bool:
        return answer.status == 404 and self._request.method == "DELETE" and self._maybe_applied

    def _backoff(self) -> float:
        wait = min(_LONGEST_WAIT, _FIRST_WAIT * 2 ** min(self._made, 16))
        return float(wait * (0.5 + self._chance() / 2))


def get(model: type[T], path: str, **query: Any) -> Call[T]:
    """One thing."""
    request = Request(method="GET", path=path, query=parameters(query))
    return Call(request, lambda answer: read(model, answer.json()))


def change(
    method: str,
    path: str,
    reader: Callable[[Answer], R],
    body: object = None,
    *,
    reason: str | None = None,
    version: int | None = None,
    keyed: bool = True,
) -> Call[R]:
    """A change; a POST gets an Idempotency-Key unless its route takes none."""
    headers: dict[str, str] = {}
    if body is not None:
        headers["Content-Type"] = "application/json"
    if method == "POST" and keyed:
        headers["Idempotency-Key"] = uuid4().hex
    if version is not None:
        headers["If-Match"] = f'"{version}"'
    if reason is not None:
        headers["X-Reason"] = check_reason(reason)
    content = None if body is None else encode(body)
    return Call(Request(method=method, path=path, headers=headers, content=content), reader)


def as_model(model: type[T]) -> Callable[[Answer], T]:
    return lambda answer: read(model, answer.json())


def as_nothing(_: Answer) -> None:
    """Of an answer without content."""


def path(*segments: str | int) -> str:
    """A path in which each segment is one, whatever characters it has."""
    return PREFIX + "".join(f"/{_segment(str(segment))}" for segment in segments)


def parameters(query: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """A query without what is None."""
    return tuple((name, _text(value)) for name, value in query.items() if value is not None)


def encode(body: object) -> bytes:
    """JSON, compact, in UTF-8; NaN is none."""
    try:
        text = json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=_plain)
        return text.encode()
    except (TypeError, ValueError) as error:
        raise InvalidInput("body", f"cannot be written as JSON: {error}") from error


def check_reason(reason: str) -> str:
    if not reason.isprintable() or not 1 <= len(reason) <= LONGEST_REASON:
        raise InvalidInput("reason", f"is not one line of 1–{LONGEST_REASON} characters")
    return reason


def without_none(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _has_unknown_fate(outcome: Answer | Broken) -> bool:
    return outcome.sent if isinstance(outcome, Broken) else outcome.status in _UNKNOWN_FATE


def _segment(text: str) -> str:
    """Dots alone would be taken for a way up the path."""
    return text.replace(".", "%2E") if text.strip(".") == "" else quote(text, safe=":")


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(_plain(value)) if isinstance(value, datetime) else str(value)


def _plain(value: object) -> Any:
    if isinstance(value, datetime):
        if value.utcoffset() is None:
            raise ValueError(f"{value.isoformat()} has no time zone")
        return value.isoformat()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not JSON")
