"""Leadership: who may fire a shard, and how a process knows that it still may.

**Who is authoritative.** Postgres. `shards.epoch` and `shards.leader` say whose term it is; every write
of a mark carries both, and one that does not match changes nothing. etcd only *chooses*: its keys, which
hang on the lease of a process, decide who asks Postgres for the next epoch. A lease can never prove
exclusion, because a process that was stopped does not know how long; so no safety rests on it.

    free ──▶ key created in etcd ──▶ epoch + 1 in Postgres ──▶ loaded ──▶ firing ──▶ ended
                                                                 │           │
                                    Postgres away: tried again ◀─┘           ├─ another epoch in Postgres
                                                                             ├─ the key is somebody else's
                                                                             ├─ handed back, or resigned
                                                                             └─ the transaction ids changed

**Before every publication** the right to it is proved: the lease is trusted (see mainspring.etcd), or else
Postgres confirms leader and epoch, now. Where neither can be had, the bucket is held. What is published under
a right that ends a moment later is published again by the successor and removed by the run's primary key.

**What each failure does.**

    this process is killed      the lease ends in 3 s, another process creates the key and takes the epoch; it
                                publishes again what lies after the mark
    this process is stopped,    trust has lapsed on the monotonic clock; Postgres shows a newer epoch: the
      then goes on              term ends before anything more is published. Stopped inside the transaction
                                of its marks, it holds its shards for 2 s; then Postgres rolls that back
    etcd away                   nobody is elected; trust lapses; Postgres is asked each second, and firing
                                goes on
    the lease is lost           the same: terms go on while Postgres confirms them. Under the next lease the
                                keys are created again; a key that somebody else has created meanwhile ends
                                the term
    Postgres away               under a trusted lease recurring jobs are fired from the wheel, up to what is
                                loaded; marks wait
    both away                   the bucket is held
    two believe they lead       both publish, one can move the mark; the other one's term ends there
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable

import structlog

from mainspring.etcd import LeaseKeeper
from mainspring.scheduler.marks import Marks
from mainspring.scheduler.terms import Term
from mainspring.schema.errors import DatabaseUnavailable

_HOLD_SECONDS = 0.2

log = structlog.get_logger()


class Leadership:
    """The terms of this process, and the right to publish for them."""

    def __init__(self, marks: Marks, on_end: Callable[[Term, str], None]) -> None:
        self._marks = marks
        self._on_end = on_end
        self._keepers: dict[int, LeaseKeeper] = {}
        self.terms: dict[int, Term] = {}

    def begin(self, terms: Collection[Term], keeper: LeaseKeeper) -> None:
        """Terms begin under the lease that their keys hang on."""
        for term in terms:
            self.terms[term.shard] = term
            self._keepers[term.shard] = keeper
        log.info("terms_began", shards=sorted(term.shard for term in terms))

    def rebind(self, shard: int, keeper: LeaseKeeper) -> None:
        """The key was created again under a new lease; the term goes on."""
        self._keepers[shard] = keeper

    def end(self, shards: Iterable[int], reason: str) -> None:
        """These shards are no longer ours."""
        ended = [self.terms.pop(shard) for shard in shards if shard in self.terms]
        for term in ended:
            del self._keepers[term.shard]
            self._on_end(term, reason)
        if ended:
            log.info("terms_ended", shards=sorted(term.shard for term in ended), reason=reason)

    def is_current(self, term: Term) -> bool:
        """Whether this very term goes on; the same shard may have been taken anew meanwhile."""
        return self.terms.get(term.shard) is term

    async def may_publish(self, terms: Collection[Term]) -> set[int]:
        """The shards of these terms for which the right is proved; held until it is proved or refuted."""
        while doubtful := [term for term in self._current(terms) if not self._is_trusted(term)]:
            try:
                confirmed = await self._marks.confirm(doubtful)
            except DatabaseUnavailable as error:
                log.warning("bucket_held", shards=len(doubtful), reason=str(error))
                await asyncio.sleep(_HOLD_SECONDS)
                continue
            stale = [term for term in self._current(doubtful) if term.shard not in confirmed]
            self.end([term.shard for term in stale], "another_epoch")
            break
        return {term.shard for term in self._current(terms)}

    def _current(self, terms: Iterable[Term]) -> list[Term]:
        return [term for term in terms if self.is_current(term)]

    def _is_trusted(self, term: Term) -> bool:
        return self._keepers[term.shard].is_trusted()
