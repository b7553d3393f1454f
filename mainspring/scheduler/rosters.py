"""The members of a cadence, held ready to leave: one roster per cadence, one group per kind of treatment.

Nearly all members of a cadence are alike for the purposes of firing, so they are kept as bare bytes in
groups whose members share lane, tenant and missed-window policy. A bucket takes a group whole; what is
decided about it is decided once. The few that must be looked at one by one are *individuals*: a job with
a jitter or a start or an end, and one whose `valid_from` lies behind the cadence's next occurrence, which is
then not its own. An individual of the last kind joins its group with the first occurrence that it owns.

Memory: a member costs its bytes, an integer, and an entry in two dictionaries (its group's and `Home`).
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import NamedTuple

from mainspring.schedule import Cadence, jitter_offset
from mainspring.schedule.wall import to_datetime
from mainspring.schema.states import Lane, MissedPolicy, lane_of, topic_of


class JobRow(NamedTuple):
    """What a leader reads of a job. Instants are microseconds since 1970."""

    job_id: int
    shard: int
    tenant_id: int
    cadence_id: int | None
    active: bool
    changed: int
    version: int
    valid_from: int
    updated_at: int
    starts_at: int | None
    ends_at: int | None
    jitter_seconds: int
    pool: str
    priority: int
    missed_window: MissedPolicy
    grace_seconds: int
    max_missed: int
    body: bytes


class GroupKey(NamedTuple):
    """What the members of a group have in common."""

    priority: int
    pool: str
    tenant_id: int
    missed_window: MissedPolicy
    grace_seconds: int
    max_missed: int

    @classmethod
    def of(cls, row: JobRow) -> GroupKey:
        return cls(
            row.priority, row.pool, row.tenant_id, row.missed_window, row.grace_seconds, row.max_missed
        )

    def topic(self, *, late: bool) -> str:
        """Late work travels in a lane of its own, whatever its priority."""
        return topic_of(self.pool, Lane.CATCHUP if late else lane_of(self.priority))


class Group:
    """Members that leave together: their bytes by job id."""

    __slots__ = ("bodies", "key", "roster")

    def __init__(self, roster: Roster, key: GroupKey) -> None:
        self.roster = roster
        self.key = key
        self.bodies: dict[int, bytes] = {}


class Individual(NamedTuple):
    """A member that is looked at by itself."""

    key: GroupKey
    body: bytes
    valid_from: int
    starts_at: int | None = None
    ends_at: int | None = None
    jitter_seconds: int = 0

    @classmethod
    def of(cls, row: JobRow) -> Individual:
        return cls(GroupKey.of(row), row.body, row.valid_from, row.starts_at, row.ends_at, row.jitter_seconds)

    def owns(self, scheduled_at: int) -> bool:
        """Whether this instant (microseconds) belongs to the job: see mainspring.schedule.schedule."""
        return (
            scheduled_at > self.valid_from
            and (self.starts_at is None or scheduled_at >= self.starts_at)
            and (self.ends_at is None or scheduled_at < self.ends_at)
        )

    def due(self, job_id: int, scheduled: int, following: int | None) -> int:
        """The second in which the occurrence is due: its own and the job's jitter."""
        if not self.jitter_seconds:
            return scheduled
        offset = jitter_offset(
            job_id,
            timedelta(seconds=self.jitter_seconds),
            to_datetime(scheduled),
            None if following is None else to_datetime(following),
        )
        return scheduled + int(offset.total_seconds())

    @property
    def is_plain_later(self) -> bool:
        """Whether only its youth makes it an individual."""
        return self.starts_at is None and self.ends_at is None and not self.jitter_seconds


