"""One leadership of one shard, in memory: what is armed, what has been fired, what is still owed.

Pure: rows go in, buckets come out. Nobody but the event loop touches it. Four numbers, in unix seconds, order
everything:

    mark            Postgres knows: everything due through this second has been published fired
    we know: the same, but the mark's transaction may still be under way (mark ≤ fired) loaded_through
    everything due through this second is armed; nothing later is fired (fired ≤ loaded_through) horizon
    what is loaded is armed up to here, while a load is under way (loaded_through ≤ horizon)

Postgres away: `fired` goes on and `mark` waits, up to `loaded_through`, and there firing stops: a mark that
passed what was never loaded would lose it.

The wheel holds three kinds of entries under keys that cannot collide:

    -cadence_id                     a roster, at its cadence's next occurrence
    timer id                        a timer, at its due second
    (cadence_id, scheduled, due)    members whose jitter moved that occurrence to that second

A change to a job may turn up when its occurrences are already behind `fired`: it was committed late, or a
load had to be waited for. These are *owed*, and leave with the next bucket. A job is owed what lies after
its `valid_from`, but nothing older than `REACH`: further back a row was not created but edited.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

import structlog

from mainspring.schedule import Cadence
from mainspring.scheduler.expansion import MICROSECONDS, Bucket, Expansion, Jittered, Moment, Timer
from mainspring.scheduler.rosters import Home, JobRow, Roster
from mainspring.schema.errors import InvalidInput
from mainspring.wheel import Wheel

REACH = 900
"""Seconds a change may have taken from its `valid_from` to its commit, and still be owed everything since."""

Key = int | tuple[int, int, int]
Entry = Roster | Timer | Jittered

log = structlog.get_logger()


class _Owed(NamedTuple):
    roster: Roster
    job_id: int
    after: int


class Term:
    """A shard as its leader holds it."""

    def __init__(self, shard: int, epoch: int, *, mark: int, gap_to: int | None) -> None:
        self.shard = shard
        self.epoch = epoch
        self.mark = mark
        self.fired = mark
        self.gap_to = gap_to
        self.loaded_through = mark
        self.horizon = mark
        self.ready = False
        self.rosters: dict[int, Roster] = {}
        self.loading: dict[int, Roster] = {}
        self.pools: set[str] = set()
        self.home = Home()
        self.wheel: Wheel[Key, Entry] = Wheel(now=mark)
        self._timers: dict[int, Timer] = {}
        self._timers_of: defaultdict[int, set[int]] = defaultdict(set)
        self._jittered: dict[Key, Jittered] = {}
        self._spent: dict[int, int] = {}
        self._owed: list[_Owed] = []

    @property
    def has_owed(self) -> bool:
        """Whether something leaves with the next bucket although its second has passed."""
        due = self.wheel.next_due()
        return bool(self._owed) or (due is not None and due <= self.fired)

    @property
    def armed_jobs(self) -> int:
        return len(self.home) + len(self._timers)

    def expand(self, bucket: Bucket, moment: Moment, through: int) -> None:
        """Move what is due through this second, and what is owed, into the bucket."""
        expansion = Expansion(bucket, self.home, moment)
        released = self._expand_owed(expansion)
        for due in self.wheel.advance(max(through, self.wheel.now)):
            timers = []
            for entry in due.entries.values():
                if isinstance(entry, Timer):
                    timers.append(entry)
                elif isinstance(entry, Roster):
                    self._expand_cadence(expansion, entry, due.due, through)
                else:
                    del self._jittered[entry.roster.cadence_id, entry.scheduled, due.due]
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
            self.home.put(roster, row, fired_through=self.fired)

    def adopt(self, cadence_id: int, *, max_jitter: int, owed: Iterable[JobRow], since: int) -> None:
        """Make a loaded cadence resident and arm its next occurrence; first note what members are owed."""
        roster = self.loading.pop(cadence_id)
        self.rosters[cadence_id] = roster
        for row in owed:
            self.owe_member(row, since=since)
        self._arm_earlier(roster, max_jitter)
        self._arm(roster, roster.cadence.next_second(self.fired))

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
        self.home.put(roster, row, fired_through=self.fired)
        # A member that was armed all the time and only edited has missed nothing.
        if before is not roster or row.valid_from == row.updated_at:
            self.owe(roster, row, since=self.fired)
        return True

    def owe_member(self, row: JobRow, *, since: int) -> None:
        """The same for a row that a load has already brought, if it is a member still."""
        roster = self.rosters.get(row.cadence_id or 0)
        if roster is not None and self.home.roster_of(row.job_id) is roster:
            self.owe(roster, row, since=since)

    def owe(self, roster: Roster, row: JobRow, *, since: int) -> None:
        """Note the occurrences behind `fired` that a job owns all the same.

        `since` is when the feed was last known to have been applied. The roster stays until they have left.
        """
        after = max(row.valid_from // MICROSECONDS, since - REACH)
        if after < self.fired:
            roster.pending += 1
            self._owed.append(_Owed(roster, row.job_id, after))

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

    def _expand_owed(self, expansion: Expansion) -> list[Roster]:
        owed, self._owed = self._owed, []
        for each in owed:
            expansion.owed(each.roster, each.job_id, each.after, self.fired)
        self._arm_jittered(expansion)
        return [each.roster for each in owed]

    def _expand_cadence(self, expansion: Expansion, roster: Roster, first: int, through: int) -> None:
        try:
            following = expansion.cadence(roster, first, through)
        except (InvalidInput, ValueError, OverflowError) as error:
            log.error(  # noqa: TRY400  (a traceback a second would drown the reason)
                "cadence_set_aside", cadence_id=roster.cadence_id, shard=self.shard, reason=str(error)
            )
            self._evict(roster)
            return
        self._arm_jittered(expansion)  # before the roster may go: they keep it
        self._arm(roster, following)

    def _release(self, roster: Roster) -> None:
        """One thing less that keeps a roster whose next occurrence lies beyond what is loaded."""
        roster.pending -= 1
        if not roster.pending and -roster.cadence_id not in self.wheel:
            self._evict(roster)

    def _arm(self, roster: Roster, following: int | None) -> None:
        """Let a roster wait for its next occurrence, or go if that lies beyond what is loaded."""
        if following is not None and following <= self.horizon:
            self.wheel.insert(-roster.cadence_id, following, roster)
        elif not roster.pending:
            self._evict(roster)

    def _arm_earlier(self, roster: Roster, max_jitter: int) -> None:
        """Occurrences at or before `fired` whose jitter reaches beyond it: a leader died in between."""
        if not max_jitter or not roster.individuals:
            return
        expansion = Expansion(Bucket(), self.home, Moment(0, None, self.shard, self.epoch, 0))
        scheduled = roster.cadence.next_second(self.fired - max_jitter)
        while scheduled is not None and scheduled <= self.fired:
            following = roster.cadence.next_second(scheduled)
            expansion.individuals(roster, scheduled, following, self.fired)
            scheduled = following
        self._arm_jittered(expansion)

    def _arm_jittered(self, expansion: Expansion) -> None:
        for key, job_ids in expansion.armed.items():
            roster = self.rosters.get(key[0])
            armed = self._jittered.get(key)
            if armed is not None:
                armed.job_ids.extend(job_ids)
            elif roster is not None:
                roster.pending += 1
                self._jittered[key] = Jittered(roster, key[1], job_ids)
                self.wheel.insert(key, key[2], self._jittered[key])
        expansion.armed.clear()

    def _evict(self, roster: Roster) -> None:
        if self.rosters.get(roster.cadence_id) is roster:
            del self.rosters[roster.cadence_id]
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
