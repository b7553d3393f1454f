"""Which lane's messages are claimed next: pure.

Every lane that has something waiting gets a share of each claim by its weight, so `low` always
progresses, also under a flood of `high`. What a lane does not use goes to the others. A lane whose oldest
message has waited long weighs more: after a minute twice as much, after two three times.
"""

from __future__ import annotations

from collections.abc import Mapping

from mainspring.schema.states import Lane

WEIGHTS: Mapping[Lane, float] = {Lane.HIGH: 8, Lane.NORMAL: 4, Lane.LOW: 2, Lane.CATCHUP: 1}
AGEING_SECONDS = 60.0


def share_out(room: int, waiting: Mapping[Lane, int], oldest: Mapping[Lane, float]) -> dict[Lane, int]:
    """How many to take of each lane; `oldest` says how many seconds a lane's first message has waited.

    Whoever has something waiting gets at least one, as long as there is room for that.
    """
    shares: dict[Lane, int] = {}
    hungry = {lane: count for lane, count in waiting.items() if count > 0}
    while room > 0 and hungry:
        weights = {lane: WEIGHTS[lane] * (1 + oldest.get(lane, 0.0) / AGEING_SECONDS) for lane in hungry}
        total, left = sum(weights.values()), room
        for lane in sorted(hungry, key=lambda each: -weights[each]):
            fair = max(1, int(room * weights[lane] / total))
            taken = min(fair, hungry[lane], left)
            shares[lane] = shares.get(lane, 0) + taken
            hungry[lane] -= taken
            left -= taken
        room = left
        hungry = {lane: count for lane, count in hungry.items() if count > 0}
    return shares
