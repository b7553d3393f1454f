"""What an operator decides about the built-in `http` handler.

MAINSPRING_HTTP_SIGNING_SECRET*   signs every request; without it requests are not signed
MAINSPRING_HTTP_ALLOW_PRIVATE     addresses beside the public ones: networks (10.1.0.0/16,fd12::/48), or all
MAINSPRING_HTTP_TLS_CA            file with the authorities to trust (default: the system's)

* or from a file, with _FILE appended to the name
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_network
from pathlib import Path
from typing import Self

from mainspring.schema.errors import InvalidSetting
from mainspring.settings import PREFIX, Environment
from mainspring.worker.builtin.addresses import EVERYTHING, Network

SIGNING_SECRET = "MAINSPRING_HTTP_SIGNING_SECRET"  # noqa: S105  (the name of a variable)
SIGNING_SECRET_FILE = "MAINSPRING_HTTP_SIGNING_SECRET_FILE"  # noqa: S105
ALLOW_PRIVATE = "MAINSPRING_HTTP_ALLOW_PRIVATE"
TLS_CA = "MAINSPRING_HTTP_TLS_CA"

ALL = "all"
SHORTEST_SECRET = 16


@dataclass(frozen=True, kw_only=True)
class HttpHandlerSettings:
    """Whom the handler may talk to, and how it proves who it is."""

    signing_secret: str | None = field(default=None, repr=False, metadata={"secret": True})
    allow_private: tuple[Network, ...] = ()
    tls_ca: Path | None = None

    def __post_init__(self) -> None:
        if self.signing_secret is not None and len(self.signing_secret) < SHORTEST_SECRET:
            raise InvalidSetting(SIGNING_SECRET, f"is shorter than {SHORTEST_SECRET} characters")

    @classmethod
    def from_environment(cls, variables: Mapping[str, str]) -> Self:
        environment = Environment(variables)
        return cls(
            signing_secret=environment.secret(SIGNING_SECRET.removeprefix(PREFIX)),
            allow_private=_read_networks(environment.text(ALLOW_PRIVATE.removeprefix(PREFIX))),
            tls_ca=environment.file(TLS_CA.removeprefix(PREFIX)),
        )

    def ssl(self) -> ssl.SSLContext:
        """Checks certificate and name; reads the authorities, so it is made once."""
        try:
            return ssl.create_default_context(cafile=self.tls_ca)
        except ssl.SSLError as error:
            raise InvalidSetting(TLS_CA, f"{self.tls_ca} holds no certificates") from error


def _read_networks(text: str | None) -> tuple[Network, ...]:
    if text is None:
        return ()
    if text.strip() == ALL:
        return EVERYTHING
    return tuple(_read_network(part.strip()) for part in text.split(","))


def _read_network(text: str) -> Network:
    try:
        return ip_network(text)
    except ValueError as error:
        rule = f"{text!r} is neither {ALL} nor a network such as 10.1.0.0/16 ({error})"
        raise InvalidSetting(ALLOW_PRIVATE, rule) from error
