"""Settings: read once from `MAINSPRING_…` variables, validated, frozen, printed with secrets masked.

Each part of the stack has its own object, so that a service is handed the narrowest piece it needs;
`Settings` is the whole of one process. Any secret `MAINSPRING_X` may come from a file named by
`MAINSPRING_X_FILE` instead, the way orchestrators mount them. An empty variable counts as not set.

    MAINSPRING_POSTGRES_DSN*              postgresql://user@host:5432/database
    MAINSPRING_POSTGRES_PASSWORD*         overrides the one in the DSN
    MAINSPRING_POSTGRES_TLS               disable, prefer, require, verify-ca or verify-full
                                          (default: what the DSN says)
    MAINSPRING_POSTGRES_TLS_CA, _CERT, _KEY
    MAINSPRING_KAFKA                      bootstrap brokers: host:port,host:port
    MAINSPRING_KAFKA_TLS                  true or false (default: true when a TLS file is given)
    MAINSPRING_KAFKA_TLS_CA, _CERT, _KEY
    MAINSPRING_KAFKA_USERNAME, _PASSWORD*
    MAINSPRING_KAFKA_SASL                 PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512 (the default)
    MAINSPRING_ETCD                       endpoints: host:port,host:port
    MAINSPRING_ETCD_TLS, _TLS_CA, _TLS_CERT, _TLS_KEY, _USERNAME, _PASSWORD*
    MAINSPRING_SHARDS                     the number this process expects; default: whatever the cluster has
    MAINSPRING_LOG_LEVEL                  debug, info, warning or error (default info)
    MAINSPRING_LOG_FORMAT                 auto, console or json (default auto: console on a terminal)

    * or from a file, with _FILE appended to the name
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, Self
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from mainspring.schema.errors import InvalidSetting
from mainspring.schema.sharding import MAXIMUM_SHARDS

PREFIX = "MAINSPRING_"
MASK = "***"

POSTGRES_TLS_MODES = ("disable", "prefer", "require", "verify-ca", "verify-full")
SASL_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
LOG_LEVELS = ("debug", "info", "warning", "error")
LOG_FORMATS = ("auto", "console", "json")

_ADDRESS = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):(?P<port>[0-9]{1,5})")


class Environment:
    """Reads typed values out of the variables; every refusal names the variable and the rule."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = variables

    def text(self, name: str) -> str | None:
        return self._variables.get(PREFIX + name) or None

    def secret(self, name: str) -> str | None:
        """The variable itself or the content of the file that `…_FILE` names, without its last line break."""
        direct, file = self.text(name), self.text(f"{name}_FILE")
        if file is None:
            return direct
        variable = f"{PREFIX}{name}_FILE"
        if direct is not None:
            raise InvalidSetting(variable, f"{PREFIX}{name} is set too; set only one of them")
        try:
            content = Path(file).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidSetting(variable, f"{file} cannot be read ({error})") from error
        if not content.strip():
            raise InvalidSetting(variable, f"{file} is empty")
        return content.removesuffix("\n").removesuffix("\r")

    def required(self, name: str, value: str | None) -> str:
        if value is None:
            raise InvalidSetting(PREFIX + name, "is required and not set")
        return value

    def choice(self, name: str, choices: tuple[str, ...], default: str | None = None) -> str | None:
        value = self.text(name)
        if value is None:
            return default
        if value not in choices:
            raise InvalidSetting(PREFIX + name, f"{value!r} is not one of {', '.join(choices)}")
        return value

    def flag(self, name: str, *, default: bool) -> bool:
        value = self.choice(name, ("true", "false"))
        return default if value is None else value == "true"

    def integer(self, name: str, low: int, high: int) -> int | None:
        value = self.text(name)
        if value is None:
            return None
        if not re.fullmatch(r"[0-9]{1,9}", value) or not low <= int(value) <= high:
            raise InvalidSetting(PREFIX + name, f"{value!r} is not a whole number in {low}–{high}")
        return int(value)

    def file(self, name: str) -> Path | None:
        value = self.text(name)
        if value is None:
            return None
        if not Path(value).is_file():
            raise InvalidSetting(PREFIX + name, f"{value} is not a file")
        return Path(value)

    def addresses(self, name: str) -> tuple[str, ...]:
        listed = [part.strip() for part in self.required(name, self.text(name)).split(",")]
        for address in listed:
            matched = _ADDRESS.fullmatch(address)
            if matched is None or not 1 <= int(matched["port"]) <= 65535:
                raise InvalidSetting(PREFIX + name, f"{address!r} is not host:port")
        return tuple(listed)


