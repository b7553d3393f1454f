"""The lease's calls from a thread of its own: blocking, one attempt each, to each member in turn."""

from __future__ import annotations

from datetime import timedelta

import grpc

from mainspring.etcd import wire_pb2 as wire
from mainspring.etcd.connections import Connector
from mainspring.etcd.failures import translate
from mainspring.etcd.methods import AUTHENTICATE, GRANT, KEEP_ALIVE, REVOKE, Method, Request, Response
from mainspring.etcd.session import Metadata, Session
from mainspring.etcd.values import Lease, granted, renewed, whole_seconds
from mainspring.schema.errors import EtcdRefused, EtcdUnavailable
from mainspring.settings import EtcdSettings


class LeaseCalls:
    """Connections of their own to the members, for one thread.

    Each call is one attempt, with the given seconds as its deadline. It raises EtcdUnavailable when the
    member does not answer: the next attempt goes to the next one. It raises EtcdRefused when etcd refuses,
    perhaps because a token ran out: the next attempt logs in anew.
    """

    def __init__(self, settings: EtcdSettings) -> None:
        connector = Connector(settings)
        self.members = len(settings.endpoints)
        self._channels = [(address, connector.open_blocking(address)) for address in settings.endpoints]
        self._current = connector.first()
        self._session = Session(settings.login)

    def close(self) -> None:
        for _, channel in self._channels:
            channel.close()

    def grant(self, ttl: timedelta, seconds: float) -> Lease:
        return granted(self._attempt(GRANT, wire.LeaseGrantRequest(ttl=whole_seconds(ttl)), seconds))

    def keep_alive(self, lease_id: int, seconds: float) -> timedelta:
        """How long the lease lasts from when this call was made. Raises LeaseLost when it is gone."""
        request = wire.LeaseKeepAliveRequest(id=lease_id)
        return renewed(lease_id, self._attempt(KEEP_ALIVE, request, seconds, lease_id))

    def revoke(self, lease_id: int, seconds: float) -> None:
        """End the lease. Raises LeaseLost when it is gone already."""
        self._attempt(REVOKE, wire.LeaseRevokeRequest(id=lease_id), seconds, lease_id)

    def _attempt(
        self, method: Method[Request, Response], request: Request, seconds: float, lease: int = 0
    ) -> Response:
        address, channel = self._channels[self._current]
        try:
            self._log_in(channel, address, seconds)
            return _send(channel, address, method, request, seconds, self._session.metadata(), lease)
        except EtcdUnavailable:
            self._current = (self._current + 1) % self.members
            raise
        except EtcdRefused as refused:
            if self._session.can_renew(refused):
                self._session.forget(self._session.metadata())
            raise

    def _log_in(self, channel: grpc.Channel, address: str, seconds: float) -> None:
        login = self._session.login_request()
        if login is None:
            return
        try:
            self._session.accept(_send(channel, address, AUTHENTICATE, login, seconds).token)
        except EtcdRefused as refused:
            self._session.accept_refusal(refused)


def _send(
    channel: grpc.Channel,
    address: str,
    method: Method[Request, Response],
    request: Request,
    seconds: float,
    metadata: Metadata = (),
    lease: int = 0,
) -> Response:
    send = channel.unary_unary(method.path, method.encode, method.decode)
    try:
        return send(request, timeout=seconds, metadata=metadata)
    except grpc.RpcError as error:
        raise translate(error, address, lease=lease) from error
