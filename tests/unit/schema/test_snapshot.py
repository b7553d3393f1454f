"""Which transactions a snapshot has seen."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.schema.snapshot import Snapshot

LARGEST = 2**64 - 1  # xid8 is wider than Postgres's own counter


@pytest.mark.parametrize("text", ["10:20:10,14,15", "7:7:", "742:745:742", f"{LARGEST - 1}:{LARGEST}:"])
def test_a_snapshot_is_read_and_written_in_the_form_of_postgres(text: str) -> None:
    assert str(Snapshot.parse(text)) == text


def test_the_running_transactions_are_written_in_order_of_their_numbers_not_of_their_digits() -> None:
    assert str(Snapshot(9, 200, frozenset({100, 9, 21}))) == "9:200:9,21,100"


@pytest.mark.parametrize("text", ["", "10:20", "10:20:30:40", "a:20:", "10:20:,", "10:20:1 2"])
def test_what_postgres_does_not_write_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        Snapshot.parse(text)


@pytest.mark.parametrize(
    ("transaction", "seen"),
    [(1, True), (9, True), (10, False), (11, True), (14, False), (19, True), (20, False), (LARGEST, False)],
)
def test_all_before_the_end_is_seen_but_what_was_under_way(transaction: int, seen: bool) -> None:
    assert Snapshot.parse("10:20:10,14").sees(transaction) is seen


@given(st.integers(0, 1000), st.integers(0, 50), st.sets(st.integers(0, 49)), st.integers(0, 1100))
def test_a_round_trip_through_text_sees_the_same(
    xmin: int, span: int, offsets: set[int], transaction: int
) -> None:
    running = frozenset(xmin + offset for offset in offsets if offset < span)
    snapshot = Snapshot(xmin, xmin + span, running)
    assert Snapshot.parse(str(snapshot)) == snapshot
    assert Snapshot.parse(str(snapshot)).sees(transaction) is (
        transaction < xmin + span and transaction not in running
    )
