"""One leadership of one shard, in memory: what is armed, what has been fired, what is still owed.

Pure: rows go in, buckets come out. Nobody but the event loop touches it. Five numbers, in unix seconds, order
everything:

    mark             Postgres knows: everything due through this second has been published
    fired            we know: the same; but the mark's transaction may still be under way
    expanded         everything due through this second has been handed out, and may still be on its way
    loaded_through   everything due through this second is armed; nothing later is fired
    horizon          what is loaded is armed up to here, while a load is under way

    mark ≤ fired ≤ expanded ≤ loaded_through ≤ horizon

Postgres away: `fired` goes on and `mark` waits, up to `loaded_through`, and there firing stops: a mark that
passed what was never loaded would lose it. Kafka away: `expanded` is one bucket ahead of `fired`; a change
that turns up meanwhile is judged by `expanded`, because that bucket leaves without it.

The agenda holds three kinds of entries under keys that cannot collide:

    -cadence_id                     a roster, at its cadence's next occurrence
    timer id                        a timer, at its due second
    (cadence_id, scheduled, due)    members whose jitter moved that occurrence to that second

A change to a job may turn up when its occurrences are already behind `expanded`: it was committed late, or
a load had to be waited for. These are *owed*, and leave with the next bucket. A job is owed what lies after
its `valid_from`; one whose `valid_from` lies back further than `REACH` was not created but edited, and has
missed nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

import structlog

from mainspring.schedule import Cadence
from mainspring.scheduler.agenda import Agenda
from mainspring.scheduler.expansion import MICROSECONDS, Bucket, Expansion, Jittered, Moment, Timer
from mainspring.scheduler.rosters import Home, JobRow, Roster
from mainspring.schema.errors import InvalidInput

REACH = 900
"""Seconds a change may have taken from its `valid_from` to its commit, and still be owed everything since."""

FEED_LAG = 60
"""Seconds by which the feed may be behind a load."""

_UNEVALUABLE = (InvalidInput, ValueError, OverflowError)

Key = int | tuple[int, int, int]
Entry = Roster | Timer | Jittered

log = structlog.get_logger()


class _Owed(NamedTuple):
    roster: Roster
    after: int


class Term:
    """A shard as its leader holds it."""

    def __init__(self, shard: int, epoch: int, *, mark: int, gap_to: int | None) -> None:
        self.shard = shard
        self.epoch = epoch
        self.mark = mark
        self.fired = mark
        self.gap_from = mark
        self.gap_to = gap_to
        self.loaded_through = mark
        self._horizon = mark
        self.ready = False
        self.rosters: dict[int, Roster] = {}
        self.loading: dict[int, Roster] = {}
        self.pools: set[str] = set()
        self.home = Home()
        self.wheel: Agenda[Key, Entry] = Agenda(now=mark)
        self._idle: dict[int, Roster] = {}
        self._timers: dict[int, Timer] = {}
        self._timers_of: defaultdict[int, set[int]] = defaultdict(set)
        self._jittered: dict[Key, Jittered] = {}
        self._spent: dict[int, int] = {}
        self._owed: dict[int, _Owed] = {}

    @property
    def expanded(self) -> int:
        """The second through which everything due has been handed out."""
        return self.wheel.now

    @property
    def horizon(self) -> int:
        """The second up to which what is loaded is armed."""
        return self._horizon

    @horizon.setter
    def horizon(self, through: int) -> None:
        # A roster that stays only for what of it is pending is not loaded again: its turn comes here.
        self._horizon = through
        for roster in list(self._idle.values()):
            with self._or_set_aside(roster):
                self._arm(roster, roster.cadence.next_second(self.expanded))

    @property
    def has_owed(self) -> bool:
        """Whether something leaves with the next bucket although its second has passed."""
        return bool(self._owed) or self.wheel.has_overdue

    @property
    def armed_jobs(self) -> int:
        return len(self.home) + len(self._timers)

    def expand(self, bucket: Bucket, moment: Moment, through: int) -> None:
        """Move what is due through this second, and what is owed, into the bucket."""
        expansion = Expansion(bucket, self.home, moment)
        released = self._expand_owed(expansion)
        for due in self.wheel.advance(max(through, self.expanded)):
            timers = []
            for entry in due.entries.values():
                if isinstance(entry, Timer):
                    timers.append(entry)
                elif isinstance(entry, Roster):
                    self._expand_cadence(expansion, entry, due.due, through)
                else:
                    del self._jittered[entry.roster.cadence_id, entry.scheduled, due.due]
                    with self._or_set_aside(entry.roster):
                        expansion.jittered(entry, due.due)
                    released.append(entry.roster)
            self._spend(timers)
            expansion.timers(timers)
        # At the end: until then a roster that the wheel has handed out may be neither armed nor to go.
        for roster in released:
            self._release(roster)

    def begin_loading(self, cadence_id: int, cadence: Cadence) -> None:
        """Make room for a cadence's members; nothing of it fires before `adopt`."""
        self.loading[cadence_id] = Roster(cadence_id, self.shard, cadence)

    def load_member(self, row: JobRow) -> None:
        roster = self.loading.get(row.cadence_id or 0)
        if roster is not None:
            self.pools.add(row.pool)
            with suppress(*_UNEVALUABLE):  # `adopt` reports it, once for all members
                self.home.put(roster, row, expanded=self.expanded)

    def adopt(self, cadence_id: int, *, max_jitter: int, owed: Iterable[JobRow], since: int) -> None:
        """Make a loaded cadence resident and arm its next occurrence; first note what members are owed."""
        roster = self.loading.pop(cadence_id)
        self.rosters[cadence_id] = roster
        changed = list(owed)
        for row in changed:
            self.owe_member(row, since=since)
        with self._or_set_aside(roster):
            # Of a term that has begun to fire, what waits for a jitter keeps its roster.
            if not self.ready:
                self._owe_moved(roster, changed, max_jitter)
                self._arm_earlier(roster, max_jitter)
            self._arm(roster, roster.cadence.next_second(self.expanded))

    def abandon(self, cadence_id: int) -> None:
        """Its load has failed: forget what it brought."""
        roster = self.loading.pop(cadence_id, None)
        if roster is not None:
            self.home.forget(roster)

    def put_job(self, row: JobRow) -> bool:
        """Apply a change; False if its cadence must be loaded first.

        While the cadence is being loaded, the load or the replay after it brings the member.
        """
        before = self.home.roster_of(row.job_id)
        waiting = self._withdraw(before, row.job_id)
        if not row.active or row.cadence_id is None:
            self.home.remove(row.job_id)
            return True
        roster = self.rosters.get(row.cadence_id)
        if roster is None:
            loading = self.loading.get(row.cadence_id)
            if before is not loading:
                self.home.remove(row.job_id)
            return loading is not None
        self.pools.add(row.pool)
        with self._or_set_aside(roster):
            self.home.put(roster, row, expanded=self.expanded)
        if before is not roster or self._may_be_new(row):
            self.owe(roster, row, since=self.expanded)
        if before is roster and waiting is not None and waiting * MICROSECONDS > row.valid_from:
            self._owe_again(roster, row.job_id, waiting)
        return True

    def owe_member(self, row: JobRow, *, since: int) -> None:
        """The same for a row that a load has already brought, if it is a member still."""
        roster = self.rosters.get(row.cadence_id or 0)
        if roster is not None and self.home.roster_of(row.job_id) is roster:
            self.owe(roster, row, since=since)

    def owe(self, roster: Roster, row: JobRow, *, since: int) -> None:
        """Note the occurrences behind `expanded` that a job owns all the same.

        `since` is when the feed was last known to have been applied. The roster stays until they have left.
        What was noted for another cadence, or from before a newer `valid_from`, is owed no longer.
        """
        after = row.valid_from // MICROSECONDS
        noted = self._owed.get(row.job_id)
        if noted is not None and noted.roster is roster and noted.after >= after:
            return
        is_owed = since - REACH <= after < self.expanded
        self._note(row.job_id, _Owed(roster, after) if is_owed else None)

    def put_timer(self, timer: Timer) -> None:
        """Arm a timer, or re-time it; what has been fired in this very version is not fired again."""
        if self._spent.get(timer.id) == timer.changed:
            return
        if timer.due > self.horizon:
            self.drop_timer(timer.id)
            return
        self.pools.add(timer.pool)
        self._timers[timer.id] = timer
        self._timers_of[timer.job_id].add(timer.id)
        self.wheel.insert(timer.id, timer.due, timer)

    def drop_timer(self, timer_id: int) -> None:
        timer = self._timers.pop(timer_id, None)
        if timer is not None:
            self.wheel.remove(timer_id)
            self._forget_timer_of(timer)

    def put_timers_of(self, job_id: int, timers: Iterable[Timer]) -> None:
        """Replace what is armed for one job: the change of a job may have removed or held its timers."""
        standing = {timer.id: timer for timer in timers}
        for timer_id in list(self._timers_of.get(job_id, ())):
            if timer_id not in standing:
                self.drop_timer(timer_id)
        for timer in standing.values():
            self.put_timer(timer)

    def forget_spent(self, timers: Iterable[tuple[int, int]]) -> None:
        """These fired timers are deleted: no reader will show them again."""
        for timer_id, changed in timers:
            if self._spent.get(timer_id) == changed:
                del self._spent[timer_id]

    def _is_resident(self, roster: Roster) -> bool:
        return self.rosters.get(roster.cadence_id) is roster

    def _may_be_new(self, row: JobRow) -> bool:
        """Whether a member may have missed something: not if it was armed all the time and only edited.

        But a load may have brought it before the feed did, and an edit may have come before both.
        """
        recent = row.valid_from // MICROSECONDS >= self.expanded - FEED_LAG
        return recent or row.valid_from == row.updated_at

    def _owe_again(self, roster: Roster, job_id: int, scheduled: int) -> None:
        """An occurrence that was waiting for a jitter leaves by the jitter that the job has now."""
        noted = self._owed.get(job_id)
        if noted is None or noted.roster is not roster:
            self._note(job_id, _Owed(roster, scheduled - 1))

    def _owe_moved(self, roster: Roster, changed: Iterable[JobRow], max_jitter: int) -> None:
        """A jitter may have been edited while an occurrence waited for it, and the leader died unaware."""
        scheduled = roster.latest(self.expanded, max_jitter)
        for row in changed:
            if scheduled is not None and scheduled * MICROSECONDS > row.valid_from:
                self._owe_again(roster, row.job_id, scheduled)

    def _expand_owed(self, expansion: Expansion) -> list[Roster]:
        owed, self._owed = self._owed, {}
        for job_id, (roster, after) in owed.items():
            with self._or_set_aside(roster):
                expansion.owed(roster, job_id, after, self.expanded)
        self._arm_jittered(expansion)
        return [each.roster for each in owed.values()]

    def _note(self, job_id: int, owed: _Owed | None) -> None:
        """Replace what is noted for a job; the new roster is kept before the old one may go."""
        noted = self._owed.pop(job_id, None)
        if owed is not None:
            owed.roster.pending += 1
            self._owed[job_id] = owed
        if noted is not None:
            self._release(noted.roster)

    def _expand_cadence(self, expansion: Expansion, roster: Roster, first: int, through: int) -> None:
        if not self._is_resident(roster):  # set aside a moment ago
            return
        with self._or_set_aside(roster):
            following = expansion.cadence(roster, first, through)
            self._arm_jittered(expansion)  # before the roster may go: they keep it
            self._arm(roster, following)

    @contextmanager
    def _or_set_aside(self, roster: Roster) -> Iterator[None]:
        """A cadence that cannot be evaluated goes, and stops nothing else."""
        try:
            yield
        except _UNEVALUABLE as error:
            log.error(  # noqa: TRY400  (a traceback a second would drown the reason)
                "cadence_set_aside", cadence_id=roster.cadence_id, shard=self.shard, reason=str(error)
            )
            self._evict(roster)

    def _release(self, roster: Roster) -> None:
        """One thing less that keeps a roster whose next occurrence lies beyond what is loaded."""
        roster.pending -= 1
        if not roster.pending and -roster.cadence_id not in self.wheel:
            self._evict(roster)

    def _arm(self, roster: Roster, following: int | None) -> None:
        """Let a roster wait for its next occurrence, or go if that lies beyond what is loaded."""
        self._idle.pop(roster.cadence_id, None)
        if following is not None and following <= self.horizon:
            self.wheel.insert(-roster.cadence_id, following, roster)
        elif roster.pending:
            self._idle[roster.cadence_id] = roster
        else:
            self._evict(roster)

    def _arm_earlier(self, roster: Roster, max_jitter: int) -> None:
        """An occurrence at or before `expanded` whose jitter reaches beyond it: a leader died in between."""
        scheduled = roster.latest(self.expanded, max_jitter) if roster.individuals else None
        if scheduled is not None:
            expansion = Expansion(Bucket(), self.home, Moment(0, None, self.shard, self.epoch, 0))
            following = roster.cadence.next_second(scheduled)
            expansion.individuals(roster, scheduled, following, self.expanded)
            self._arm_jittered(expansion)

    def _arm_jittered(self, expansion: Expansion) -> None:
        for key, job_ids in expansion.armed.items():
            roster = self.rosters.get(key[0])
            armed = self._jittered.get(key)
            if armed is not None and armed.roster is roster:
                known = set(armed.job_ids)
                armed.job_ids.extend(job_id for job_id in job_ids if job_id not in known)
            elif roster is not None:
                roster.pending += 1
                self._jittered[key] = Jittered(roster, key[1], job_ids)
                self.wheel.insert(key, key[2], self._jittered[key])
        expansion.armed.clear()

    def _withdraw(self, roster: Roster | None, job_id: int) -> int | None:
        """Take back the occurrence of a member that waits for its jitter, which may be another one now."""
        if roster is None or not roster.pending:
            return None
        key = roster.waiting(job_id, self.expanded)
        armed = None if key is None else self._jittered.get(key)
        if armed is None or job_id not in armed.job_ids:
            return None
        armed.job_ids.remove(job_id)
        return armed.scheduled

    def _evict(self, roster: Roster) -> None:
        if self._is_resident(roster):
            del self.rosters[roster.cadence_id]
            self._idle.pop(roster.cadence_id, None)
            self.wheel.remove(-roster.cadence_id)
            self.home.forget(roster)

    def _spend(self, timers: Iterable[Timer]) -> None:
        for timer in timers:
            self._spent[timer.id] = timer.changed
            del self._timers[timer.id]
            self._forget_timer_of(timer)

    def _forget_timer_of(self, timer: Timer) -> None:
        of_job = self._timers_of[timer.job_id]
        of_job.discard(timer.id)
        if not of_job:
            del self._timers_of[timer.job_id]
