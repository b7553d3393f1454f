"""The calls of etcd that Mainspring makes: their names on the wire, their messages, whether to repeat them.

`repeatable` says that doing it twice does no more than once, so a call whose answer was lost is simply made
again. A put or a delete is not: between the lost answer and the repetition somebody else may have written the
key, and would be overwritten. A grant is: a lease whose answer was lost is unknown to everybody and runs out.

LeaseKeepAlive is a stream in etcd's definition. On the wire a stream with one message each way is the same as
a plain call, and as a plain call it has a deadline and an outcome: one renewal, one answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from google.protobuf.message import Message

from mainspring.etcd import wire_pb2 as wire

Request = TypeVar("Request", bound=Message)
Response = TypeVar("Response", bound=Message)


@dataclass(frozen=True)
class Method(Generic[Request, Response]):
    """One call: its path, its request and its response."""

    path: str
    request: type[Request]
    response: type[Response]
    repeatable: bool = True

    @staticmethod
    def encode(request: Request) -> bytes:
        return request.SerializeToString()

    def decode(self, content: bytes) -> Response:
        return self.response.FromString(content)


RANGE = Method("/etcdserverpb.KV/Range", wire.RangeRequest, wire.RangeResponse)
PUT = Method("/etcdserverpb.KV/Put", wire.PutRequest, wire.PutResponse, repeatable=False)
DELETE = Method(
    "/etcdserverpb.KV/DeleteRange", wire.DeleteRangeRequest, wire.DeleteRangeResponse, repeatable=False
)
TRANSACT = Method("/etcdserverpb.KV/Txn", wire.TransactionRequest, wire.TransactionResponse, repeatable=False)
GRANT = Method("/etcdserverpb.Lease/LeaseGrant", wire.LeaseGrantRequest, wire.LeaseGrantResponse)
KEEP_ALIVE = Method(
    "/etcdserverpb.Lease/LeaseKeepAlive", wire.LeaseKeepAliveRequest, wire.LeaseKeepAliveResponse
)
TIME_TO_LIVE = Method(
    "/etcdserverpb.Lease/LeaseTimeToLive", wire.LeaseTimeToLiveRequest, wire.LeaseTimeToLiveResponse
)
REVOKE = Method("/etcdserverpb.Lease/LeaseRevoke", wire.LeaseRevokeRequest, wire.LeaseRevokeResponse)
WATCH = Method("/etcdserverpb.Watch/Watch", wire.WatchRequest, wire.WatchResponse)
AUTHENTICATE = Method("/etcdserverpb.Auth/Authenticate", wire.AuthenticateRequest, wire.AuthenticateResponse)
