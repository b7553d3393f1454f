"""RUN_ALL has a cap: of more than `max_missed` late occurrences that a job owns, the newest run.

Where the newest lie is a matter of the cadence, so it is found once per cadence and end of the lateness,
not per member. What a member adds is its own end, and its jitter: that stays below the following occurrence,
so it can make only the very newest of the late ones be on time after all.
"""

from __future__ import annotations

from typing import NamedTuple

from mainspring.schedule.wall import to_datetime
from mainspring.scheduler.rosters import GroupKey, Individual, Roster

_MICROSECONDS = 1_000_000


class Run(NamedTuple):
    """One occurrence of members about whom everything is decided at once; `member` if it is a single one."""

    roster: Roster
    key: GroupKey
    scheduled: int
    due: int
    following: int | None
    job_id: int = 0
    member: Individual | None = None


class _Newest(NamedTuple):
    """The newest late occurrences, looked for from the second `since` on."""

    since: int
    found: list[int]


class Caps:
    """Remembers, for one bucket of one shard, where the newest late occurrences of each cadence lie."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int, int], _Newest] = {}

    def allows(self, run: Run, last: int) -> bool:
        """Whether fewer than `max_missed` late ones come after this one; after second `last` nothing is."""
        newest = self._newest(run, _end(run.member, last))
        if newest and run.member is not None:
            following = run.roster.cadence.next_second(newest[-1])
            if run.member.due(run.job_id, newest[-1], following) > last:
                newest = newest[:-1]
        kept = newest[-run.key.max_missed :]
        return len(kept) < run.key.max_missed or run.scheduled >= kept[0]

    def _newest(self, run: Run, end: int) -> list[int]:
        """The newest occurrences through `end`, one more than may run, as far back as this one."""
        key = (run.roster.cadence_id, run.key.max_missed, end)
        known = self._known.get(key)
        if known is None or (run.scheduled < known.since and len(known.found) <= run.key.max_missed):
            found = run.roster.cadence.newest(
                to_datetime(run.scheduled - 1), to_datetime(end), run.key.max_missed + 1
            )
            known = self._known[key] = _Newest(run.scheduled, [int(each.timestamp()) for each in found])
        return known.found


def _end(member: Individual | None, last: int) -> int:
    """The last second up to `last` that the member can own."""
    if member is None or member.ends_at is None:
        return last
    return min(last, (member.ends_at - 1) // _MICROSECONDS)
