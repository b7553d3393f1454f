"""Schedules against two oracles: a walk along the clock around eleven of its changes, and croniter elsewhere.

The walk knows nothing of our parser or of PEP 495. It lists every minute of three days, asks the zone what
the clock shows, and reads the policies off that list: a wall time that is not in it is missing, one that
is in it twice is repeated. Its fields come as sets, chosen together with the text that is given to the
code under test.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache

from croniter import croniter
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from mainspring.schedule import Cadence, DstPolicy, Gap, Kind, Repeat, Schedule, load_zone

CHANGES = [
    ("America/New_York", datetime(2026, 3, 8, 7, tzinfo=UTC)),
    ("America/New_York", datetime(2026, 11, 1, 6, tzinfo=UTC)),
    ("Europe/London", datetime(2026, 3, 29, 1, tzinfo=UTC)),
    ("Europe/London", datetime(2026, 10, 25, 1, tzinfo=UTC)),
    ("Australia/Lord_Howe", datetime(2026, 4, 4, 15, tzinfo=UTC)),
    ("Australia/Lord_Howe", datetime(2026, 10, 3, 15, 30, tzinfo=UTC)),
    ("Africa/Cairo", datetime(2026, 4, 23, 22, tzinfo=UTC)),
    ("Asia/Tehran", datetime(2022, 3, 21, 20, 30, tzinfo=UTC)),
    ("America/Santiago", datetime(2026, 4, 5, 3, tzinfo=UTC)),
    ("America/Santiago", datetime(2026, 9, 6, 4, tzinfo=UTC)),
    ("Pacific/Apia", datetime(2011, 12, 30, 10, tzinfo=UTC)),
]
MINUTE = timedelta(minutes=1)
WINDOW = timedelta(hours=30)
MARGIN = timedelta(hours=60)
"""The walk is longer than what is compared, so that walls at the edges have their neighbours."""


@dataclass(frozen=True)
class Pattern:
    """A field as text and as what that text means."""

    text: str
    values: frozenset[int]


def patterns(size: int) -> st.SearchStrategy[Pattern]:
    value = st.integers(0, size - 1)
    star = st.just(Pattern("*", frozenset(range(size))))
    steps = st.sampled_from([2, 3, 5, 7, 15]).map(lambda n: Pattern(f"*/{n}", frozenset(range(0, size, n))))
    lists = st.sets(value, min_size=1, max_size=4).map(
        lambda found: Pattern(",".join(map(str, sorted(found))), frozenset(found))
    )
    # Two different ends: croniter, one of the oracles, reads 0-0 as the whole field. (Ours: test_hard_cases.)
    ends = st.sets(value, min_size=2, max_size=2)
    ranges = ends.map(
        lambda found: Pattern(f"{min(found)}-{max(found)}", frozenset(range(min(found), max(found) + 1)))
    )
    return st.one_of(star, steps, lists, ranges)


policies = st.builds(DstPolicy, st.sampled_from(Gap), st.sampled_from(Repeat))
changes = st.sampled_from(CHANGES)


@cache
def walk(zone_name: str, change: datetime) -> tuple[list[datetime], dict[datetime, list[datetime]]]:
    """Every minute around a change, and for each wall time the minutes at which the clock shows it."""
    zone = load_zone(zone_name)
    instants = [change - MARGIN + MINUTE * step for step in range(2 * MARGIN // MINUTE)]
    shown: dict[datetime, list[datetime]] = {}
    for instant in instants:
        shown.setdefault(instant.astimezone(zone).replace(tzinfo=None, fold=0), []).append(instant)
    return instants, shown


def expected(
    zone_name: str, change: datetime, minute: Pattern, hour: Pattern, dst: DstPolicy
) -> list[datetime]:
    """The occurrences of `minute hour * * *` in the window, found by looking at every wall minute."""
    _, shown = walk(zone_name, change)
    fixed = not minute.text.startswith("*") and not hour.text.startswith("*")
    fired: set[datetime] = set()
    wall, last = min(shown), max(shown)
    while wall <= last:
        if wall.minute in minute.values and wall.hour in hour.values:
            times = shown.get(wall, [])
            if not fixed:
                fired.update(times)
            elif not times:
                fired.update([change] if dst.gap is Gap.RUN_AFTER else [])
            else:
                chosen = {Repeat.FIRST: times[:1], Repeat.SECOND: times[-1:], Repeat.BOTH: times}
                fired.update(chosen[dst.repeat])
        wall += MINUTE
    return sorted(moment for moment in fired if change - WINDOW < moment <= change + WINDOW)


@settings(max_examples=300, deadline=None)
@given(changes, patterns(60), patterns(24), policies, st.integers(-30 * 3600, 30 * 3600))
@example(
    CHANGES[1],
    Pattern("5,50", frozenset({5, 50})),
    Pattern("1", frozenset({1})),
    DstPolicy(repeat=Repeat.BOTH),
    -1800,
)
@example(
    CHANGES[1],
    Pattern("30", frozenset({30})),
    Pattern("1", frozenset({1})),
    DstPolicy(repeat=Repeat.FIRST),
    600,
)
@example(CHANGES[10], Pattern("0", frozenset({0})), Pattern("9", frozenset({9})), DstPolicy(), -60)
def test_around_a_change_the_code_agrees_with_a_walk_along_the_clock(
    change: tuple[str, datetime], minute: Pattern, hour: Pattern, dst: DstPolicy, offset: int
) -> None:
    zone_name, moment = change
    cadence = Cadence(Kind.CRON, f"{minute.text} {hour.text} * * *", zone_name, dst)
    oracle = expected(zone_name, moment, minute, hour, dst)
    # Iterated from before the window, and stateless from a base anywhere in it: the same answers.
    assert cadence.between(moment - WINDOW, moment + WINDOW, 10_000) == oracle
    base = moment + timedelta(seconds=offset)
    later = oracle[bisect_right(oracle, base) :]
    if later:
        assert cadence.next_after(base) == later[0]


@settings(max_examples=200, deadline=None)
@given(changes, patterns(60), patterns(60), patterns(24), policies, st.integers(-7200, 7200))
def test_with_seconds_answers_are_strictly_after_monotone_and_stateless(
    change: tuple[str, datetime], second: Pattern, minute: Pattern, hour: Pattern, dst: DstPolicy, offset: int
) -> None:
    zone_name, moment = change
    cadence = Cadence(Kind.CRON, f"{second.text} {minute.text} {hour.text} * * *", zone_name, dst)
    base = moment + timedelta(seconds=offset)
    following = cadence.next_after(base)
    assert following is not None
    assert following > base
    # Every base between a question and its answer has that answer.
    for between in (base + (following - base) / 3, following - timedelta(seconds=1)):
        assert cadence.next_after(between) == following
    after = cadence.next_after(following)
    assert after is not None
    assert after > following


names = st.sampled_from(["*", "1", "7", "MON", "1-5", "TUE,SAT", "0,3"])
days = st.sampled_from(["*", "1", "15", "31", "1,15", "10-20", "L"])
months = st.sampled_from(["*", "2", "JAN,JUL", "3-5", "12"])
bases = st.datetimes(datetime(2000, 1, 1), datetime(2099, 12, 31)).map(  # noqa: DTZ001
    lambda moment: moment.replace(microsecond=0, tzinfo=UTC)
)


@settings(max_examples=300, deadline=None)
@given(patterns(60), patterns(24), days, months, names, st.sampled_from(["UTC", "Asia/Tokyo"]), bases)
def test_away_from_changes_croniter_agrees(
    minute: Pattern, hour: Pattern, day: str, month: str, weekday: str, zone: str, base: datetime
) -> None:
    text = f"{minute.text} {hour.text} {day} {month} {weekday}"
    # Refused where it can never fire; with a weekday croniter gives up on it. (Both: tests/unit/schedule.)
    assume((day, month) != ("31", "2"))
    oracle = croniter(text, base.astimezone(load_zone(zone)), ret_type=datetime)
    cadence = Cadence(Kind.CRON, text, zone)
    moment = base
    for _ in range(3):
        following = cadence.next_after(moment)
        assert following == oracle.get_next().astimezone(UTC)
        assert following is not None
        moment = following


@given(st.integers(1, 100_000), st.integers(0, 99_999), bases)
def test_every_is_strictly_after_on_its_grid_and_nearest(interval: int, phase: int, base: datetime) -> None:
    cadence = Cadence(Kind.EVERY, f"{interval}s", phase=phase % interval)
    following = cadence.next_after(base)
    assert following is not None
    assert base < following <= base + timedelta(seconds=interval)
    assert (int(following.timestamp()) - phase) % interval == 0


@settings(deadline=None)
@given(patterns(60), patterns(24), bases, st.integers(0, 400_000), st.integers(1, 50))
def test_newest_is_the_tail_of_the_range(
    minute: Pattern, hour: Pattern, after: datetime, seconds: int, limit: int
) -> None:
    cadence = Cadence(Kind.CRON, f"{minute.text} {hour.text} * * *")
    through = after + timedelta(seconds=seconds)
    whole = cadence.between(after, through, 1_000_000)
    assert cadence.newest(after, through, limit) == whole[-limit:]
    assert cadence.count(after, through, 1_000_000) == len(whole)


@settings(deadline=None)
@given(patterns(60), st.integers(0, 2**63 - 1), st.integers(0, 86_400), bases)
def test_jitter_never_reaches_the_next_occurrence(
    minute: Pattern, job_id: int, jitter: int, base: datetime
) -> None:
    schedule = Schedule(Cadence(Kind.CRON, f"{minute.text} * * * *"), jitter=timedelta(seconds=jitter))
    first, second = schedule.between(base, base + timedelta(hours=3), 2)
    assert first <= schedule.due(job_id, first) < second <= schedule.due(job_id, second)
