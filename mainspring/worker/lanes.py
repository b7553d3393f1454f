"""Which lane's messages are claimed next: pure.

Every lane that has something waiting gets a share of each claim by its weight, so `low` always
progresses, also under a flood of `high`. What a lane does not use goes to the others. A lane whose oldest
message has waited long weighs more: after a minute twice as much, after two three times.

Where handlers are slow, claims have room for one run or two, less than there are lanes. So what a lane did
not get is owed to it at the next claim; without that the heaviest lane would win every one of them, and
ageing would not help against a flood whose own messages grow old.
"""

from __future__ import annotations

from collections.abc import Mapping

from mainspring.schema.states import Lane

WEIGHTS: Mapping[Lane, float] = {Lane.HIGH: 8, Lane.NORMAL: 4, Lane.LOW: 2, Lane.CATCHUP: 1}
AGEING_SECONDS = 60.0

_MOST_OWED = 1.0
"""A run: what was owed in small claims must not outweigh the shares of a large one."""


class Sharing:
    """Shares out claim after claim."""

    def __init__(self) -> None:
        self._owed: dict[Lane, float] = {}

    def share_out(
        self, room: int, waiting: Mapping[Lane, int], oldest: Mapping[Lane, float]
    ) -> dict[Lane, int]:
        """How many to take of each lane; `oldest` says how many seconds a lane's first message has waited.

        Whoever has something waiting gets at least one, as long as there is room for that.
        """
        hungry = {lane: count for lane, count in waiting.items() if count > 0}
        weights = {lane: WEIGHTS[lane] * (1 + oldest.get(lane, 0.0) / AGEING_SECONDS) for lane in hungry}
        fair = _fair(room, weights)
        owed = {lane: self._owed.get(lane, 0.0) + fair[lane] for lane in hungry}
        shares = _take(room, hungry, owed)
        # Who has nothing waiting saves nothing up.
        self._owed = {
            lane: max(-_MOST_OWED, min(_MOST_OWED, owed[lane] - shares.get(lane, 0))) for lane in hungry
        }
        while (left := room - sum(shares.values())) > 0:
            rest = {lane: count - shares.get(lane, 0) for lane, count in hungry.items()}
            rest = {lane: count for lane, count in rest.items() if count > 0}
            if not rest:
                break
            for lane, taken in _take(left, rest, _fair(left, {lane: weights[lane] for lane in rest})).items():
                shares[lane] = shares.get(lane, 0) + taken
        return shares


def _fair(room: int, weights: Mapping[Lane, float]) -> dict[Lane, float]:
    total = sum(weights.values())
    return {lane: room * weight / total for lane, weight in weights.items()}


def _take(room: int, waiting: Mapping[Lane, int], owed: Mapping[Lane, float]) -> dict[Lane, int]:
    """Whole runs of what is owed, the most first; one at least is kept back for each that follows."""
    shares: dict[Lane, int] = {}
    order = sorted(waiting, key=lambda lane: -owed[lane])
    for place, lane in enumerate(order):
        if room <= 0:
            break
        behind = len(order) - place - 1
        shares[lane] = min(max(1, min(int(owed[lane]), room - behind)), waiting[lane], room)
        room -= shares[lane]
    return shares
