"""How much of what may run at once in this process, and what rests because it only fails: pure.

**Limits** are per worker process: a handler's `max_concurrency`, a tenant's `maximum_running`. What is
over a limit becomes a timer with the same attempt, so it holds up neither the partition nor anybody else.
It comes back when by the pace of the last minutes it can be expected to find room.

**Suspects** are runs that were lost twice or more: one of them may be killing its workers, and whoever runs
beside it is lost with it. Those lost twice run a few at a time, those lost more often one at a time; so a
killer is alone among its like before the fifth loss, and no innocent reaches that. Lost once is no suspicion:
when a machine with hundreds of long runs dies, they must not wait for each other.

**The breaker** watches each tenant's use of each handler. Over nine in ten failing for five minutes, it
lets one run a minute through and puts off the others, which spends none of their retries; the first
success closes it, and nothing else does: of so few runs the window alone could say nothing.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from mainspring.clock import Clock
from mainspring.schema.messages import Message

WINDOW_SECONDS = 300.0
PROBE_SECONDS = 60.0
FEWEST = 10
"""Of fewer runs nothing can be said."""

SUSPECT_LOSSES = 2
FEW_SUSPECTS = 10
"""How many that were lost twice run at once."""
SUSPECT_SECONDS = 5.0

_SLICE_SECONDS = 10.0
_FAILING = 0.9
_SHORTEST_SECONDS = 1.0
_LONGEST_SECONDS = 60.0


@dataclass(slots=True)
class _Trouble:
    """What became of one tenant's runs of one handler since the first that failed."""

    began: float
    slices: deque[list[float]] = field(default_factory=deque)  # [start, succeeded, failed]
    probed: float | None = None
    opened: bool = False

    def count(self, now: float, *, failed: bool) -> None:
        self._slide(now)
        if not self.slices:
            self.began = now
        if not self.slices or now - self.slices[-1][0] > _SLICE_SECONDS:
            self.slices.append([now, 0, 0])
        self.slices[-1][2 if failed else 1] += 1

    def is_open(self, now: float) -> bool:
        if not self.opened:
            self._slide(now)
            succeeded = sum(each[1] for each in self.slices)
            failed = sum(each[2] for each in self.slices)
            total = succeeded + failed
            enough = total >= FEWEST and failed > _FAILING * total
            self.opened = enough and now - self.began >= WINDOW_SECONDS
        return self.opened

    def _slide(self, now: float) -> None:
        while self.slices and now - self.slices[0][0] > WINDOW_SECONDS:
            self.slices.popleft()


