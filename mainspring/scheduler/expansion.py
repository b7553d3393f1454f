"""From what the wheel hands out to what goes onto Kafka: pure, and on the path of the hot second.

A *parcel* is a run of messages that share everything but the job: one prefix, and the members' ready
bytes. A cadence's occurrence becomes a parcel per group, whatever the number of members; nothing is
encoded and nothing is decided per member, except for individuals.

**Lateness.** The rule is `mainspring.schedule.lateness.decide`, which the worker asks again. What it is
asked with differs: for an occurrence inside the gap that a takeover found, *now* is the end of that gap
(`shards.gap_to`) and not the clock, so that a second takeover, minutes later, decides the same. For
everything else it is the clock. Of more than `max_missed` late occurrences under RUN_ALL the newest are
kept, of those that the job owns; see `caps.py`.

What is given up is counted per cadence, not listed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice
from typing import NamedTuple

from mainspring.schedule import MissedPolicy, Verdict, decide, is_late
from mainspring.schedule.wall import to_datetime
from mainspring.scheduler.caps import Caps, Run
from mainspring.scheduler.rosters import Home, Individual, Roster
from mainspring.schema.ids import to_microseconds
from mainspring.schema.messages import encode_prefix
from mainspring.schema.states import Lane, lane_of, topic_of

MICROSECONDS = 1_000_000
_TURN = 64  # messages of one tenant before the next one's turn


class Parcel(NamedTuple):
    """Messages of one topic that differ only in the job."""

    priority: int
    topic: str
    tenant_id: int
    shard: int
    second: int
    prefix: bytes
    bodies: list[bytes]


class Timer(NamedTuple):
    """A one-time due instant as a leader holds it; `due` is the first whole second not before `due_at`."""

    id: int
    changed: int
    shard: int
    job_id: int
    due: int
    scheduled_at: int
    attempt: int
    retries: int
    losses: int
    tenant_id: int
    pool: str
    priority: int
    grace_seconds: int
    body: bytes


class _Alike(NamedTuple):
    """What timers must share to share a parcel."""

    priority: int
    topic: str
    tenant_id: int
    due: int
    scheduled_at: int
    attempt: int
    retries: int
    losses: int

    @classmethod
    def of(cls, timer: Timer, topic: str) -> _Alike:
        return cls(
            timer.priority,
            topic,
            timer.tenant_id,
            timer.due,
            timer.scheduled_at,
            timer.attempt,
            timer.retries,
            timer.losses,
        )


class Jittered(NamedTuple):
    """Members of a cadence whose jitter moved one occurrence to a later second."""

    roster: Roster
    scheduled: int
    job_ids: list[int]


@dataclass(frozen=True, slots=True)
class Moment:
    """What lateness is judged by, and what every prefix of one bucket and shard has in common."""

    now: float
    gap_to: int | None
    shard: int
    epoch: int
    position: int

    def reference(self, due: int) -> float:
        """The *now* by which something due in this second is judged."""
        return self.gap_to if self.gap_to is not None and due <= self.gap_to else self.now


@dataclass(slots=True)
class Bucket:
    """What leaves together, of any number of shards."""

    parcels: list[Parcel] = field(default_factory=list)
    timers: list[Timer] = field(default_factory=list)
    missed: Counter[int] = field(default_factory=Counter)  # by cadence
    capped: Counter[int] = field(default_factory=Counter)

    def __len__(self) -> int:
        return sum(len(parcel.bodies) for parcel in self.parcels)

    def counts(self) -> Counter[tuple[int, int]]:
        """Messages by shard and second: the ledger's rows."""
        found: Counter[tuple[int, int]] = Counter()
        for parcel in self.parcels:
            found[parcel.shard, parcel.second] += len(parcel.bodies)
        return found