class Roster:
    """A cadence with its members."""

    __slots__ = ("_following", "cadence", "cadence_id", "groups", "individuals", "pending", "shard")

    def __init__(self, cadence_id: int, shard: int, cadence: Cadence) -> None:
        self.cadence_id = cadence_id
        self.shard = shard
        self.cadence = cadence
        self.groups: dict[GroupKey, Group] = {}
        self.individuals: dict[int, Individual] = {}
        self._following: tuple[int, int] = (0, 0)
        self.pending = 0  # what is still to leave besides the next occurrence: the roster stays for it

    def __len__(self) -> int:
        return len(self.individuals) + sum(len(group.bodies) for group in self.groups.values())

    def group(self, key: GroupKey) -> Group:
        found = self.groups.get(key)
        if found is None:
            found = self.groups[key] = Group(self, key)
        return found

    def following(self, now: int) -> int | None:
        """The next occurrence. It is asked for each member of a load, so the last answer is kept."""
        asked, found = self._following
        if not asked <= now < found:
            following = self.cadence.next_second(now)
            if following is None:
                return None
            self._following = asked, found = now, following
        return found

    def latest(self, now: int, reach: int) -> int | None:
        """The newest occurrence in (now - reach, now]: the only one that a jitter can still hold back.

        An occurrence is due before the following one, whatever the jitter.
        """
        newest = self.cadence.newest(to_datetime(now - reach), to_datetime(now), 1)
        return int(newest[0].timestamp()) if newest else None

    def waiting(self, job_id: int, now: int) -> tuple[int, int, int] | None:
        """The occurrence that a member's jitter may be holding back: (cadence, scheduled, due)."""
        member = self.individuals.get(job_id)
        if member is None or not member.jitter_seconds:
            return None
        scheduled = self.latest(now, member.jitter_seconds)
        if scheduled is None:
            return None
        return self.cadence_id, scheduled, member.due(job_id, scheduled, self.cadence.next_second(scheduled))

    def job_ids(self) -> Iterator[int]:
        yield from self.individuals
        for group in self.groups.values():
            yield from group.bodies


class Home:
    """Where each member of one shard is kept: to find it again when the feed says that it changed."""

    __slots__ = ("_places",)

    def __init__(self) -> None:
        self._places: dict[int, Group | Roster] = {}

    def __len__(self) -> int:
        return len(self._places)

    def roster_of(self, job_id: int) -> Roster | None:
        place = self._places.get(job_id)
        return place.roster if isinstance(place, Group) else place

    def find(self, job_id: int) -> Individual | None:
        """The member as an individual, wherever it is kept; what a group has forgotten no longer matters."""
        place = self._places.get(job_id)
        if isinstance(place, Group):
            return Individual(place.key, place.bodies[job_id], valid_from=-1)
        return None if place is None else place.individuals[job_id]

    def put(self, roster: Roster, row: JobRow, *, expanded: int) -> None:
        """Add or replace a member; a plain one that owns all that is to come goes to its group."""
        self.remove(row.job_id)
        individual = Individual.of(row)
        following = roster.following(expanded)
        if individual.is_plain_later and (following is None or individual.owns(following * 1_000_000)):
            self._join(roster, row.job_id, individual)
        else:
            roster.individuals[row.job_id] = individual
            self._places[row.job_id] = roster

    def promote(self, roster: Roster, job_id: int) -> None:
        """Let a grown individual join its group."""
        self._join(roster, job_id, roster.individuals.pop(job_id))

    def remove(self, job_id: int) -> None:
        place = self._places.pop(job_id, None)
        if isinstance(place, Group):
            del place.bodies[job_id]
            if not place.bodies:
                del place.roster.groups[place.key]
        elif place is not None:
            del place.individuals[job_id]

    def forget(self, roster: Roster) -> None:
        """Drop a roster's members: its cadence fires again only beyond the window."""
        for job_id in roster.job_ids():
            del self._places[job_id]

    def _join(self, roster: Roster, job_id: int, individual: Individual) -> None:
        group = roster.group(individual.key)
        group.bodies[job_id] = individual.body
        self._places[job_id] = group
