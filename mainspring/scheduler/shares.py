"""Who should hold which shards: a pure function of what etcd shows, the same in every process.

Shares are equal; where the shards do not divide evenly, one more goes to those members who hold most
already, so that as little as possible changes hands. A share rounded up for everybody would not do: eight
members hold eight shards of sixty-four each, and a ninth would find nothing that anybody had to give.

A member above its share gives back the surplus, a member below it takes free shards. A shard that nobody
holds for long is *abandoned* and may be taken beyond the share: the member entitled to it evidently cannot.
Whoever took it so has *rescued* it, and must say so for a while, or it would be surplus in the next round.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Holdings:
    """What etcd shows at one revision: the members, and who holds which shard."""

    members: frozenset[str]
    holders: Mapping[int, str]

    def of(self, member: str) -> list[int]:
        return sorted(shard for shard, holder in self.holders.items() if holder == member)

    def share(self, member: str, shards: int) -> int:
        """How many of the shards this member may hold."""
        held = Counter(self.holders.values())
        ranked = sorted(self.members, key=lambda each: (-held[each], each))
        least, remainder = divmod(shards, len(ranked))
        return least + (ranked.index(member) < remainder)


@dataclass(frozen=True, slots=True)
class Plan:
    """What one member should do now."""

    take: tuple[int, ...] = ()
    give: tuple[int, ...] = ()


def plan(
    me: str,
    shards: int,
    holdings: Holdings,
    *,
    abandoned: Collection[int] = (),
    rescued: Collection[int] = (),
    seed: int | None = None,
) -> Plan:
    """What `me` should take or give back. A process that is no member gives everything to those that are.

    `abandoned` are the free shards that nobody has taken for long, `rescued` those of ours that were. The
    choice among free shards is random, so that members who see the same free shards reach for different ones.
    """
    mine = holdings.of(me)
    if me not in holdings.members:
        return Plan(give=tuple(mine) if holdings.members else ())
    share = holdings.share(me, shards)
    if len(mine) > share:
        return Plan(give=tuple([shard for shard in mine if shard not in rescued][share:]))
    free = [shard for shard in range(shards) if shard not in holdings.holders]
    random.Random(seed).shuffle(free)  # noqa: S311
    within = free[: share - len(mine)]
    beyond = [shard for shard in free[share - len(mine) :] if shard in abandoned]
    return Plan(take=(*within, *beyond))