class Expansion:
    """Expands the entries of one shard into a bucket."""

    def __init__(self, bucket: Bucket, home: Home, moment: Moment) -> None:
        self._bucket = bucket
        self._home = home
        self._moment = moment
        self._caps = Caps()
        self.armed: defaultdict[tuple[int, int, int], list[int]] = defaultdict(list)
        """Occurrences moved by jitter: (cadence, scheduled, due) → jobs."""

    def cadence(self, roster: Roster, first: int, through: int) -> int | None:
        """Expand all occurrences from `first` through this second; the one after them, if there is one."""
        scheduled: int | None = first
        while scheduled is not None and scheduled <= through:
            following = roster.cadence.next_second(scheduled)
            for group in roster.groups.values():
                run = Run(roster, group.key, scheduled, scheduled, following)
                self._send(run, list(group.bodies.values()))
            if roster.individuals:
                self.individuals(roster, scheduled, following, through)
            scheduled = following
        return scheduled

    def individuals(self, roster: Roster, scheduled: int, following: int | None, through: int) -> None:
        """Expand one occurrence for the members that are looked at by themselves."""
        instant = scheduled * MICROSECONDS
        for job_id, member in list(roster.individuals.items()):
            if not member.owns(instant):
                continue
            due = member.due(job_id, scheduled, following)
            if due > through:
                self.armed[roster.cadence_id, scheduled, due].append(job_id)
            else:
                self._send_one(roster, job_id, member, scheduled, due, following)
            if member.is_plain_later:
                self._home.promote(roster, job_id)

    def jittered(self, entry: Jittered, due: int) -> None:
        """Expand what was armed for this second; a member changed meanwhile goes as it is now."""
        following = entry.roster.cadence.next_second(entry.scheduled)
        for job_id in entry.job_ids:
            member = self._member(entry.roster, job_id)
            if member is not None and member.owns(entry.scheduled * MICROSECONDS):
                self._send_one(entry.roster, job_id, member, entry.scheduled, due, following)

    def owed(self, roster: Roster, job_id: int, after: int, through: int) -> None:
        """Expand a member's own occurrences in (after, through] that lie behind what has been fired.

        One that is too late does not run, but is not counted as given up: a leader before us may have
        published it, or counted it already.
        """
        member = self._member(roster, job_id)
        given_up = self._bucket.missed[roster.cadence_id]
        scheduled = roster.cadence.next_second(after)
        while member is not None and scheduled is not None and scheduled <= through:
            following = roster.cadence.next_second(scheduled)
            if member.owns(scheduled * MICROSECONDS):
                due = member.due(job_id, scheduled, following)
                if due <= through:
                    self._send_one(roster, job_id, member, scheduled, due, following)
                else:
                    self.armed[roster.cadence_id, scheduled, due].append(job_id)
            scheduled = following
        self._bucket.missed[roster.cadence_id] = given_up

    def _member(self, roster: Roster, job_id: int) -> Individual | None:
        """A member as it is now; None if it no longer follows this cadence."""
        place = self._home.roster_of(job_id)
        stays = place is not None and place.cadence_id == roster.cadence_id
        return self._home.find(job_id) if stays else None

    def timers(self, timers: Iterable[Timer]) -> None:
        """Expand timers; those alike but for the job share a parcel. The worker judges their lateness."""
        alike: defaultdict[_Alike, list[bytes]] = defaultdict(list)
        for timer in timers:
            late = self._moment.reference(timer.due) - timer.due > timer.grace_seconds
            topic = topic_of(timer.pool, Lane.CATCHUP if late else lane_of(timer.priority))
            alike[_Alike.of(timer, topic)].append(timer.body)
            self._bucket.timers.append(timer)
        for key, bodies in alike.items():
            self._add_timers(key, bodies)

    def _add_timers(self, key: _Alike, bodies: list[bytes]) -> None:
        prefix = encode_prefix(
            attempt=key.attempt,
            retries=key.retries,
            losses=key.losses,
            shard=self._moment.shard,
            second=key.due,
            scheduled_at=key.scheduled_at,
            epoch=self._moment.epoch,
            position=self._moment.position,
        )
        self._bucket.parcels.append(
            Parcel(key.priority, key.topic, key.tenant_id, self._moment.shard, key.due, prefix, bodies)
        )

    def _send_one(
        self,
        roster: Roster,
        job_id: int,
        member: Individual,
        scheduled: int,
        due: int,
        following: int | None,
    ) -> None:
        ends_at = member.ends_at
        if ends_at is not None and following is not None and following * MICROSECONDS >= ends_at:
            following = None  # the job's last one: no successor will come to stand for it
        self._send(Run(roster, member.key, scheduled, due, following, job_id, member), [member.body])

    def _send(self, run: Run, bodies: list[bytes]) -> None:
        key = run.key
        reference, grace = self._moment.reference(run.due), timedelta(seconds=key.grace_seconds)
        late = is_late(to_datetime(run.due), _instant(reference), grace)
        if late and not self._runs_late(run, reference):
            self._bucket.missed[run.roster.cadence_id] += len(bodies)
            return
        prefix = encode_prefix(
            attempt=1,
            shard=self._moment.shard,
            second=run.due,
            scheduled_at=run.scheduled * MICROSECONDS,
            following=0 if run.following is None else run.following * MICROSECONDS,
            epoch=self._moment.epoch,
            position=self._moment.position,
        )
        topic = key.topic(late=late)
        self._bucket.parcels.append(
            Parcel(key.priority, topic, key.tenant_id, self._moment.shard, run.due, prefix, bodies)
        )

    def _runs_late(self, run: Run, reference: float) -> bool:
        key = run.key
        verdict = decide(
            due=to_datetime(run.due),
            now=_instant(reference),
            grace=timedelta(seconds=key.grace_seconds),
            policy=key.missed_window,
            following=None if run.following is None else to_datetime(run.following),
        )
        if verdict is Verdict.MISSED:
            return False
        # Exactly `grace` late is on time: the last second that is late lies before it.
        last = _ceiling(reference) - key.grace_seconds - 1
        if key.missed_window is not MissedPolicy.RUN_ALL or self._caps.allows(run, last):
            return True
        self._bucket.capped[run.roster.cadence_id] += 1
        return False


def in_order(parcels: Iterable[Parcel]) -> Iterator[Parcel]:
    """The order of leaving: by priority, and within one priority the tenants in turns.

    So a tenant with one job at midnight does not wait behind another's half million.
    """
    by_priority: defaultdict[int, defaultdict[int, list[Parcel]]] = defaultdict(lambda: defaultdict(list))
    for parcel in parcels:
        by_priority[parcel.priority][parcel.tenant_id].append(parcel)
    for priority in sorted(by_priority, reverse=True):
        tenants = by_priority[priority]
        if len(tenants) == 1:
            yield from next(iter(tenants.values()))
        else:
            yield from _in_turns([_slices(of_tenant) for of_tenant in tenants.values()])


def _in_turns(queues: list[Iterator[Parcel]]) -> Iterator[Parcel]:
    while queues:
        waiting = []
        for queue in queues:
            slices = list(islice(queue, 1))
            yield from slices
            if slices:
                waiting.append(queue)
        queues = waiting


def _slices(parcels: list[Parcel]) -> Iterator[Parcel]:
    for parcel in parcels:
        for start in range(0, len(parcel.bodies), _TURN):
            yield parcel._replace(bodies=parcel.bodies[start : start + _TURN])


def _instant(seconds: float) -> datetime:
    return to_datetime(0) + timedelta(seconds=seconds)


def _ceiling(seconds: float) -> int:
    return -(-to_microseconds(_instant(seconds)) // MICROSECONDS)
