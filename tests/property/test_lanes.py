"""Sharing the room of claims among lanes: bounds that hold whatever is waiting, however long."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from mainspring.schema.states import Lane
from mainspring.worker.lanes import WEIGHTS, Sharing

LANES = st.sampled_from(list(Lane))
ROOMS = st.integers(0, 20) | st.integers(0, 10_000)
WAITING = st.dictionaries(LANES, st.integers(0, 8) | st.integers(0, 20_000))
AGES = st.dictionaries(LANES, st.floats(0, 1e6))
CLAIMS = st.lists(st.tuples(ROOMS, WAITING, AGES), min_size=1, max_size=12)
HUNGRY = st.sets(LANES, min_size=1)


@given(CLAIMS)
def test_all_room_is_used_and_never_more_than_is_waiting(
    claims: list[tuple[int, Mapping[Lane, int], Mapping[Lane, float]]],
) -> None:
    sharing = Sharing()
    for room, waiting, oldest in claims:
        shares = sharing.share_out(room, waiting, oldest)
        assert sum(shares.values()) == min(room, sum(waiting.values()))
        assert all(0 < taken <= waiting[lane] for lane, taken in shares.items())
        hungry = {lane for lane, count in waiting.items() if count}
        assert room < len(hungry) or shares.keys() == hungry


@given(CLAIMS, st.integers(1, 5), HUNGRY, st.floats(0, 1e6))
def test_whatever_went_before_no_lane_starves_in_small_claims(
    before: list[tuple[int, Mapping[Lane, int], Mapping[Lane, float]]],
    room: int,
    hungry: set[Lane],
    age: float,
) -> None:
    """The lightest lane, a run ahead of its share, is due again within three times the sum of the weights."""
    sharing = Sharing()
    for claim in before:
        sharing.share_out(*claim)
    starved = set(hungry)
    for _ in range(int(3 * sum(WEIGHTS.values()))):
        starved -= sharing.share_out(room, dict.fromkeys(hungry, 1000), dict.fromkeys(hungry, age)).keys()
    assert not starved
