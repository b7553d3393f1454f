"""Where the API is, and who asks.

MAINSPRING_URL             default http://127.0.0.1:8080
MAINSPRING_API_KEY*        ms_…; not needed where the API runs with MAINSPRING_API_AUTH=off
MAINSPRING_API_CA          a file of certificate authorities to trust instead of the system's

* or from a file, with _FILE appended to the name
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from mainspring.schema.errors import InvalidSetting
from mainspring.settings import PREFIX, Environment

DEFAULT_URL = "http://127.0.0.1:8080"
URL = f"{PREFIX}URL"
_API_KEY = f"{PREFIX}API_KEY"
_CA = f"{PREFIX}API_CA"


@dataclass(frozen=True, kw_only=True)
class ClientSettings:
    """Everything a client must be told."""

    url: str = DEFAULT_URL
    api_key: str | None = field(default=None, repr=False, metadata={"secret": True})
    ca: Path | None = None

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.url)
            readable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:
            readable = None
        if not readable:
            raise InvalidSetting(URL, f"{self.url!r} is not http://host:port or https://host:port")
        if parts.query or parts.fragment or parts.username:
            raise InvalidSetting(URL, "is an address alone; the key goes into MAINSPRING_API_KEY")
        if self.api_key is not None and not (self.api_key.isascii() and self.api_key.isprintable()):
            raise InvalidSetting(_API_KEY, "is not a key: it has characters that no key has")

    @classmethod
    def from_environment(
        cls,
        variables: Mapping[str, str],
        *,
        url: str | None = None,
        api_key: str | None = None,
        ca: Path | None = None,
    ) -> Self:
        """From the variables; what is given goes first."""
        environment = Environment(variables)
        return cls(
            url=(url or environment.text("URL") or DEFAULT_URL).rstrip("/"),
            api_key=api_key or environment.secret("API_KEY"),
            ca=ca or environment.file("API_CA"),
        )

    def verify(self) -> ssl.SSLContext | bool:
        """What httpx takes as `verify`."""
        if self.ca is None:
            return True
        try:
            return ssl.create_default_context(cafile=self.ca)
        except (ssl.SSLError, OSError) as error:
            raise InvalidSetting(_CA, f"{self.ca} cannot be used: {error}") from error
