"""From a cadence to messages: who owns what, what is late, and in which order it leaves."""

from __future__ import annotations

import pytest

from mainspring.schedule import Cadence, MissedPolicy, jitter_hash
from mainspring.scheduler.expansion import Bucket, Expansion, Parcel, in_order
from mainspring.scheduler.rosters import Home, JobRow, Roster
from tests.unit.scheduler.rows import (
    CADENCE_ID,
    EVERY_MINUTE,
    HOUR,
    HOURLY,
    MIDNIGHT,
    MINUTE,
    SHARD,
    Message,
    at,
    job,
    messages,
    sent,
    timer,
)

NORMAL, CATCHUP = "mainspring.default.normal", "mainspring.default.catchup"
SKIP, RUN_ONCE, RUN_ALL = MissedPolicy


def expand(
    *rows: JobRow,
    cadence: Cadence = EVERY_MINUTE,
    mark: int = MIDNIGHT - 1,
    through: int = MIDNIGHT,
    now: float | None = None,
    gap_to: int | None = None,
) -> tuple[Bucket, Expansion, int | None]:
    """What leaves in (mark, through], the expansion and the occurrence after that."""
    roster, home, bucket = Roster(CADENCE_ID, SHARD, cadence), Home(), Bucket()
    for row in rows:
        home.put(roster, row, expanded=mark)
    expansion = Expansion(bucket, home, at(through if now is None else now, gap_to))
    first = cadence.next_second(mark)
    assert first is not None
    return bucket, expansion, expansion.cadence(roster, first, through)


def scheduled(bucket: Bucket) -> list[int]:
    """The instants that leave, in seconds after midnight."""
    return sorted(message.scheduled - MIDNIGHT for message in messages(bucket.parcels))


def test_members_alike_share_a_parcel_and_its_prefix() -> None:
    bucket, _, following = expand(*(job(number) for number in range(1, 101)))
    [parcel] = bucket.parcels
    assert len(bucket) == len(parcel.bodies) == 100
    assert bucket.counts() == {(SHARD, MIDNIGHT): 100}
    assert following == MIDNIGHT + MINUTE


def test_a_message_says_what_it_is() -> None:
    bucket, _, _ = expand(job(17, priority=8, pool="reports", version=3))
    assert messages(bucket.parcels) == [
        Message(17, MIDNIGHT, MIDNIGHT, "mainspring.reports.high", MIDNIGHT + MINUTE, 1, 3)
    ]


def test_nothing_leaves_for_a_cadence_without_members() -> None:
    bucket, _, following = expand()
    assert bucket.parcels == []
    assert following == MIDNIGHT + MINUTE


@pytest.mark.parametrize(
    ("valid_from", "fires"), [(MIDNIGHT - 0.000001, True), (MIDNIGHT, False), (MIDNIGHT + 0.5, False)]
)
def test_a_job_owns_only_what_comes_after_its_valid_from(valid_from: float, fires: bool) -> None:
    bucket, _, _ = expand(job(valid_from=valid_from))
    assert bool(bucket.parcels) is fires
    assert not bucket.missed


@pytest.mark.parametrize("starts_at", [MIDNIGHT + 60, MIDNIGHT + 59.5])
def test_a_start_is_inclusive(starts_at: float) -> None:
    bucket, _, _ = expand(job(starts_at=starts_at, grace_seconds=HOUR), through=MIDNIGHT + 180)
    assert scheduled(bucket) == [60, 120, 180]


@pytest.mark.parametrize(("ends_at", "last"), [(MIDNIGHT + 120, 60), (MIDNIGHT + 120.5, 120)])
def test_an_end_is_exclusive_and_the_last_occurrence_has_none_after_it(ends_at: float, last: int) -> None:
    bucket, _, _ = expand(job(ends_at=ends_at, grace_seconds=HOUR), through=MIDNIGHT + 300)
    found = messages(bucket.parcels)
    assert [message.scheduled - MIDNIGHT for message in found] == list(range(0, last + 1, 60))
    assert found[-1].following is None
    assert all(message.following == message.scheduled + 60 for message in found[:-1])
    assert not bucket.missed


def test_the_last_occurrence_before_an_end_runs_although_the_cadence_goes_on() -> None:
    """RUN_ONCE, late, and the cadence's next instant has passed: but the job does not own that one."""
    bucket, _, _ = expand(job(ends_at=MIDNIGHT + 60), now=MIDNIGHT + HOUR)
    assert scheduled(bucket) == [0]
    plain, _, _ = expand(job(), now=MIDNIGHT + HOUR)
    assert scheduled(plain) == []
    assert plain.missed == {CADENCE_ID: 1}


def test_jitter_moves_the_due_second_and_not_the_instant() -> None:
    job_id, offset = 4, jitter_hash(4) % 60
    bucket, expansion, _ = expand(job(job_id, jitter_seconds=300), through=MIDNIGHT)
    assert bucket.parcels == []
    assert expansion.armed == {(CADENCE_ID, MIDNIGHT, MIDNIGHT + offset): [job_id]}
    later, _, _ = expand(job(job_id, jitter_seconds=300), through=MIDNIGHT + offset)
    [message] = messages(later.parcels)
    assert (message.scheduled, message.due) == (MIDNIGHT, MIDNIGHT + offset)
    assert later.counts() == {(SHARD, MIDNIGHT + offset): 1}


