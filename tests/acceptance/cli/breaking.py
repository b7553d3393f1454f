"""A network that loses answers: what a request did is done, and the client is not told."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit


class Losing:
    """Forwards each connection; the first answers of some are read, and the connection is cut instead."""

    def __init__(self, target: str, losses: int) -> None:
        parts = urlsplit(target)
        self._target = (parts.hostname, parts.port)
        self._losses = losses
        self._server = socket.create_server(("127.0.0.1", 0))
        self.lost = 0
        self.url = f"http://127.0.0.1:{self._server.getsockname()[1]}"

    @classmethod
    @contextmanager
    def between(cls, target: str, losses: int) -> Iterator[Losing]:
        losing = cls(target, losses)
        accepting = threading.Thread(target=losing._accept, daemon=True)
        accepting.start()
        try:
            yield losing
        finally:
            losing._server.shutdown(socket.SHUT_RDWR)
            losing._server.close()
            accepting.join()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._server.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, socket.create_connection(self._target) as server:
            upward = threading.Thread(target=_copy, args=(client, server), daemon=True)
            upward.start()
            with suppress(OSError):
                while answer := server.recv(65_536):
                    if self.lost < self._losses:
                        self.lost += 1
                        break
                    client.sendall(answer)
                client.shutdown(socket.SHUT_RDWR)
            upward.join()


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while part := source.recv(65_536):
            sink.sendall(part)
        sink.shutdown(socket.SHUT_WR)
