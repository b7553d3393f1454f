"""How a connection to one member of etcd is made, for the asyncio client and the lease's thread alike.

One channel per endpoint, and the choice between them is ours. gRPC could balance over a list of addresses,
but such a list takes literal addresses only, and under TLS checks every member against the same name. With a
channel each, host names, IPv4 and IPv6 may be mixed, certificates are checked against the endpoint as it was
written, and a member that hangs can be left after a deadline of our choosing.
"""

from __future__ import annotations

import random
import ssl
from pathlib import Path

import grpc
from grpc import aio

from mainspring.schema.errors import InvalidSetting
from mainspring.settings import PREFIX, EtcdSettings

# etcd drops clients that ping more often than every 5 s, or without a call under way.
_PING_AFTER_MILLISECONDS = 6_000
_PING_ANSWER_MILLISECONDS = 3_000

_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.keepalive_time_ms", _PING_AFTER_MILLISECONDS),
    ("grpc.keepalive_timeout_ms", _PING_ANSWER_MILLISECONDS),
    # gRPC 1.85 waits this long for the answer, by default a minute, whatever keepalive_timeout says.
    ("grpc.http2.ping_timeout_ms", _PING_ANSWER_MILLISECONDS),
    ("grpc.keepalive_permit_without_calls", 0),
    # Otherwise a watch, which sends nothing for hours, would be pinged twice and never again.
    ("grpc.http2.max_pings_without_data", 0),
    # A member that comes back is found within a second; gRPC's own pause grows to two minutes.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # This is also how long one attempt to connect may take; by default twenty seconds.
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.dns_min_time_between_resolutions_ms", 2_000),
    # Channels of one process with equal options share a connection; the lease must have its own.
    ("grpc.use_local_subchannel_pool", 1),
    # Meant for web traffic; what coordinates the cluster does not leave by that door.
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_receive_message_length", -1),
)


class Connector:
    """Opens channels with the settings' TLS."""

    def __init__(self, settings: EtcdSettings) -> None:
        self._members = len(settings.endpoints)
        self._credentials = _credentials(settings) if settings.tls_enabled else None

    def first(self) -> int:
        """The member to begin with: many processes with one list should not all begin at its head."""
        return random.randrange(self._members)  # noqa: S311

    def open(self, address: str) -> aio.Channel:
        """A channel of the running event loop."""
        if self._credentials is None:
            return aio.insecure_channel(_target(address), options=_OPTIONS)
        return aio.secure_channel(_target(address), self._credentials, options=_OPTIONS)

    def open_blocking(self, address: str) -> grpc.Channel:
        """A channel for a thread."""
        if self._credentials is None:
            return grpc.insecure_channel(_target(address), options=_OPTIONS)
        return grpc.secure_channel(_target(address), self._credentials, options=_OPTIONS)


def _target(address: str) -> str:
    """The resolver of names takes literal addresses too, `[::1]:2379` as well as `10.0.0.7:2379`."""
    return f"dns:///{address}"


def _credentials(settings: EtcdSettings) -> grpc.ChannelCredentials:
    tls = settings.tls
    return grpc.ssl_channel_credentials(
        root_certificates=_content("CA", tls.ca or _system_authorities()),
        private_key=_content("KEY", tls.key),
        certificate_chain=_content("CERT", tls.certificate),
    )


def _system_authorities() -> Path | None:
    """The system's bundle; where there is none, gRPC falls back to the one it brings along."""
    bundle = ssl.get_default_verify_paths().cafile
    return Path(bundle) if bundle else None


def _content(part: str, path: Path | None) -> bytes | None:
    if path is None:
        return None
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidSetting(
            f"{PREFIX}ETCD_TLS_{part}", f"{path} cannot be read ({error.strerror})"
        ) from error
