"""How long who waits: the pauses between attempts and the deadlines of renewals."""

from __future__ import annotations

from datetime import timedelta
from itertools import islice

import pytest

from mainspring.clock import SystemClock
from mainspring.etcd.caller import pauses
from mainspring.etcd.lease_calls import LeaseCalls
from mainspring.etcd.renewal import Renewal
from mainspring.settings import EtcdSettings


def test_every_member_is_asked_before_anybody_waits() -> None:
    waits = list(islice(pauses(3), 9))

    assert [wait == 0 for wait in waits] == [True, True, False] * 3


def test_pauses_grow_and_stay_bounded() -> None:
    waits = list(islice(pauses(1), 40))

    assert 0 < waits[0] <= 0.05
    assert max(waits) <= 0.5
    assert min(waits[10:]) >= 0.25


@pytest.mark.parametrize(
    ("failures", "seconds"), [(0, 0.5), (1, 0.5), (2, 0.5), (3, 1.0), (6, 1.5), (9, 1.5), (10**6, 1.5)]
)
def test_renewals_become_more_patient_when_all_members_failed(failures: int, seconds: float) -> None:
    calls = LeaseCalls(EtcdSettings(endpoints=("a:1", "b:1", "c:1")))
    renewal = Renewal(calls, timedelta(seconds=3), SystemClock())
    renewal._failures = failures

    assert renewal._attempt_seconds() == seconds
    calls.close()


def test_trust_ends_with_the_stop_even_if_an_answer_comes_just_then() -> None:
    calls = LeaseCalls(EtcdSettings(endpoints=("a:1",)))
    renewal = Renewal(calls, timedelta(seconds=3), SystemClock())
    renewal._trust(100.0, timedelta(seconds=3))
    assert renewal.trusted_until == 102.5

    renewal.stop()
    renewal._trust(200.0, timedelta(seconds=3))

    assert renewal.trusted_until == float("-inf")
    calls.close()
