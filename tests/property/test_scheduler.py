"""The scheduler's pure parts against models: shares played out, a database's clock, rosters, missed windows.

What a whole term hands out, through edits, loads and restarts, is in test_terms.py.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random

from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from mainspring.schedule import Cadence, MissedPolicy, Schedule, jitter_hash
from mainspring.schedule.wall import to_datetime
from mainspring.scheduler.expansion import Bucket
from mainspring.scheduler.rosters import GroupKey, Home, JobRow, Roster
from mainspring.scheduler.shares import Holdings, plan
from mainspring.scheduler.terms import Term
from tests.unit.scheduler.rows import (
    CADENCE_ID,
    DAY,
    EPOCH,
    EVERY_MINUTE,
    HOUR,
    MIDNIGHT,
    OLD,
    SHARD,
    at,
    job,
    messages,
)
from tests.unit.scheduler.worlds import World


@dataclass
class Cluster:
    """Members who carry out their plans; a key in etcd is created only where there is none."""

    shards: int
    random: Random
    members: set[str] = field(default_factory=set)
    holders: dict[int, str] = field(default_factory=dict)

    def round(self, *, at_once: bool) -> bool:
        """Everybody's turn, in any order, with one view for all or a fresh one each: did a key change?"""
        before = dict(self.holders)
        seen = Holdings(frozenset(self.members), dict(before))
        everybody = sorted(self.members | set(before.values()))
        for member in self.random.sample(everybody, len(everybody)):
            view = seen if at_once else Holdings(frozenset(self.members), dict(self.holders))
            todo = plan(member, self.shards, view, seed=self.random.randrange(1000))
            assert not set(todo.take) & set(todo.give)
            for shard in todo.give:
                assert self.holders.pop(shard) == member
            for shard in todo.take:
                self.holders.setdefault(shard, member)
        return self.holders != before

    def settle(self, *, at_once: bool) -> dict[str, set[int]]:
        for _ in range(12):
            if not self.round(at_once=at_once):
                return {member: self.of(member) for member in self.members}
        raise AssertionError(f"still moving after twelve rounds: {self.holders}")

    def of(self, member: str) -> set[int]:
        return {shard for shard, holder in self.holders.items() if holder == member}


@settings(deadline=None)
@given(st.integers(1, 80), st.integers(1, 20), st.integers(0, 20), st.booleans(), st.randoms())
@example(64, 8, 1, True, Random(0))
@example(64, 9, 8, False, Random(0))
def test_whoever_joins_or_leaves_shards_end_even_and_only_surplus_moves(
    shards: int, first: int, then: int, at_once: bool, random: Random
) -> None:
    cluster = Cluster(shards, random)
    cluster.members = {f"member {number}" for number in range(first)}
    before = cluster.settle(at_once=at_once)
    expect_even(shards, before)

    others = {f"member {number}" for number in range(then)}
    joined, left = others - cluster.members, cluster.members - others
    cluster.members = others
    after = cluster.settle(at_once=at_once)

    if not others:
        assert cluster.holders == {shard: who for who, held in before.items() for shard in held}
        return
    expect_even(shards, after)
    for member in others - joined:
        assert after[member] <= before[member] if joined else after[member] >= before[member]
    assert not any(cluster.of(member) for member in left)


