"""How many requests a tenant may make: a token bucket per tenant and process.

A bucket holds one second's worth, so a tenant that was quiet may make that many at once. Each process
counts for itself: with three of them behind a balancer a tenant has three times its rate. That keeps a
request from costing a write, and a limit is there to protect a process from a tenant, not to bill it.
"""

from __future__ import annotations

import math

from mainspring.api.problems import RateLimited
from mainspring.clock import Clock


class RateLimits:
    """The buckets of one process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._buckets: dict[int, tuple[float, float]] = {}

    def take(self, tenant_id: int, per_second: int | None) -> None:
        """Take a token, or refuse with the whole seconds until there is one."""
        if per_second is None:
            self._buckets.pop(tenant_id, None)
            return
        now = self._clock.monotonic()
        tokens, then = self._buckets.get(tenant_id, (float(per_second), now))
        tokens = min(float(per_second), tokens + (now - then) * per_second)
        if tokens < 1:
            self._buckets[tenant_id] = tokens, now
            raise RateLimited(math.ceil((1 - tokens) / per_second))
        self._buckets[tenant_id] = tokens - 1, now
