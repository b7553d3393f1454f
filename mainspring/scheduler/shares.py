"""Who should hold which shards: a pure function of what etcd shows, the same in every process.

Each member is entitled to an equal share, rounded up. A member above it gives back the surplus, a member
below it takes free shards. A shard that nobody holds for longer than `abandoned_after` may be taken
beyond the share: the member entitled to it evidently cannot.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Holdings:
    """What etcd shows at one revision: the members, and who holds which shard."""

    members: frozenset[str]
    holders: Mapping[int, str]

    def of(self, member: str) -> list[int]:
        return sorted(shard for shard, holder in self.holders.items() if holder == member)


@dataclass(frozen=True, slots=True)
class Plan:
    """What one member should do now."""

    take: tuple[int, ...] = ()
    give: tuple[int, ...] = ()


def fair_share(shards: int, members: int) -> int:
    """How many shards one of `members` processes may hold."""
    return -(-shards // members) if members else 0


def plan(
    me: str, shards: int, holdings: Holdings, *, abandoned: Collection[int] = (), seed: int | None = None
) -> Plan:
    """What `me` should take or give back. A process that is no member gives everything to those that are.

    `abandoned` are the free shards that nobody has taken for long. The choice among free shards is random, so
    that members who see the same free shards reach for different ones.
    """
    mine = holdings.of(me)
    if me not in holdings.members:
        return Plan(give=tuple(mine) if holdings.members else ())
    share = fair_share(shards, len(holdings.members))
    if len(mine) > share:
        return Plan(give=tuple(mine[share:]))
    free = [shard for shard in range(shards) if shard not in holdings.holders]
    random.Random(seed).shuffle(free)  # noqa: S311
    within = free[: share - len(mine)]
    beyond = [shard for shard in free[share - len(mine) :] if shard in abandoned]
    return Plan(take=(*within, *beyond))
