"""Who holds which shards, one fact each; tests/property/test_scheduler.py lets many members play it out."""

from __future__ import annotations

import pytest

from mainspring.scheduler.shares import Holdings, Plan, plan


def holdings(members: str, **held: range) -> Holdings:
    """Members by one letter each, and who holds which range of shards; a holder need not be a member."""
    return Holdings(frozenset(members), {shard: who for who, shards in held.items() for shard in shards})


def test_a_lone_member_takes_everything() -> None:
    assert sorted(plan("a", 8, holdings("a")).take) == list(range(8))


def test_whoever_has_its_share_does_nothing() -> None:
    assert plan("a", 8, holdings("ab", a=range(4), b=range(4, 8))) == Plan()
    assert plan("a", 9, holdings("ab", a=range(5), b=range(5, 9))) == Plan()


def test_a_member_takes_no_more_than_its_share_of_what_is_free() -> None:
    todo = plan("a", 8, holdings("ab", a=range(1)))
    assert len(todo.take) == 3
    assert set(todo.take) <= set(range(1, 8))
    assert not todo.give


def test_a_member_gives_back_the_surplus_and_nothing_else() -> None:
    todo = plan("a", 8, holdings("ab", a=range(8)))
    assert len(todo.give) == 4
    assert not todo.take


@pytest.mark.parametrize(("shards", "members"), [(64, 8), (64, 16), (64, 32), (6, 3), (64, 1)])
def test_a_member_that_joins_an_even_cluster_gets_its_share(shards: int, members: int) -> None:
    """With a share rounded up for everybody the ninth process beside eight would lead nothing at all."""
    each = shards // members
    names = [chr(ord("A") + number) for number in range(members)]
    held = {name: range(number * each, (number + 1) * each) for number, name in enumerate(names)}
    seen = holdings("".join([*names, "z"]), **held)
    given = [shard for name in names for shard in plan(name, shards, seen).give]
    assert len(given) == shards // (members + 1)


def test_of_an_uneven_number_those_who_hold_most_keep_one_more() -> None:
    seen = holdings("abc", a=range(3), b=range(3, 7), c=range(7, 10))
    assert [plan(member, 10, seen) for member in "abc"] == [Plan(), Plan(), Plan()]


def test_members_who_see_the_same_free_shards_reach_for_different_ones() -> None:
    seen = holdings("ab")
    choices = {frozenset(plan("a", 64, seen, seed=seed).take) for seed in range(10)}
    assert len(choices) > 1


def test_a_process_that_is_no_member_gives_everything_to_those_that_are() -> None:
    todo = plan("a", 8, holdings("b", a=range(5), b=range(5, 8)))
    assert todo == Plan(give=(0, 1, 2, 3, 4))


def test_a_process_that_is_no_member_keeps_what_it_has_when_nobody_else_is() -> None:
    assert plan("a", 8, holdings("", a=range(5))) == Plan()


def test_a_process_that_is_no_member_takes_nothing() -> None:
    assert plan("a", 8, holdings("b"), abandoned=range(8)) == Plan()
    assert plan("a", 8, holdings(""), abandoned=range(8)) == Plan()


def test_an_abandoned_shard_is_taken_beyond_the_share() -> None:
    seen = holdings("ab", a=range(4))
    todo = plan("a", 8, seen, abandoned=(6, 7))
    assert sorted(todo.take) == [6, 7]


def test_below_its_share_a_member_takes_abandoned_shards_and_others() -> None:
    seen = holdings("ab", a=range(2))
    todo = plan("a", 8, seen, abandoned=(5, 6, 7))
    assert set(todo.take) >= {5, 6, 7}
    assert len(todo.take) == len(set(todo.take)) <= 5


def test_a_shard_that_somebody_holds_is_not_abandoned_whatever_is_said() -> None:
    seen = holdings("ab", a=range(4), b=range(4, 8))
    assert plan("a", 8, seen, abandoned=range(8)) == Plan()


def test_a_rescued_shard_is_not_surplus_in_the_next_round() -> None:
    """The member entitled to it did not take it: given back, it would lie there again."""
    rescued = holdings("ab", a=range(8))
    assert plan("a", 8, rescued, rescued=(4, 5, 6, 7)) == Plan()
    assert plan("a", 8, rescued, rescued=(4, 5)) == Plan(give=(6, 7))
    assert plan("a", 8, rescued) == Plan(give=(4, 5, 6, 7))


def test_a_process_that_is_no_member_gives_back_what_it_rescued_too() -> None:
    assert plan("a", 8, holdings("b", a=range(2)), rescued=(0, 1)) == Plan(give=(0, 1))
