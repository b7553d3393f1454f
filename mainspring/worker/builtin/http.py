"""The built-in handler `http`: one request, its answer judged and kept.

Who is authoritative: the receiver. It may have done its work although its answer was lost, came too late or
was cut off, and then the next attempt sends the request again; the header `Idempotency-Key` is the same for
every attempt, so that the receiver can tell. What each failure leaves behind:

    the payload breaks a rule, or the address is refused    nothing was sent; a dead letter at once
    the name has no address, nobody listens, TLS fails      nothing was sent; retried
    the time is up, or the run is cancelled                 the connection is closed; perhaps it was received
    an answer that was not expected                         it was received; see answers.py for what follows

The whole chain of redirects has one timeout, the payload's or what is left of the run's own time. Memory is
bounded whatever the receiver sends: a head of 100 KiB, a body of 64 KiB, then the connection is closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any
from urllib.parse import quote

from mainspring.clock import Clock, SystemClock
from mainspring.schedule import format_instant
from mainspring.worker.builtin.addresses import Resolver, SystemResolver
from mainspring.worker.builtin.answers import LONGEST_BODY, Answer, judge
from mainspring.worker.builtin.exchange import Exchange, read_at_most
from mainspring.worker.builtin.failures import RequestFailed
from mainspring.worker.builtin.redirects import MOST_REDIRECTS, Hop
from mainspring.worker.builtin.seams import RunContext
from mainspring.worker.builtin.settings import HttpHandlerSettings
from mainspring.worker.builtin.signing import signature_headers
from mainspring.worker.builtin.web_request import WebRequest, shown

IDEMPOTENCY_HEADER = "Idempotency-Key"
_USER_AGENT = f"mainspring/{version('mainspring')}"
_PRINTABLE = "".join(map(chr, range(0x21, 0x7F))).replace("%", "")


class HttpHandler:
    """Sends the request that a job's payload describes; safe to call any number of times at once."""

    def __init__(
        self, settings: HttpHandlerSettings, resolver: Resolver | None = None, clock: Clock | None = None
    ) -> None:
        self._secret = settings.signing_secret
        self._clock = clock or SystemClock()
        self._exchange = Exchange(resolver or SystemResolver(), settings.allow_private, settings.ssl())

    async def __call__(self, context: RunContext) -> dict[str, Any]:
        wanted = WebRequest.from_payload(context.payload)
        seconds = min(wanted.seconds, context.remaining().total_seconds())
        try:
            async with asyncio.timeout(seconds):
                return await self._follow(wanted, context)
        except TimeoutError as error:
            raise TimeoutError(f"{shown(wanted.url)} had not answered within {seconds:.3g} s") from error

    async def _follow(self, wanted: WebRequest, context: RunContext) -> dict[str, Any]:
        hop = Hop.first(wanted)
        for _ in range(MOST_REDIRECTS + 1):
            headers = self._headers(hop, context)
            async with self._exchange.open(hop.method, hop.url, headers, hop.body) as response:
                following = hop.after(response, wanted.expected)
                if following is None:
                    body, truncated = await read_at_most(response, LONGEST_BODY)
                    answer = Answer(hop.url, response.status_code, response.headers, body, truncated)
                    return judge(answer, wanted.expected, self._clock.now())
            context.log("redirected", status=response.status_code, to=shown(following.url))
            hop = following
        raise RequestFailed(f"{shown(wanted.url)} redirects more than {MOST_REDIRECTS} times")

    def _headers(self, hop: Hop, context: RunContext) -> Mapping[str, str]:
        """The payload's, then ours, which no payload can replace."""
        headers = {"user-agent": _USER_AGENT, "accept": "*/*"} | dict(hop.headers)
        headers |= {
            "Accept-Encoding": "identity",
            IDEMPOTENCY_HEADER: header_text(context.idempotency_key),
            "X-Mainspring-Run": context.run_id,
            "X-Mainspring-Scheduled-At": format_instant(context.scheduled_at),
            "X-Mainspring-Attempt": str(context.attempt),
        }
        if self._secret is not None and hop.at_home:
            headers |= signature_headers(
                self._secret,
                timestamp=int(self._clock.now().timestamp()),
                method=hop.method,
                path=hop.url.raw_path,
                body=hop.body,
            )
        return headers


def header_text(text: str) -> str:
    """A text as a header can carry it: all but printable ASCII percent-encoded, so two texts stay two."""
    return quote(text, safe=_PRINTABLE)
