"""The life of one lease, step by step, for the thread that `LeaseKeeper` starts.

Renewed every third of its time to live. An attempt has a sixth of it, so that of three members one that hangs
costs half a second of three, and the lease is renewed by the next. When every member has failed, the attempts
become longer, up to half the time to live: an etcd that is merely slow is still heard.
"""

from __future__ import annotations

import math
import threading
import time
from contextlib import suppress
from datetime import timedelta

import structlog

from mainspring.clock import Clock
from mainspring.etcd.lease_calls import LeaseCalls
from mainspring.etcd.values import Lease
from mainspring.schema.errors import EtcdRefused, EtcdUnavailable, LeaseLost

# A grant is written to disk by a quorum; a renewal is answered from the memory of etcd's leader.
GRANT_ATTEMPT_SECONDS = 2.0
GRANT_SECONDS = 6.0
REVOKE_ATTEMPT_SECONDS = 1.0
REVOKE_SECONDS = 2.0
# A refused connection fails in a millisecond: without a pause the thread would spin.
RETRY_SECONDS = 0.1

log = structlog.get_logger(__name__)


class Renewal:
    """`grant`, `keep` and `revoke` belong to the one thread; `stop` and `trusted_until` to anyone."""

    def __init__(self, calls: LeaseCalls, ttl: timedelta, clock: Clock) -> None:
        self._calls = calls
        self._ttl = ttl
        self._clock = clock
        self._stopping = threading.Event()
        self._believed_until = -math.inf
        self._failures = 0

    @property
    def trusted_until(self) -> float:
        """Read through the stop: a renewal answered just then must not bring trust back."""
        return -math.inf if self._stopping.is_set() else self._believed_until

    def stop(self) -> None:
        """Make `grant` or `keep` return; trust ends now, for nobody renews any more."""
        self._stopping.set()

    def grant(self) -> Lease:
        """Ask the members in turn, for at most `GRANT_SECONDS` and the attempt then under way."""
        deadline = self._clock.monotonic() + GRANT_SECONDS
        while True:
            sent = self._clock.monotonic()
            try:
                lease = self._calls.grant(self._ttl, GRANT_ATTEMPT_SECONDS)
            except EtcdUnavailable:
                if self._stopping.wait(RETRY_SECONDS) or self._clock.monotonic() >= deadline:
                    raise
            else:
                self._trust(sent, lease.ttl)
                return lease

    def keep(self, lease: Lease) -> None:
        """Renew until told to stop. Raises LeaseLost when etcd says that the lease is gone."""
        pause = 0.0  # the grant may have taken seconds
        while not self._stopping.wait(pause):
            pause = self._renew(lease)

    def revoke(self, lease: Lease) -> None:
        """End the lease now if a member answers within `REVOKE_SECONDS`; if not, it runs out by itself."""
        deadline = self._clock.monotonic() + REVOKE_SECONDS
        while self._clock.monotonic() < deadline:
            try:
                with suppress(LeaseLost):
                    self._calls.revoke(lease.id, REVOKE_ATTEMPT_SECONDS)
            except (EtcdUnavailable, EtcdRefused):
                time.sleep(RETRY_SECONDS)
            else:
                return
        log.warning("lease_not_revoked", lease=lease.id)

    def _renew(self, lease: Lease) -> float:
        """One attempt; answers how long to wait before the next."""
        sent = self._clock.monotonic()
        try:
            life = self._calls.keep_alive(lease.id, self._attempt_seconds())
        except (EtcdUnavailable, EtcdRefused) as error:
            self._failed(lease, error)
            return RETRY_SECONDS
        self._trust(sent, life)
        self._succeeded(lease)
        return max(0.0, sent + self._ttl.total_seconds() / 3 - self._clock.monotonic())

    def _attempt_seconds(self) -> float:
        """One sixth of the time to live; two and three when all members have failed once and twice."""
        rounds = self._failures // self._calls.members
        return self._ttl.total_seconds() * min(1 + rounds, 3) / 6

    def _trust(self, sent: float, life: timedelta) -> None:
        """Counted from when the call was sent: etcd began to count later. A sixth is left as a margin."""
        self._believed_until = sent + life.total_seconds() * 5 / 6

    def _failed(self, lease: Lease, error: EtcdUnavailable | EtcdRefused) -> None:
        self._failures += 1
        if self._failures == 1:
            log.warning("lease_renewal_failing", lease=lease.id, reason=error.reason)

    def _succeeded(self, lease: Lease) -> None:
        if self._failures:
            log.info("lease_renewal_resumed", lease=lease.id, failures=self._failures)
        self._failures = 0