def expect_even(shards: int, held: dict[str, set[int]]) -> None:
    assert set().union(*held.values()) == set(range(shards))
    assert {len(each) for each in held.values()} <= {shards // len(held), -(-shards // len(held))}


seconds = st.floats(0, 2) | st.floats(0, 0.01) | st.just(0.0)
drifts = st.sampled_from([-200e-6, 0, 200e-6]) | st.floats(-200e-6, 200e-6)
MICROSECOND = 2e-6  # what floats and datetimes round away at today's dates


@settings(deadline=None)
@given(
    st.floats(-1e6, 1e6),
    st.lists(
        st.tuples(st.floats(0, 60) | seconds, seconds, seconds, seconds, drifts), min_size=1, max_size=12
    ),
)
def test_the_clock_is_never_ahead_of_the_database_and_the_offset_never_wrong(
    ahead: float, questions: list[tuple[float, float, float, float, float]]
) -> None:
    world = World(ahead=ahead)
    for pause, there, back, held_up, drift in questions:
        world.drift = drift
        if world.clock.known:
            world.wait(pause)
            expect_truth(world)
        world.ask(there, back, held_up=held_up)
        expect_truth(world)


def expect_truth(world: World) -> None:
    assert world.error <= MICROSECOND
    assert world.truth <= world.clock.now() + world.clock.uncertainty() + MICROSECOND
    offset, actual = world.clock.offset(), world.truth - world.machine.now().timestamp()
    assert offset.low - MICROSECOND <= actual <= offset.high + MICROSECOND


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.floats(0, 5), st.floats(0, 0.2), st.floats(0, 0.2)), max_size=6),
    st.floats(-7200, 7200),
    st.floats(0, 0.2),
    st.floats(0, 0.2),
)
def test_a_step_is_noticed_by_the_first_answer_that_is_quicker_than_it(
    questions: list[tuple[float, float, float]], step: float, there: float, back: float
) -> None:
    assume(abs(step) > there + back + 0.1)
    world = World()
    for pause, forth, home in questions:
        world.wait(pause)
        world.ask(forth, home)
    world.step(step)
    world.ask(there, back)
    if step < 0:
        assert world.error <= MICROSECOND
    assert world.truth <= world.clock.now() + world.clock.uncertainty() + 0.01 + 0.4 * (step > 0)


JOBS = st.integers(1, 8)
ROSTERS = st.integers(0, 2)
MARK = MIDNIGHT


class RostersAgainstADictionary(RuleBasedStateMachine):
    """The model says where each member is and as what; home and rosters must both say the same."""

    def __init__(self) -> None:
        super().__init__()
        self.home = Home()
        self.rosters = [Roster(number, SHARD, EVERY_MINUTE) for number in range(3)]
        self.model: dict[int, tuple[int, JobRow]] = {}
        self.version = 0

    @rule(
        job_id=JOBS,
        place=ROSTERS,
        valid_from=st.sampled_from([OLD, MARK, MARK + 60 - 1e-6, MARK + 60, MARK + 61]),
        jitter=st.sampled_from([0, 0, 60]),
        ends_at=st.sampled_from([None, None, MARK + HOUR]),
        priority=st.sampled_from([5, 9]),
    )
    def put(
        self, job_id: int, place: int, valid_from: float, jitter: int, ends_at: int | None, priority: int
    ) -> None:
        self.version += 1
        row = job(
            job_id,
            cadence_id=place,
            valid_from=valid_from,
            jitter_seconds=jitter,
            ends_at=ends_at,
            priority=priority,
            version=self.version,
        )
        self.home.put(self.rosters[place], row, expanded=MARK)
        self.model[job_id] = (place, row)

    @rule(job_id=JOBS)
    def remove(self, job_id: int) -> None:
        self.home.remove(job_id)
        self.model.pop(job_id, None)

    @precondition(lambda self: any(roster.individuals for roster in self.rosters))
    @rule(data=st.data())
    def promote(self, data: st.DataObject) -> None:
        grown = [
            (roster, job_id)
            for roster in self.rosters
            for job_id, member in roster.individuals.items()
            if member.is_plain_later
        ]
        if grown:
            roster, job_id = data.draw(st.sampled_from(grown))
            self.home.promote(roster, job_id)
            assert job_id not in roster.individuals

    @rule(place=ROSTERS)
    def forget(self, place: int) -> None:
        self.home.forget(self.rosters[place])
        self.rosters[place] = Roster(place, SHARD, EVERY_MINUTE)
        self.model = {job_id: held for job_id, held in self.model.items() if held[0] != place}

    @invariant()
    def everybody_is_where_the_model_says(self) -> None:
        assert len(self.home) == len(self.model)
        for job_id in range(1, 9):
            place, row = self.model.get(job_id, (None, None))
            found = self.home.find(job_id)
            assert self.home.roster_of(job_id) is (None if place is None else self.rosters[place])
            if row is None:
                assert found is None
            else:
                assert found is not None
                assert (found.key, found.body) == (GroupKey.of(row), row.body)

    @invariant()
    def rosters_hold_these_once_and_nothing_is_left_over(self) -> None:
        for place, roster in enumerate(self.rosters):
            members = sorted(job_id for job_id, held in self.model.items() if held[0] == place)
            assert sorted(roster.job_ids()) == members
            assert len(roster) == len(members)
            assert all(group.bodies for group in roster.groups.values())
            assert all(group.roster is roster for group in roster.groups.values())

    @invariant()
    def only_plain_members_that_own_all_that_is_to_come_are_in_a_group(self) -> None:
        for job_id, (place, row) in self.model.items():
            if job_id not in self.rosters[place].individuals:
                assert (row.starts_at, row.ends_at, row.jitter_seconds) == (None, None, 0)


