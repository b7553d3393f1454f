"""Cycles are found wherever they hide, and only where there are any."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as some

from mainspring.registry.dependencies import cycle_refusal, find_cycle

EDGES = some.dictionaries(some.integers(1, 8), some.lists(some.integers(1, 8), max_size=4), max_size=8)


def test_a_diamond_is_no_cycle() -> None:
    assert find_cycle({4: [2, 3], 2: [1], 3: [1]}, [4]) is None


def test_a_job_that_waits_for_itself_is_one() -> None:
    assert find_cycle({1: [1]}, [1]) == [1, 1]


def test_the_way_leads_back_to_its_beginning() -> None:
    assert find_cycle({1: [2], 2: [3], 3: [4], 4: [2]}, [1]) == [2, 3, 4, 2]


def test_a_long_chain_is_walked_without_recursion() -> None:
    chain = {number: [number + 1] for number in range(100_000)}
    assert find_cycle(chain, [0]) is None
    cycle = find_cycle({**chain, 100_000: [0]}, [0])
    assert cycle is not None
    assert len(cycle) == 100_002


@given(EDGES)
def test_a_cycle_is_found_if_and_only_if_nothing_can_be_put_in_order(edges: dict[int, list[int]]) -> None:
    cycle = find_cycle(edges, list(edges))
    assert (cycle is None) == _can_be_ordered(edges)
    if cycle is not None:
        assert cycle[0] == cycle[-1]
        assert all(parent in edges[job] for job, parent in pairwise(cycle))


def _can_be_ordered(edges: dict[int, list[int]]) -> bool:
    """Take away, again and again, whoever waits for nobody that is left."""
    left = {job: set(parents) for job, parents in edges.items()}
    while left:
        free = [job for job, parents in left.items() if not parents & left.keys()]
        if not free:
            return False
        for job in free:
            del left[job]
    return True


def test_a_refusal_shows_names_and_ids_where_there_is_none() -> None:
    refusal = cycle_refusal([1, 2, 1], {1: "a", 2: None})
    assert refusal.field == "after"
    assert refusal.rule == "a job cannot wait for itself: a → j_0000000000002 → a"
