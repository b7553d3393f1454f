"""`LeaseKeeper`: one lease, kept alive by a thread that a busy event loop cannot starve.

The package's page says what trust means and what each failure does to it; `renewal.py` has the steps.

The thread does nothing but renew, over connections of its own, with blocking calls. While these wait they do
not hold the interpreter, and once the answer is there the interpreter is theirs within its switch interval
(5 ms), whatever the event loop is doing. Only a single native call that holds the interpreter for seconds
could keep the thread waiting; then trust runs out, which is safe.

The thread writes and everybody else reads: `trusted_until` is one number, replaced and never edited. The
event loop hears of the grant and of the end through `call_soon_threadsafe`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta

import structlog

from mainspring.clock import Clock, SystemClock
from mainspring.etcd.lease_calls import LeaseCalls
from mainspring.etcd.renewal import Renewal
from mainspring.etcd.values import Lease
from mainspring.schema.errors import LeaseLost
from mainspring.settings import EtcdSettings

DEFAULT_TTL = timedelta(seconds=3)

log = structlog.get_logger(__name__)


class LeaseKeeper:
    """One lease from its grant to its end. After its loss, another keeper gets another lease.

    That the two are different objects is what keeps a term honest: whoever took something under this lease
    asks this keeper, and never gets an answer that is true only of the next lease.
    """

    def __init__(
        self, settings: EtcdSettings, *, ttl: timedelta = DEFAULT_TTL, clock: Clock | None = None
    ) -> None:
        self.lost = asyncio.Event()
        """Set when etcd said that the lease is gone, and never cleared."""
        self._clock = clock or SystemClock()
        self._calls = LeaseCalls(settings)
        self._renewal = Renewal(self._calls, ttl, self._clock)
        self._lease: Lease | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._revoke = False
        self._ended = asyncio.Event()

    @property
    def lease_id(self) -> int:
        """The lease, for keys to be attached to; known once `start` has returned."""
        if self._lease is None:
            raise RuntimeError("the lease has not been granted yet")
        return self._lease.id

    @property
    def trusted_until(self) -> float:
        """Until then, on the monotonic clock, the lease is believed to live; minus infinity: not at all."""
        return self._renewal.trusted_until

    def is_trusted(self) -> bool:
        return self._clock.monotonic() < self.trusted_until

    async def start(self) -> None:
        """Have a lease granted and kept from then on; once in the life of a keeper.

        Raises EtcdUnavailable or EtcdRefused when none is to be had: try again later, with another keeper.
        """
        if self._loop is not None:
            raise RuntimeError("a keeper is started once")
        self._loop = asyncio.get_running_loop()
        granted: asyncio.Future[Lease] = self._loop.create_future()
        self._thread = threading.Thread(
            target=self._run, args=(granted,), name="mainspring-lease", daemon=True
        )
        self._thread.start()
        try:
            self._lease = await granted
        except asyncio.CancelledError:
            self._give_up(revoke=True)
            raise

    async def stop(self, *, revoke: bool) -> None:
        """End trust at once and renewal with it; `revoke` deletes the keys now, else the lease runs out.

        Takes milliseconds, and some five seconds at most when etcd does not answer.
        """
        self._give_up(revoke=revoke)
        if self._thread is None:
            self._calls.close()
        else:
            await self._ended.wait()
            self._thread.join()  # it has nothing left to do

    def _give_up(self, *, revoke: bool) -> None:
        self._revoke = revoke
        self._renewal.stop()

    def _run(self, granted: asyncio.Future[Lease]) -> None:
        """The thread: whatever ends it, trust ends first and the loop hears of it."""
        try:
            self._live(granted)
        except Exception as error:  # noqa: BLE001
            self._renewal.stop()
            self._tell(self._fail, granted, error)
        finally:
            self._calls.close()
            self._tell(self._ended.set)

    def _live(self, granted: asyncio.Future[Lease]) -> None:
        lease = self._renewal.grant()
        log.info("lease_granted", lease=lease.id, ttl_seconds=lease.ttl.total_seconds())
        self._tell(_deliver, granted, lease)
        self._renewal.keep(lease)
        if self._revoke:
            self._renewal.revoke(lease)

    def _fail(self, granted: asyncio.Future[Lease], error: Exception) -> None:
        """On the loop: there was no lease to be had, or there is no longer."""
        if not granted.done():
            granted.set_exception(error)
            return
        if isinstance(error, LeaseLost):
            log.warning("lease_lost", lease=error.lease_id)
        else:
            log.error("lease_keeper_failed", exc_info=error)
        self.lost.set()

    def _tell(self, what: Callable[..., object], *arguments: object) -> None:
        assert self._loop is not None
        with suppress(RuntimeError):  # the loop has closed: nobody listens any more
            self._loop.call_soon_threadsafe(what, *arguments)


def _deliver(granted: asyncio.Future[Lease], lease: Lease) -> None:
    if not granted.done():
        granted.set_result(lease)
