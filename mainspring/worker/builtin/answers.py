"""What an answer means for the run. Pure: status, headers and body in, a result or a failure out.

    expected                       success; the result is kept with the run
    429, 503 with Retry-After      another attempt after that time, at most an hour
    408, 425, 429                  an ordinary failure: another attempt by the job's backoff
    another 4xx                    the request itself is wrong, so no further attempt: a dead letter
    anything else                  an ordinary failure

Of the body, `LONGEST_BODY` bytes are kept. As a text where it is one; otherwise as base64, so that what was
stored is what was sent. With the headers a result stays below the limit of the table `results`: a
character costs at most three times its bytes once it is JSON, and control characters, which cost six, make
it base64.
"""

from __future__ import annotations

import base64
import re
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any, NamedTuple

import httpx

from mainspring.worker.builtin.failures import RequestFailed
from mainspring.worker.builtin.fields import shorten
from mainspring.worker.builtin.web_request import shown
from mainspring.worker.signals import NotRetryable, Retry

LONGEST_BODY = 64 * 1024
LONGEST_WAIT = timedelta(hours=1)
SHORTEST_WAIT = timedelta(seconds=1)
KEPT_HEADERS = ("content-type", "date", "etag", "last-modified", "location", "retry-after", "x-request-id")
_LONGEST_HEADER = 1024
_LONGEST_EXCERPT = 200
_WITH_RETRY_AFTER = (429, 503)
_WORTH_ANOTHER_TRY = (408, 425, 429)
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


class Answer(NamedTuple):
    """A response, as much of it as was read."""

    url: httpx.URL
    status: int
    headers: httpx.Headers
    body: bytes
    truncated: bool


def judge(answer: Answer, expected: frozenset[int], now: datetime) -> dict[str, Any]:
    """The run's result; raises for an answer that was not expected."""
    if answer.status in expected:
        return _result(answer)
    text = _describe(answer)
    wait = _retry_after(answer, now) if answer.status in _WITH_RETRY_AFTER else None
    if wait is not None:
        raise Retry(wait, text)
    if 400 <= answer.status < 500 and answer.status not in _WORTH_ANOTHER_TRY:
        raise NotRetryable(text)
    raise RequestFailed(text)


def _result(answer: Answer) -> dict[str, Any]:
    headers = {
        name: shorten(answer.headers[name], _LONGEST_HEADER)
        for name in KEPT_HEADERS
        if name in answer.headers
    }
    text = _as_text(answer)
    body = (
        {"body": text} if text is not None else {"body_base64": base64.b64encode(answer.body).decode("ascii")}
    )
    return {"status": answer.status, "headers": headers, **body, "truncated": answer.truncated}


def _as_text(answer: Answer) -> str | None:
    """The body as UTF-8; a cut one may end in the middle of a character, which is then left out."""
    body = answer.body
    for cut in range(4 if answer.truncated else 1):
        try:
            text = body[: len(body) - cut].decode()
        except UnicodeDecodeError:
            continue
        return None if _CONTROL.search(text) else text
    return None


def _describe(answer: Answer) -> str:
    try:
        status = f"{answer.status} {HTTPStatus(answer.status).phrase}"
    except ValueError:
        status = str(answer.status)
    excerpt = " ".join((_as_text(answer) or "").split())
    said = f": {shorten(excerpt, _LONGEST_EXCERPT)}" if excerpt else ""
    return f"{shown(answer.url)} answered {status}{said}"


def _retry_after(answer: Answer, now: datetime) -> timedelta | None:
    """How long the server wants to be left alone, within our bounds; None if it does not say."""
    value = answer.headers.get("retry-after", "").strip()
    if re.fullmatch(r"[0-9]+", value):
        seconds = int(value[:9]) if len(value) <= 9 else LONGEST_WAIT.total_seconds()
        return _bounded(timedelta(seconds=seconds))
    try:
        until = parsedate_to_datetime(value)
    except ValueError:
        return None
    # `-0000` is how the standard library reads "no zone", and HTTP's dates are always GMT.
    return _bounded(until.replace(tzinfo=until.tzinfo or now.tzinfo) - now)


def _bounded(wait: timedelta) -> timedelta:
    return min(max(wait, SHORTEST_WAIT), LONGEST_WAIT)