TestRostersAgainstADictionary = RostersAgainstADictionary.TestCase
TestRostersAgainstADictionary.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)


cadences = st.one_of(
    st.integers(1, 5000).map(lambda interval: Cadence.parse(f"every {interval}s")),
    st.sampled_from(
        ["* * * * *", "*/7 * * * *", "0 * * * *", "5,6,50 * * * *", "30 2 * * *", "*/20 * * * * *"]
    ).map(lambda text: Cadence.parse(text, "America/New_York")),
)
gaps = st.sampled_from([1, 59, 60, 61, 600, 3 * HOUR, 3 * DAY]) | st.integers(1, 4 * HOUR)


@st.composite
def missing_leaders(draw: st.DrawFn) -> tuple[Cadence, JobRow, int, int]:
    """A cadence, a member, the mark, and the end of the gap behind it."""
    cadence = draw(cadences)
    mark = MIDNIGHT + draw(st.integers(0, 2 * DAY))
    gap_to = mark + draw(gaps)
    assume(cadence.count(to_datetime(mark), to_datetime(gap_to), 501) <= 500)
    inside = st.floats(mark - 100, gap_to + 100)
    starts_at = draw(st.none() | inside)
    ends_at = draw(st.none() | inside)
    if starts_at is not None and ends_at is not None and ends_at < starts_at + 1:
        ends_at = None
    row = job(
        draw(st.integers(1, 1000)),
        valid_from=draw(st.just(OLD) | inside),
        starts_at=starts_at,
        ends_at=ends_at,
        jitter_seconds=draw(st.sampled_from([0, 0, 5, 240, 3600])),
        missed_window=draw(st.sampled_from(MissedPolicy)),
        grace_seconds=draw(st.sampled_from([0, 1, 60, 600, 7200])),
        max_missed=draw(st.sampled_from([1, 2, 3, 10, 100])),
    )
    return cadence, row, mark, gap_to


def schedule_of(cadence: Cadence, row: JobRow) -> Schedule:
    def instant(microseconds: int | None) -> datetime | None:
        return None if microseconds is None else to_datetime(0) + timedelta(microseconds=microseconds)

    return Schedule(
        cadence,
        valid_from=instant(row.valid_from),
        starts_at=instant(row.starts_at),
        ends_at=instant(row.ends_at),
        jitter=timedelta(seconds=row.jitter_seconds),
        missed_policy=row.missed_window,
        grace=timedelta(seconds=row.grace_seconds),
        max_missed=row.max_missed,
    )


def take_over(cadence: Cadence, row: JobRow, mark: int, gap_to: int) -> Term:
    """A leader that has loaded everything to the end of the gap and its jitter."""
    term = Term(SHARD, EPOCH, mark=mark, gap_to=gap_to)
    term.horizon = gap_to + DAY
    term.begin_loading(CADENCE_ID, cadence)
    term.load_member(row)
    term.adopt(CADENCE_ID, max_jitter=row.jitter_seconds, owed=(), since=mark)
    return term


