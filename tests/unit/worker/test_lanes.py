"""How the room of a claim is shared among the lanes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pytest

from mainspring.schema.states import Lane
from mainspring.worker.lanes import AGEING_SECONDS, WEIGHTS, Sharing

FLOOD = 1_000_000
EVERYWHERE = dict.fromkeys(Lane, FLOOD)


def share_out(
    room: int, waiting: Mapping[Lane, int], oldest: Mapping[Lane, float] | None = None
) -> dict[Lane, int]:
    return Sharing().share_out(room, waiting, oldest or {})


def test_a_lane_alone_gets_all_the_room() -> None:
    assert share_out(100, {Lane.LOW: FLOOD}) == {Lane.LOW: 100}


def test_lanes_share_by_their_weights() -> None:
    shares = share_out(1500, EVERYWHERE)
    assert shares == {Lane.HIGH: 800, Lane.NORMAL: 400, Lane.LOW: 200, Lane.CATCHUP: 100}


def test_what_a_lane_does_not_use_goes_to_the_others() -> None:
    waiting = {Lane.HIGH: 10, Lane.NORMAL: 0, Lane.LOW: 2000, Lane.CATCHUP: 2000}
    shares = share_out(910, waiting)
    assert shares == {
        Lane.HIGH: 10,
        Lane.LOW: pytest.approx(600, abs=1),
        Lane.CATCHUP: pytest.approx(300, abs=1),
    }


@pytest.mark.parametrize("room", range(len(Lane), 30))
def test_every_hungry_lane_gets_something_where_there_is_room_for_it(room: int) -> None:
    assert set(share_out(room, EVERYWHERE)) == set(Lane)


def test_nothing_is_taken_without_room_or_without_messages() -> None:
    assert share_out(0, EVERYWHERE) == {}
    assert share_out(10, dict.fromkeys(Lane, 0)) == {}
    assert share_out(10, {}) == {}


def test_never_more_than_is_waiting() -> None:
    assert share_out(100, {Lane.HIGH: 3, Lane.LOW: 2}) == {Lane.HIGH: 3, Lane.LOW: 2}


def test_low_progresses_under_a_flood_of_high_also_where_claims_have_room_for_one() -> None:
    """Slots of slow handlers come free one by one, and the flood's own messages grow as old as the others."""
    sharing, taken = Sharing(), Counter[Lane]()
    old = dict.fromkeys(Lane, 600.0)
    for _ in range(1500):
        taken.update(sharing.share_out(1, EVERYWHERE, old))
    for lane, weight in WEIGHTS.items():
        assert taken[lane] == pytest.approx(100 * weight, abs=2)


def test_a_lane_that_had_nothing_waiting_has_saved_nothing_up() -> None:
    sharing = Sharing()
    for _ in range(100):
        sharing.share_out(1, {Lane.HIGH: FLOOD}, {})
    first = Counter[Lane]()
    for _ in range(15):
        first.update(sharing.share_out(1, EVERYWHERE, {}))
    assert first[Lane.HIGH] >= 7


def test_what_large_claims_gave_beyond_the_share_is_not_held_against_a_lane() -> None:
    """Of four places catchup gets one, though a quarter of one would be its share."""
    sharing, taken = Sharing(), Counter[Lane]()
    for _ in range(1000):
        sharing.share_out(4, EVERYWHERE, {})
    for _ in range(45):
        taken.update(sharing.share_out(1, EVERYWHERE, {}))
    assert taken[Lane.CATCHUP] >= 1


def test_a_lane_whose_oldest_message_has_waited_a_minute_weighs_twice() -> None:
    two = {Lane.HIGH: FLOOD, Lane.NORMAL: FLOOD}
    assert share_out(90, two) == {Lane.HIGH: 60, Lane.NORMAL: 30}
    assert share_out(90, two, {Lane.NORMAL: AGEING_SECONDS}) == {Lane.HIGH: 45, Lane.NORMAL: 45}
    assert share_out(100, two, {Lane.NORMAL: 2 * AGEING_SECONDS}) == {Lane.HIGH: 40, Lane.NORMAL: 60}