@dataclass(frozen=True, kw_only=True)
class TlsFiles:
    """Where the certificates lie; none of them means the system's authorities and no client certificate."""

    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None

    @classmethod
    def read(cls, environment: Environment, part: str) -> Self:
        files = cls(
            ca=environment.file(f"{part}_TLS_CA"),
            certificate=environment.file(f"{part}_TLS_CERT"),
            key=environment.file(f"{part}_TLS_KEY"),
        )
        if (files.certificate is None) != (files.key is None):
            missing = "KEY" if files.key is None else "CERT"
            raise InvalidSetting(
                f"{PREFIX}{part}_TLS_{missing}", "a client certificate needs both _TLS_CERT and _TLS_KEY"
            )
        return files

    def __bool__(self) -> bool:
        return any((self.ca, self.certificate, self.key))


@dataclass(frozen=True, kw_only=True)
class PostgresSettings:
    """How to reach Postgres."""

    dsn: str = field(repr=False)
    password: str | None = field(default=None, repr=False, metadata={"secret": True})
    tls_mode: str | None = None
    tls: TlsFiles = field(default_factory=TlsFiles)

    def __post_init__(self) -> None:
        name = f"{PREFIX}POSTGRES_DSN"
        try:
            parts = urlsplit(self.dsn)
        except ValueError as error:
            # The parser's message repeats the DSN, and with it the password.
            raise InvalidSetting(name, "is not a URL") from error
        if parts.scheme not in ("postgres", "postgresql"):
            raise InvalidSetting(name, "must start with postgresql://")
        if self.tls and self.tls_mode in (None, "disable", "prefer"):
            raise InvalidSetting(
                f"{PREFIX}POSTGRES_TLS",
                "TLS files need require, verify-ca or verify-full",
            )

    @classmethod
    def from_environment(cls, variables: Mapping[str, str]) -> Self:
        environment = Environment(variables)
        return cls(
            dsn=environment.required("POSTGRES_DSN", environment.secret("POSTGRES_DSN")),
            password=environment.secret("POSTGRES_PASSWORD"),
            tls_mode=environment.choice("POSTGRES_TLS", POSTGRES_TLS_MODES),
            tls=TlsFiles.read(environment, "POSTGRES"),
        )

    def ssl(self) -> ssl.SSLContext | Literal["prefer", False] | None:
        """What asyncpg takes as `ssl`; None leaves the decision to the DSN."""
        if self.tls_mode is None:
            return None
        if self.tls_mode == "prefer":
            return "prefer"
        if self.tls_mode == "disable":
            return False
        context = ssl.create_default_context(cafile=self.tls.ca)
        context.check_hostname = self.tls_mode == "verify-full"
        if self.tls_mode == "require":
            context.verify_mode = ssl.CERT_NONE
        if self.tls.certificate is not None:
            context.load_cert_chain(self.tls.certificate, self.tls.key)
        return context


@dataclass(frozen=True, kw_only=True)
class Credentials:
    """A user and a password for Kafka or etcd: both or neither."""

    username: str
    password: str = field(repr=False, metadata={"secret": True})

    @classmethod
    def read(cls, environment: Environment, part: str) -> Self | None:
        username, password = environment.text(f"{part}_USERNAME"), environment.secret(f"{part}_PASSWORD")
        if username is None and password is None:
            return None
        if username is None or password is None:
            missing = "USERNAME" if username is None else "PASSWORD"
            raise InvalidSetting(f"{PREFIX}{part}_{missing}", "a login needs both _USERNAME and _PASSWORD")
        return cls(username=username, password=password)


@dataclass(frozen=True, kw_only=True)
class KafkaSettings:
    """How to reach Kafka."""

    brokers: tuple[str, ...]
    tls_enabled: bool = False
    tls: TlsFiles = field(default_factory=TlsFiles)
    login: Credentials | None = None
    sasl: str = "SCRAM-SHA-512"

    @classmethod
    def from_environment(cls, variables: Mapping[str, str]) -> Self:
        environment = Environment(variables)
        tls = TlsFiles.read(environment, "KAFKA")
        return cls(
            brokers=environment.addresses("KAFKA"),
            tls_enabled=_tls_enabled(environment, "KAFKA", tls),
            tls=tls,
            login=Credentials.read(environment, "KAFKA"),
            sasl=environment.choice("KAFKA_SASL", SASL_MECHANISMS) or cls.sasl,
        )

    def librdkafka(self) -> dict[str, str]:
        """The connection part of a librdkafka configuration."""
        protocol = ("SASL_" if self.login else "") + ("SSL" if self.tls_enabled else "PLAINTEXT")
        configuration = {"bootstrap.servers": ",".join(self.brokers), "security.protocol": protocol}
        files = {
            "ssl.ca.location": self.tls.ca,
            "ssl.certificate.location": self.tls.certificate,
            "ssl.key.location": self.tls.key,
        }
        configuration |= {key: str(path) for key, path in files.items() if path is not None}
        if self.login:
            configuration |= {
                "sasl.mechanism": self.sasl,
                "sasl.username": self.login.username,
                "sasl.password": self.login.password,
            }
        return configuration