class Limits:
    """Admits runs, or says how long to put them off."""

    def __init__(self, handlers: Mapping[str, int], clock: Clock) -> None:
        self._handlers = handlers
        self._clock = clock
        self._running: Counter[str] = Counter()
        self._running_of: Counter[int] = Counter()
        self._seconds: dict[str, float] = {}
        self._trouble: dict[tuple[int, str], _Trouble] = {}
        self._put_off: Counter[str | int] = Counter()
        self._suspects: Counter[bool] = Counter()  # by whether they were lost more than twice
        self._tenants: Mapping[int, int] = {}

    @property
    def tenants(self) -> Mapping[int, int]:
        """How many runs of a tenant may go on at once, of those that have a limit."""
        return self._tenants

    @tenants.setter
    def tenants(self, limits: Mapping[int, int]) -> None:
        self._tenants = limits
        # Nobody counts for a tenant without a limit, so what was counted before would stay for ever.
        self._running_of = Counter(
            {each: count for each, count in self._running_of.items() if each in limits}
        )

    @property
    def _nobody_is_limited(self) -> bool:
        """As a rule; asked twice for every run."""
        return not (self._handlers or self._tenants or self._trouble)

    def begin(self) -> None:
        """A claim begins: what it puts off is spread over the time that its predecessors will take."""
        self._put_off.clear()

    def admit(self, message: Message) -> timedelta | None:
        """None: it may run, and counts from now on; else how long to put it off."""
        if self._nobody_is_limited and message.losses < SUSPECT_LOSSES:
            return None
        if self._is_too_suspicious(message):
            return timedelta(seconds=SUSPECT_SECONDS)
        handler, tenant_id = message.job.handler, message.job.tenant_id
        handler_limit, tenant_limit = self._handlers.get(handler), self.tenants.get(tenant_id)
        if self._trouble and self._rests(tenant_id, handler):
            return timedelta(seconds=PROBE_SECONDS)
        if handler_limit is not None and self._running[handler] >= handler_limit:
            return self._delay(handler, handler, handler_limit)
        if tenant_limit is not None and self._running_of[tenant_id] >= tenant_limit:
            return self._delay(tenant_id, handler, tenant_limit)
        self.hold(message)
        return None

    def hold(self, message: Message) -> None:
        """It counts from now on, whatever the limits say: it was admitted before."""
        if message.job.handler in self._handlers:
            self._running[message.job.handler] += 1
        if message.job.tenant_id in self.tenants:
            self._running_of[message.job.tenant_id] += 1
        if message.losses >= SUSPECT_LOSSES:
            self._suspects[message.losses > SUSPECT_LOSSES] += 1

    def withdraw(self, message: Message) -> None:
        """It was admitted and does not run after all."""
        if message.losses >= SUSPECT_LOSSES:
            self._suspects[message.losses > SUSPECT_LOSSES] -= 1
        if self._nobody_is_limited:
            return
        handler, tenant_id = message.job.handler, message.job.tenant_id
        if self._running.get(handler):
            self._running[handler] -= 1
        if self._running_of.get(tenant_id):
            self._running_of[tenant_id] -= 1

    def release(self, message: Message, seconds: float, *, failed: bool) -> None:
        """It is over, after so long."""
        if self._nobody_is_limited and not failed and message.losses < SUSPECT_LOSSES:
            return
        self.withdraw(message)
        handler, tenant_id = message.job.handler, message.job.tenant_id
        if handler in self._handlers or tenant_id in self.tenants:
            self._seconds[handler] = 0.8 * self._seconds.get(handler, seconds) + 0.2 * seconds
        if failed or (tenant_id, handler) in self._trouble:
            self._watch(tenant_id, handler, failed=failed)

    def open_breakers(self) -> list[tuple[int, str]]:
        """Which tenant and handler rest now."""
        now = self._clock.monotonic()
        return [key for key, trouble in self._trouble.items() if trouble.is_open(now)]

    def _is_too_suspicious(self, message: Message) -> bool:
        if message.losses < SUSPECT_LOSSES:
            return False
        if message.losses > SUSPECT_LOSSES:
            return self._suspects[True] >= 1
        return self._suspects[False] >= FEW_SUSPECTS

    def _rests(self, tenant_id: int, handler: str) -> bool:
        trouble, now = self._trouble.get((tenant_id, handler)), self._clock.monotonic()
        if trouble is None or not trouble.is_open(now):
            return False
        if trouble.probed is None or now - trouble.probed >= PROBE_SECONDS:
            trouble.probed = now
            return False
        return True

    def _watch(self, tenant_id: int, handler: str, *, failed: bool) -> None:
        now = self._clock.monotonic()
        trouble = self._trouble.get((tenant_id, handler))
        if trouble is None:
            trouble = self._trouble[tenant_id, handler] = _Trouble(now)
        if not failed and trouble.is_open(now):
            del self._trouble[tenant_id, handler]
            return
        trouble.count(now, failed=failed)
        if not any(each[2] for each in trouble.slices):
            del self._trouble[tenant_id, handler]

    def _delay(self, who: str | int, handler: str, limit: int) -> timedelta:
        self._put_off[who] += 1
        seconds = self._put_off[who] / limit * self._seconds.get(handler, _SHORTEST_SECONDS)
        return timedelta(seconds=min(max(seconds, _SHORTEST_SECONDS), _LONGEST_SECONDS))
