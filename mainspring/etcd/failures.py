"""The driver's errors turned into ours, once, by gRPC status and never by text.

etcd said no      the request reached etcd and was not executed: EtcdRefused, LeaseLost
etcd is full      RESOURCE_EXHAUSTED: not executed, and may be accepted in a moment
no answer         everything else: a broken connection, a deadline, no quorum. A change may have happened
"""

from __future__ import annotations

import grpc
from grpc import StatusCode

from mainspring.schema.errors import EtcdRefused, EtcdUnavailable, LeaseLost

_REFUSALS = frozenset(
    {
        StatusCode.INVALID_ARGUMENT,
        StatusCode.NOT_FOUND,
        StatusCode.ALREADY_EXISTS,
        StatusCode.PERMISSION_DENIED,
        StatusCode.FAILED_PRECONDITION,
        StatusCode.OUT_OF_RANGE,
        StatusCode.UNIMPLEMENTED,
        StatusCode.UNAUTHENTICATED,
    }
)


def translate(
    error: grpc.RpcError, address: str, *, changes: bool = False, lease: int = 0
) -> EtcdUnavailable | EtcdRefused | LeaseLost:
    """What a failed call at `address` means; `changes` says that doing it twice would matter."""
    status, details = error.code(), error.details() or "no details"
    if status is StatusCode.NOT_FOUND and lease:
        return LeaseLost(lease)
    if status in _REFUSALS:
        return EtcdRefused(status.name, details)
    executed = changes and status is not StatusCode.RESOURCE_EXHAUSTED
    return EtcdUnavailable(f"{address}: {details} ({status.name})", maybe_applied=executed)
