"""One request of the chain that a job's request may become. Pure: a response's head in, the next hop out.

    301, 302    the next request is a GET if this one was a POST, otherwise the same again
    303         a GET, or a HEAD if this one was
    307, 308    the same request again, with its body

Whether the next address may be connected to is decided where it is connected to, for each hop anew. What is
decided here is what the next hop may know. To another origin (scheme, host, port) go neither the
signature nor the payload's own headers, except those of `HARMLESS`: an API key has a header of any name. A
chain that has left its origin gets them back nowhere, not even there. From https to http leads no way: what
was meant to be secret would be read on the wire.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import httpx

from mainspring.worker.builtin.failures import InvalidPayload, RequestFailed
from mainspring.worker.builtin.web_request import WebRequest, origin, read_url, shown
from mainspring.worker.signals import NotRetryable

MOST_REDIRECTS = 5
HARMLESS = frozenset({"accept", "accept-language", "content-language", "content-type", "user-agent"})
_REDIRECTS = (301, 302, 303, 307, 308)
_ABOUT_THE_BODY = frozenset({"content-type", "content-language", "content-encoding"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Hop:
    """One request: the first is the payload's, each later one the answer to a redirect."""

    method: str
    url: httpx.URL
    headers: Mapping[str, str]
    body: bytes
    at_home: bool = True
    """Whether no hop so far has left the payload's origin: only then is the request signed."""

    @classmethod
    def first(cls, wanted: WebRequest) -> Hop:
        return cls(method=wanted.method, url=wanted.url, headers=wanted.headers, body=wanted.body)

    def after(self, response: httpx.Response, expected: Collection[int]) -> Hop | None:
        """Where a response sends us; None if it is the answer itself."""
        location = response.headers.get("location")
        if response.status_code not in _REDIRECTS or response.status_code in expected or location is None:
            return None
        url = self._resolve(location)
        method, body = self._repeated(response.status_code)
        kept = self.headers if body is self.body else _without(self.headers, _ABOUT_THE_BODY)
        at_home = self.at_home and origin(url) == origin(self.url)
        headers = kept if at_home else {name: value for name, value in kept.items() if name in HARMLESS}
        return Hop(method=method, url=url, headers=headers, body=body, at_home=at_home)

    def _resolve(self, location: str) -> httpx.URL:
        try:
            joined = self.url.join(location)
        except (httpx.InvalidURL, ValueError) as error:
            raise RequestFailed(
                f"{shown(self.url)} redirects to something that is no URL: {error}"
            ) from error
        try:
            url = read_url("Location", str(joined))
        except InvalidPayload as refusal:
            raise NotRetryable(f"{shown(self.url)} redirects, and {refusal.field} {refusal.rule}") from None
        if self.url.scheme == "https" and url.scheme == "http":
            raise NotRetryable(f"{shown(self.url)} redirects from https to http, which is refused")
        return url

    def _repeated(self, status: int) -> tuple[str, bytes]:
        """Method and body of the next request."""
        if status == 303:
            return ("HEAD" if self.method == "HEAD" else "GET"), b""
        if status in (301, 302) and self.method == "POST":
            return "GET", b""
        return self.method, self.body


def _without(headers: Mapping[str, str], names: Collection[str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name not in names}
