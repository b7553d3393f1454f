"""Free ports below the range from which the kernel takes the ports of outgoing connections.

A port is free when asked and taken seconds later, when the server binds it. Inside the ephemeral range any
program's outgoing connection can take it in between; below that range only another listener could.
"""

from __future__ import annotations

import errno
import random
import socket
from collections.abc import Iterable
from pathlib import Path

from mainspring.schema.errors import LocalStackError

HOST = "127.0.0.1"
HIGHEST = 65535
_LOWEST = 15000
_DEFAULT_EPHEMERAL_START = 32768
_ATTEMPTS = 500


def is_free(port: int) -> bool:
    """Whether a server could listen on this port now."""
    return _obstacle(port) is None


def _obstacle(port: int) -> OSError | None:
    with socket.socket() as probe:
        # As the servers do: connections of the last one that linger in TIME_WAIT are no obstacle.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            return error
    return None


def free_port(avoid: Iterable[int] = ()) -> int:
    """A free port that is none of `avoid`, picked at random so that two stacks starting at once differ."""
    avoided = set(avoid)
    highest = max(_ephemeral_start(), _LOWEST + 1000)
    for _ in range(_ATTEMPTS):
        port = random.randrange(_LOWEST, highest)  # noqa: S311
        if port not in avoided and is_free(port):
            return port
    raise LocalStackError(
        f"no free port found between {_LOWEST} and {highest}", "stop some of the programs that listen there"
    )


def require_free(name: str, port: int) -> None:
    """Refuse a port that the user named and that cannot be had."""
    obstacle = _obstacle(port)
    if obstacle is None:
        return
    if obstacle.errno == errno.EADDRINUSE:
        raise LocalStackError(
            f"port {port} for {name} is taken", "stop the program that listens there or name another port"
        )
    raise LocalStackError(
        f"port {port} for {name} cannot be had ({obstacle.strerror})", "name another port"
    ) from obstacle


def _ephemeral_start() -> int:
    try:
        text = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii")
    except OSError:
        return _DEFAULT_EPHEMERAL_START
    return int(text.split()[0])
