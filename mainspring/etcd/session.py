"""The login of one client: a token, fetched when it is first needed and again when etcd no longer takes it.

A token runs out after five idle minutes, is forgotten by a member that restarts, and is outdated by any
change to users and roles. etcd says so with UNAUTHENTICATED or INVALID_ARGUMENT, by which it also refuses
requests that are really wrong. Either way nothing was executed, so the answer to both is to log in anew and
ask once more: what is refused again is refused.
"""

from __future__ import annotations

from typing import TypeAlias

from mainspring.etcd import wire_pb2 as wire
from mainspring.schema.errors import EtcdRefused
from mainspring.settings import Credentials

Metadata: TypeAlias = tuple[tuple[str, str], ...]

_TOKEN_REFUSALS = frozenset({"UNAUTHENTICATED", "INVALID_ARGUMENT"})
_LOGIN_NOT_ENABLED = "FAILED_PRECONDITION"


class Session:
    """The state of a login; it sends nothing itself, so that it serves asyncio and threads alike."""

    def __init__(self, login: Credentials | None) -> None:
        self._login = login
        self._token: str | None = None

    def login_request(self) -> wire.AuthenticateRequest | None:
        """What to ask for before anything else; None when there is a token, or none is needed."""
        if self._login is None or self._token is not None:
            return None
        return wire.AuthenticateRequest(name=self._login.username, password=self._login.password)

    def accept(self, token: str) -> None:
        self._token = token

    def accept_refusal(self, refused: EtcdRefused) -> None:
        """An etcd whose authentication is not (yet) enabled needs no token; any other refusal stands."""
        if refused.status != _LOGIN_NOT_ENABLED:
            raise refused
        self._token = ""

    def metadata(self) -> Metadata:
        return (("token", self._token),) if self._token else ()

    def can_renew(self, refused: EtcdRefused) -> bool:
        """Whether a fresh token could change this answer."""
        return self._login is not None and refused.status in _TOKEN_REFUSALS

    def forget(self, used: Metadata) -> None:
        """Log in anew before the next request, unless somebody else has since `used` was sent."""
        if self.metadata() == used:
            self._token = None
