"""Another program that has a port."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from mainspring.local.ports import HOST, free_port


@contextmanager
def listening(port: int | None = None) -> Iterator[int]:
    """Listen on this port, or on a free one."""
    with socket.socket() as listener:
        # As servers do: connections that linger in TIME_WAIT are no obstacle.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((HOST, port or free_port()))
        listener.listen()
        yield listener.getsockname()[1]
