"""Which status means what."""

from __future__ import annotations

import pytest
from grpc import StatusCode, aio

from mainspring.etcd.failures import translate
from mainspring.schema.errors import EtcdRefused, EtcdUnavailable, LeaseLost

UNANSWERED = {
    StatusCode.ABORTED,
    StatusCode.CANCELLED,
    StatusCode.DATA_LOSS,
    StatusCode.DEADLINE_EXCEEDED,
    StatusCode.INTERNAL,
    StatusCode.RESOURCE_EXHAUSTED,
    StatusCode.UNAVAILABLE,
    StatusCode.UNKNOWN,
}
REFUSED = set(StatusCode) - UNANSWERED - {StatusCode.OK}


def failure(status: StatusCode) -> aio.AioRpcError:
    return aio.AioRpcError(status, aio.Metadata(), aio.Metadata(), details="why")


@pytest.mark.parametrize("status", sorted(REFUSED, key=str))
def test_a_refusal_carries_its_status_and_reason(status: StatusCode) -> None:
    error = translate(failure(status), "etcd:2379", changes=True)

    assert isinstance(error, EtcdRefused)
    assert (error.status, error.reason) == (status.name, "why")


@pytest.mark.parametrize("status", sorted(UNANSWERED, key=str))
def test_whatever_is_no_refusal_may_have_happened(status: StatusCode) -> None:
    change = translate(failure(status), "etcd:2379", changes=True)
    reading = translate(failure(status), "etcd:2379")

    assert isinstance(change, EtcdUnavailable)
    assert isinstance(reading, EtcdUnavailable)
    # etcd says itself that it took nothing when it has no room.
    assert change.maybe_applied is (status is not StatusCode.RESOURCE_EXHAUSTED)
    assert not reading.maybe_applied
    assert "etcd:2379" in str(change)


def test_not_found_is_the_lease_where_one_was_named() -> None:
    error = translate(failure(StatusCode.NOT_FOUND), "etcd:2379", lease=7)

    assert isinstance(error, LeaseLost)
    assert error.lease_id == 7
