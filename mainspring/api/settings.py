"""The API's own settings.

    MAINSPRING_API_ADDRESS        host:port to listen on (default 127.0.0.1:8080); port 0 is any free one
    MAINSPRING_API_TLS_CERT, _KEY files of the server's certificate and key; both or neither
    MAINSPRING_API_AUTH           keys (the default), or off: only where the address is loopback
    MAINSPRING_API_METRICS        loopback (the default: /metrics only where the address is loopback) or open
    MAINSPRING_API_BODY_BYTES     the largest body of a request, and line of a batch (default 2,000,000)
    MAINSPRING_API_CONNECTIONS    connections to Postgres (default 10)
    MAINSPRING_API_GRACE_SECONDS  how long a stop waits for requests under way (default 30)

It needs Postgres and nothing else: Kafka and etcd are the schedulers' and workers'.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from mainspring.schema.errors import InvalidSetting
from mainspring.schema.sharding import MAXIMUM_SHARDS
from mainspring.serving import is_loopback, parse_address
from mainspring.settings import PREFIX, Environment, LogSettings, PostgresSettings

DEFAULT_ADDRESS = "127.0.0.1:8080"
SETTING = f"{PREFIX}API_ADDRESS"


@dataclass(frozen=True, kw_only=True)
class ApiSettings:
    """Everything an API process was told."""

    postgres: PostgresSettings
    log: LogSettings = field(default_factory=LogSettings)
    shards: int | None = None
    address: str = DEFAULT_ADDRESS
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    auth: str = "keys"
    metrics: str = "loopback"
    body_bytes: int = 2_000_000
    connections: int = 10
    grace_seconds: int = 30

    def __post_init__(self) -> None:
        parse_address(self.address, SETTING)
        if self.auth == "off" and not self.is_loopback:
            raise InvalidSetting(
                f"{PREFIX}API_AUTH",
                f"is off, which only a loopback address may be, and {self.address} is none",
            )
        if (self.tls_certificate is None) != (self.tls_key is None):
            missing = "KEY" if self.tls_key is None else "CERT"
            raise InvalidSetting(f"{PREFIX}API_TLS_{missing}", "TLS needs both _TLS_CERT and _TLS_KEY")

    @classmethod
    def from_environment(cls, variables: Mapping[str, str], *, address: str | None = None) -> Self:
        """Every refusal names the variable and the rule."""
        environment = Environment(variables)
        return cls(
            postgres=PostgresSettings.from_environment(variables),
            log=LogSettings.from_environment(variables),
            shards=environment.integer("SHARDS", 1, MAXIMUM_SHARDS),
            address=address or environment.text("API_ADDRESS") or cls.address,
            tls_certificate=environment.file("API_TLS_CERT"),
            tls_key=environment.file("API_TLS_KEY"),
            auth=environment.choice("API_AUTH", ("keys", "off")) or cls.auth,
            metrics=environment.choice("API_METRICS", ("loopback", "open")) or cls.metrics,
            body_bytes=environment.integer("API_BODY_BYTES", 1000, 100_000_000) or cls.body_bytes,
            connections=environment.integer("API_CONNECTIONS", 2, 1000) or cls.connections,
            grace_seconds=_or(environment.integer("API_GRACE_SECONDS", 0, 3600), cls.grace_seconds),
        )

    @property
    def is_loopback(self) -> bool:
        """Whether nobody from another machine can connect."""
        return is_loopback(parse_address(self.address, SETTING)[0])


def _or(value: int | None, default: int) -> int:
    return default if value is None else value