def test_a_grown_job_joins_the_group_of_its_kind() -> None:
    rows = [job(1, grace_seconds=HOUR), job(2, grace_seconds=HOUR, valid_from=MIDNIGHT + 30)]
    bucket, _, _ = expand(*rows, through=MIDNIGHT + 120)
    expected = {1: [0, 60, 120], 2: [60, 120]}
    assert sent(bucket) == [(number, MIDNIGHT + each) for number in expected for each in expected[number]]
    assert [len(parcel.bodies) for parcel in bucket.parcels] == [1, 1, 1, 2]


# ── late ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("policy", MissedPolicy)
@pytest.mark.parametrize("grace", [0, 60, 600])
def test_exactly_its_grace_late_is_on_time(policy: MissedPolicy, grace: int) -> None:
    row = job(missed_window=policy, grace_seconds=grace)
    bucket, _, _ = expand(row, cadence=HOURLY, now=MIDNIGHT + grace)
    assert [message.topic for message in messages(bucket.parcels)] == [NORMAL]


@pytest.mark.parametrize(
    ("policy", "late_by", "runs"),
    [
        (SKIP, 61, False),
        (RUN_ONCE, 61, True),
        (RUN_ONCE, HOUR - 1, True),
        (RUN_ONCE, HOUR, False),
        (RUN_ALL, 10 * HOUR, True),
    ],
)
def test_later_than_that_the_policy_decides(policy: MissedPolicy, late_by: int, runs: bool) -> None:
    bucket, _, _ = expand(job(missed_window=policy), cadence=HOURLY, now=MIDNIGHT + late_by)
    assert [message.topic for message in messages(bucket.parcels)] == [CATCHUP] * runs
    assert bucket.missed == ({} if runs else {CADENCE_ID: 1})


def test_late_work_travels_in_a_lane_of_its_own_whatever_its_priority() -> None:
    bucket, _, _ = expand(job(1, priority=9), job(2, priority=0), cadence=HOURLY, now=MIDNIGHT + 61)
    assert {message.topic for message in messages(bucket.parcels)} == {CATCHUP}


def test_of_three_hours_skip_runs_what_is_within_its_grace() -> None:
    end = MIDNIGHT + 3 * HOUR
    bucket, _, _ = expand(job(missed_window=SKIP, grace_seconds=120), through=end, gap_to=end)
    assert scheduled(bucket) == [3 * HOUR - 120, 3 * HOUR - 60, 3 * HOUR]
    assert bucket.missed == {CADENCE_ID: 178}


def test_of_three_hours_run_once_runs_the_newest() -> None:
    end = MIDNIGHT + 3 * HOUR + 59
    row = job(grace_seconds=30)
    bucket, _, _ = expand(row, through=end, gap_to=end)
    assert scheduled(bucket) == [3 * HOUR]
    assert bucket.missed == {CADENCE_ID: 180}


def test_of_three_hours_run_all_runs_the_newest_up_to_its_cap_and_what_is_not_late() -> None:
    end = MIDNIGHT + 3 * HOUR
    row = job(missed_window=RUN_ALL, max_missed=10)
    bucket, _, _ = expand(row, through=end, gap_to=end)
    # 59 and 60 minutes past are within the grace of a minute; ten late ones come before them.
    assert scheduled(bucket) == list(range(3 * HOUR - 11 * 60, 3 * HOUR + 1, 60))
    assert bucket.missed == bucket.capped == {CADENCE_ID: 169}


def test_the_cap_counts_what_the_job_owns_and_not_what_came_after_its_end() -> None:
    end = MIDNIGHT + 10 * HOUR
    row = job(missed_window=RUN_ALL, max_missed=3, ends_at=MIDNIGHT + 5 * HOUR)
    bucket, _, _ = expand(row, through=end, gap_to=end)
    assert scheduled(bucket) == [5 * HOUR - 180, 5 * HOUR - 120, 5 * HOUR - 60]


def test_what_is_on_time_by_its_jitter_does_not_count_towards_the_cap() -> None:
    job_id = next(number for number in range(1, 1000) if jitter_hash(number) % 60 == 30)
    row = job(job_id, missed_window=RUN_ALL, max_missed=2, grace_seconds=0, jitter_seconds=60)
    end = MIDNIGHT + 10 * MINUTE + 15  # the tenth minute's own is due in fifteen seconds
    bucket, expansion, _ = expand(row, through=end, gap_to=end)
    assert scheduled(bucket) == [480, 540]
    assert [key[1] - MIDNIGHT for key in expansion.armed] == [600]