@dataclass(frozen=True, kw_only=True)
class EtcdSettings:
    """How to reach etcd."""

    endpoints: tuple[str, ...]
    tls_enabled: bool = False
    tls: TlsFiles = field(default_factory=TlsFiles)
    login: Credentials | None = None

    @classmethod
    def from_environment(cls, variables: Mapping[str, str]) -> Self:
        environment = Environment(variables)
        tls = TlsFiles.read(environment, "ETCD")
        return cls(
            endpoints=environment.addresses("ETCD"),
            tls_enabled=_tls_enabled(environment, "ETCD", tls),
            tls=tls,
            login=Credentials.read(environment, "ETCD"),
        )


@dataclass(frozen=True, kw_only=True)
class LogSettings:
    """How a process talks."""

    level: str = "info"
    format: str = "auto"

    @classmethod
    def from_environment(cls, variables: Mapping[str, str]) -> Self:
        environment = Environment(variables)
        return cls(
            level=environment.choice("LOG_LEVEL", LOG_LEVELS) or cls.level,
            format=environment.choice("LOG_FORMAT", LOG_FORMATS) or cls.format,
        )


@dataclass(frozen=True, kw_only=True)
class WorkerSettings:
    """Everything a worker was told; etcd is the schedulers'."""

    postgres: PostgresSettings
    kafka: KafkaSettings
    log: LogSettings = field(default_factory=LogSettings)
    shards: int | None = None

    @classmethod
    def from_environment(cls, variables: Mapping[str, str]) -> Self:
        return cls(**_common(variables))


@dataclass(frozen=True, kw_only=True)
class Settings(WorkerSettings):
    """Everything a scheduler was told."""

    etcd: EtcdSettings

    @classmethod
    def from_environment(cls, variables: Mapping[str, str]) -> Self:
        return cls(**_common(variables), etcd=EtcdSettings.from_environment(variables))


def _common(variables: Mapping[str, str]) -> dict[str, Any]:
    return {
        "postgres": PostgresSettings.from_environment(variables),
        "kafka": KafkaSettings.from_environment(variables),
        "log": LogSettings.from_environment(variables),
        "shards": Environment(variables).integer("SHARDS", 1, MAXIMUM_SHARDS),
    }


def describe(settings: object) -> dict[str, str]:
    """The settings as flat names and readable values, secrets masked: what a process prints at its start."""
    return dict(_flatten(settings, ""))


def masked_dsn(dsn: str) -> str:
    """The DSN without its password, wherever the password stands."""
    parts = urlsplit(dsn)
    network = parts.netloc
    login, at, host = network.rpartition("@")
    if ":" in login:
        network = f"{login.partition(':')[0]}:{MASK}{at}{host}"
    query = [(key, MASK if "password" in key else value) for key, value in parse_qsl(parts.query)]
    safe_query = urlencode(query, safe="*/", quote_via=quote)
    return urlunsplit((parts.scheme, network, parts.path, safe_query, parts.fragment))


def _tls_enabled(environment: Environment, part: str, tls: TlsFiles) -> bool:
    enabled = environment.flag(f"{part}_TLS", default=bool(tls))
    if tls and not enabled:
        raise InvalidSetting(f"{PREFIX}{part}_TLS", "is false, but TLS files are given")
    return enabled


def _flatten(settings: Any, prefix: str) -> Iterator[tuple[str, str]]:
    for each in fields(settings):
        value = getattr(settings, each.name)
        name = prefix + each.name
        if is_dataclass(value):
            yield from _flatten(value, f"{name}.")
        elif value is not None:
            yield name, _readable(each.name, value, secret=each.metadata.get("secret", False))


def _readable(name: str, value: object, *, secret: bool) -> str:
    if secret:
        return MASK
    if name == "dsn":
        return masked_dsn(str(value))
    if isinstance(value, tuple):
        return ",".join(str(item) for item in value)
    return str(value)