@settings(max_examples=300, deadline=None)
@given(missing_leaders(), st.lists(st.integers(1, 3 * DAY), max_size=3), st.floats(0, 1e5), st.data())
def test_after_a_gap_each_job_runs_what_its_policy_says_however_often_the_leader_dies(
    gap: tuple[Cadence, JobRow, int, int], steps: list[int], delay: float, data: st.DataObject
) -> None:
    """Decided by the end of the gap and not by the clock: in any steps, under any number of leaders."""
    cadence, row, mark, gap_to = gap
    schedule = schedule_of(cadence, row)
    first = first_not_due(schedule, row, mark)
    oracle = schedule.missed(row.job_id, to_datetime(first - 1), to_datetime(gap_to), to_datetime(gap_to))
    ran: Counter[int] = Counter()
    missed = 0
    term, now = take_over(cadence, row, mark, gap_to), gap_to + delay
    through = mark
    while through < gap_to:
        through = min(gap_to, through + (steps.pop() if steps else DAY))
        bucket = Bucket()
        term.expand(bucket, at(now, gap_to), through)
        term.fired = through
        missed += bucket.missed.total()
        for message in messages(bucket.parcels):
            assert message.due <= through
            assert message.following == following_of(schedule, message.scheduled)
            assert message.topic == topic_of(row, message.due, gap_to)
            ran[message.scheduled] += 1
        if data.draw(st.booleans(), label="the leader dies"):
            term, now = take_over(cadence, row, through, gap_to), now + 100
    # What jitter moved beyond the gap is armed: it is not decided yet.
    expected = {int(moment.timestamp()) for moment in oracle.run}
    waiting = {moment for moment in expected if due_of(schedule, row, moment) > gap_to}
    assert set(ran) == expected - waiting
    assert all(count == 1 for count in ran.values())
    assert missed == oracle.dropped


def first_not_due(schedule: Schedule, row: JobRow, mark: int) -> int:
    """The first second whose occurrence is due after the mark: jitter may have moved one over it."""
    reach = timedelta(seconds=row.jitter_seconds)
    for moment in schedule.cadence.newest(to_datetime(mark) - reach, to_datetime(mark), 1):
        if due_of(schedule, row, int(moment.timestamp())) > mark:
            return int(moment.timestamp())
    return mark + 1


def following_of(schedule: Schedule, scheduled: int) -> int | None:
    following = schedule.next_after(to_datetime(scheduled))
    return None if following is None else int(following.timestamp())


def due_of(schedule: Schedule, row: JobRow, scheduled: int) -> int:
    return int(schedule.due(row.job_id, to_datetime(scheduled)).timestamp())


def topic_of(row: JobRow, due: int, gap_to: int) -> str:
    return f"mainspring.default.{'catchup' if gap_to - due > row.grace_seconds else 'normal'}"


@settings(max_examples=100, deadline=None)
@given(cadences, st.integers(1, 10_000), st.integers(1, DAY), st.integers(0, 2 * DAY))
def test_a_jittered_job_leaves_at_its_nominal_instant_and_its_own_offset_always(
    cadence: Cadence, job_id: int, jitter: int, offset: int
) -> None:
    row = job(job_id, jitter_seconds=jitter)
    scheduled = cadence.next_second(MIDNIGHT + offset)
    assert scheduled is not None
    following = cadence.next_second(scheduled)
    assert following is not None
    due = scheduled + jitter_hash(job_id) % min(jitter, following - scheduled)
    # Leaders from before the instant, from the instant, and from a second before it is due.
    for mark in {scheduled - 1, scheduled, max(scheduled, due - 1)} - {due}:
        term = take_over(cadence, row, mark, due)
        early, then = Bucket(), Bucket()
        term.expand(early, at(due - 1), max(due - 1, mark))
        term.expand(then, at(due), due)
        assert [message for message in messages(early.parcels) if message.scheduled >= scheduled] == []
        assert [(message.scheduled, message.due) for message in messages(then.parcels)] == [(scheduled, due)]