def test_the_cap_is_the_same_whoever_is_asked_about_first() -> None:
    """Two jobs alike, owed from different seconds on, the one that reaches further back comes second."""
    roster, home, bucket = Roster(CADENCE_ID, SHARD, EVERY_MINUTE), Home(), Bucket()
    for job_id in (1, 2):
        home.put(roster, job(job_id, missed_window=RUN_ALL, max_missed=10), expanded=MIDNIGHT)
    expansion = Expansion(bucket, home, at(MIDNIGHT + 961))
    expansion.owed(roster, 1, MIDNIGHT + 600, MIDNIGHT + 900)
    expansion.owed(roster, 2, MIDNIGHT, MIDNIGHT + 900)
    found = {number: [instant for each, instant in sent(bucket) if each == number] for number in (1, 2)}
    assert found[1] == [MIDNIGHT + 60 * minute for minute in range(11, 16)]
    assert found[2] == [MIDNIGHT + 60 * minute for minute in range(6, 16)]


def test_two_takeovers_in_a_row_run_run_once_twice() -> None:
    """The first leader decides and dies before its mark has moved; the second comes an hour later."""
    gap_to = MIDNIGHT + 600
    rows = [job(1), job(2, missed_window=SKIP), job(3, missed_window=RUN_ALL, max_missed=2)]
    first, _, _ = expand(*rows, through=gap_to, now=gap_to + 1, gap_to=gap_to)
    second, _, _ = expand(*rows, through=gap_to, now=gap_to + HOUR, gap_to=gap_to)
    assert sent(first) == sent(second)
    assert messages(first.parcels) == messages(second.parcels)
    assert first.missed == second.missed
    without, _, _ = expand(*rows, through=gap_to, now=gap_to + HOUR)
    assert sent(without) != sent(first)


def test_behind_the_gap_the_clock_decides_again() -> None:
    gap_to = MIDNIGHT + 600
    bucket, _, _ = expand(
        job(missed_window=SKIP), mark=gap_to, through=gap_to + 300, now=gap_to + 300, gap_to=gap_to
    )
    assert scheduled(bucket) == [840, 900]


# ── timers ────────────────────────────────────────────────────────────────────────────────────────────


def expand_timers(*due: int, now: float) -> Bucket:
    bucket = Bucket()
    timers = [timer(number, due=second, job_id=number) for number, second in enumerate(due, 1)]
    Expansion(bucket, Home(), at(now)).timers(timers)
    return bucket


def test_a_late_timer_goes_to_the_catchup_lane_and_is_left_to_the_worker() -> None:
    bucket = expand_timers(MIDNIGHT, MIDNIGHT + 1, MIDNIGHT + 40, now=MIDNIGHT + 61)
    assert [(message.due - MIDNIGHT, message.topic) for message in messages(bucket.parcels)] == [
        (0, CATCHUP),
        (1, NORMAL),
        (40, NORMAL),
    ]
    assert not bucket.missed


def test_timers_alike_but_for_the_job_share_a_parcel_and_others_do_not() -> None:
    bucket = Bucket()
    same = [timer(number, due=MIDNIGHT, job_id=number) for number in (1, 2, 3)]
    retry = timer(4, due=MIDNIGHT, job_id=4, attempt=2, retries=1)
    Expansion(bucket, Home(), at(MIDNIGHT)).timers([*same, retry])
    assert sorted(len(parcel.bodies) for parcel in bucket.parcels) == [1, 3]
    assert sorted(message.attempt for message in messages(bucket.parcels)) == [1, 1, 1, 2]
    assert bucket.timers == [*same, retry]


# ── the order of leaving ──────────────────────────────────────────────────────────────────────────────


def parcel(priority: int, tenant_id: int, count: int) -> Parcel:
    bodies = [b"%d:%d" % (tenant_id, number) for number in range(count)]
    return Parcel(priority, NORMAL, tenant_id, SHARD, MIDNIGHT, b"", bodies)


def order(*parcels: Parcel) -> list[tuple[int, int, bytes]]:
    return [(each.priority, each.tenant_id, body) for each in in_order(parcels) for body in each.bodies]


def test_priorities_leave_from_high_to_low() -> None:
    found = order(parcel(2, 1, 5), parcel(9, 2, 5), parcel(5, 1, 5), parcel(9, 1, 5))
    assert [priority for priority, _, _ in found] == [9] * 10 + [5] * 5 + [2] * 5


def test_a_tenant_with_one_job_does_not_wait_behind_the_hundred_thousand_of_another() -> None:
    found = order(parcel(5, 1, 100_000), parcel(5, 2, 1))
    place = [tenant for _, tenant, _ in found].index(2)
    assert place < 100
    assert len(found) == 100_001


def test_tenants_take_turns_and_nothing_is_lost_or_changes_its_order() -> None:
    parcels = [parcel(5, 1, 1000), parcel(5, 2, 300), parcel(5, 3, 70), parcel(5, 1, 10)]
    found = order(*parcels)
    assert {tenant for _, tenant, _ in found[:192]} == {1, 2, 3}
    for tenant in (1, 2, 3):
        mine = [body for _, owner, body in found if owner == tenant]
        assert mine == [body for each in parcels if each.tenant_id == tenant for body in each.bodies]


def test_one_tenant_alone_keeps_its_parcels_whole() -> None:
    parcels = [parcel(5, 1, 1000), parcel(5, 1, 300)]
    assert list(in_order(parcels)) == parcels
