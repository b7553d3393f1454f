"""A term against an oracle: jobs and timers change, load and fire in any order, and leaders die.

The model is the database: rows with their versions, a log of commits, the marks. The term sees it through
a feed that is polled now and then and through loads, as a real one does. Whatever happens,

    nothing leaves early, nor for an instant that the version it carries does not own;
    whatever a version owns that the feed has brought has left once its second is behind, or is owed;
    nothing leaves twice under one leader, except where the code says that it cannot know.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mainspring.schedule import Cadence, MissedPolicy, jitter_hash
from mainspring.scheduler.expansion import Bucket, Timer
from mainspring.scheduler.rosters import JobRow
from mainspring.scheduler.terms import FEED_LAG, REACH, Term
from tests.unit.scheduler.rows import EPOCH, MIDNIGHT, SHARD, at, job, messages, micros, timer

WINDOW = 600
NEVER_LATE: dict[str, Any] = {
    "grace_seconds": 10**7,
    "missed_window": MissedPolicy.RUN_ALL,
    "max_missed": 10_000,
}
CADENCES = {
    1: Cadence.parse("every 7s"),
    2: Cadence.parse("* * * * *"),
    3: Cadence.parse("every 13m"),
    4: Cadence.parse("3,4,40 * * * *"),
    5: Cadence.parse("every 3h"),
}
JITTERS = st.sampled_from([0, 0, 5, 240, 900, 4000])
PLACES = st.sampled_from(sorted(CADENCES))
PAUSES = st.sampled_from([0.3, 1, 2, 10, 59, 60, 61, 240, 590])


def due_of(row: JobRow, scheduled: int) -> int:
    following = CADENCES[row.cadence_id or 0].next_second(scheduled)
    assert following is not None
    room = min(row.jitter_seconds, following - scheduled)
    return scheduled + (jitter_hash(row.job_id) % room if room else 0)


def owns(row: JobRow, scheduled: int) -> bool:
    ended = row.ends_at is not None and micros(scheduled) >= row.ends_at
    on_time = CADENCES[row.cadence_id or 0].next_second(scheduled - 1) == scheduled
    return row.active and on_time and micros(scheduled) > row.valid_from and not ended


def owned(row: JobRow, through: int) -> Iterable[int]:
    """What this version owns and is due through this second."""
    if not row.active or row.cadence_id is None:
        return
    scheduled = CADENCES[row.cadence_id].next_second(row.valid_from // 1_000_000)
    while scheduled is not None and scheduled <= through:
        if due_of(row, scheduled) <= through and owns(row, scheduled):
            yield scheduled
        scheduled = CADENCES[row.cadence_id].next_second(scheduled)


class _Flying(NamedTuple):
    """A bucket on its way, and how far the feed had come when it left."""

    through: int
    cursor: int
    polled: float
    bucket: Bucket


class TermAgainstTheDatabase(RuleBasedStateMachine):
    """See above. `applied` is what the feed has brought; `left` what is out, by job and instant."""

    @initialize()
    def begin(self) -> None:
        self.now = MIDNIGHT + 0.5
        self.versions: dict[int, dict[int, JobRow]] = {}
        self.rows: dict[int, JobRow] = {}
        self.open: dict[int, JobRow] = {}
        self.timers: dict[int, Timer] = {}
        self.log: list[tuple[str, int]] = []
        self.changed = 100
        self.applied: dict[int, JobRow] = {}
        self.armed: dict[int, Timer] = {}
        self.left: Counter[tuple[int, int]] = Counter()
        self.timers_left: Counter[tuple[int, int]] = Counter()
        self.mark, self.seen, self.seen_at = MIDNIGHT, 0, float(MIDNIGHT)
        self.take_over()

    # ── what others do to jobs ────────────────────────────────────────────────────────────────────────

    def write(self, row: JobRow, *, late: bool) -> None:
        self.now += 0.001  # no two changes of a job share an instant
        self.versions.setdefault(row.job_id, {})[row.version] = row
        self.open[row.job_id] = row
        if not late:
            self.commit_one(row.job_id)

    def commit_one(self, job_id: int) -> None:
        self.expect_nothing_lost()  # what has not left by now may be bound by this change
        self.rows[job_id] = self.open.pop(job_id)
        self.log.append(("job", job_id))

    def change(self, data: st.DataObject, *, late: bool, of: bool | None = None, **fields: Any) -> None:
        """A new version of some job that nobody else is changing."""
        free = [row for job_id, row in self.rows.items() if job_id not in self.open and self.is_known(row)]
        free = [row for row in free if of is None or row.active is of]
        if not free:
            return
        row = data.draw(st.sampled_from(free))
        version = row.version + 1
        if fields.get("cadence_id") != row.cadence_id and "cadence_id" in fields:
            fields["valid_from"] = micros(self.now)
        made = job(row.job_id, version=version)
        self.write(
            row._replace(version=version, body=made.body, updated_at=micros(self.now), **fields), late=late
        )

    def is_known(self, row: JobRow) -> bool:
        """Not a change that took long to commit and is edited before the feed has seen it: where a load falls
        between the two, a term cannot tell it from a job that it knows.
        """
        return self.applied.get(row.job_id) is row or row.valid_from > micros(self.now - FEED_LAG / 2)

    @precondition(lambda self: len(self.versions) < 6)
    @rule(place=PLACES, jitter=JITTERS, ends=st.sampled_from([None, None, 500]), late=st.booleans())
    def create(self, place: int, jitter: int, ends: int | None, late: bool) -> None:
        job_id = len(self.versions) + 1
        ends_at = None if ends is None else self.now + ends
        row = job(
            job_id,
            cadence_id=place,
            valid_from=self.now,
            jitter_seconds=jitter,
            ends_at=ends_at,
            **NEVER_LATE,
        )
        self.write(row, late=late)

    @rule(data=st.data(), late=st.booleans())
    def edit_the_payload(self, data: st.DataObject, late: bool) -> None:
        self.change(data, late=late)

    @rule(data=st.data(), late=st.booleans(), jitter=JITTERS)
    def edit_the_jitter(self, data: st.DataObject, late: bool, jitter: int) -> None:
        self.change(data, late=late, of=True, jitter_seconds=jitter)

    @rule(data=st.data(), late=st.booleans(), place=PLACES)
    def edit_the_schedule(self, data: st.DataObject, late: bool, place: int) -> None:
        self.change(data, late=late, cadence_id=place)

    @rule(data=st.data(), late=st.booleans())
    def pause(self, data: st.DataObject, late: bool) -> None:
        self.change(data, late=late, of=True, active=False)

    @rule(data=st.data(), late=st.booleans())
    def resume(self, data: st.DataObject, late: bool) -> None:
        self.change(data, late=late, of=False, active=True, valid_from=micros(self.now))

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        self.commit_one(data.draw(st.sampled_from(sorted(self.open))))

    @rule(timer_id=st.integers(1, 4), ahead=st.sampled_from([-30, 0, 1, 30, 400, 900, 2000]))
    def put_timer(self, timer_id: int, ahead: int) -> None:
        """Made, or moved by its owner."""
        self.changed += 1
        due = int(self.now) + ahead
        self.timers[timer_id] = timer(timer_id, due=due, job_id=1000 + timer_id, changed=self.changed)
        self.log.append(("timer", timer_id))

    # ── what the leader does ──────────────────────────────────────────────────────────────────────────

    def take_over(self) -> None:
        self.term = Term(SHARD, EPOCH, mark=self.mark, gap_to=None)
        self.flying: _Flying | None = None
        self.left_now: Counter[tuple[int, int]] = Counter()
        self.timers_now: Counter[tuple[int, int]] = Counter()
        self.unsure: set[int] = set()
        self.ahead = False
        self.brought: tuple[list[JobRow], list[Timer]] | None = None
        self.cursor, self.polled = len(self.log), self.now
        self.applied = dict(self.rows)
        self.armed = dict(self.timers)
        changed = {number for kind, number in self.log[self.seen :] if kind == "job"}
        owed = [self.rows[job_id] for job_id in sorted(changed) if self.rows[job_id].active]
        self.load(int(self.now) + WINDOW, owed=owed, since=int(self.seen_at))
        for each in self.timers.values():
            self.term.put_timer(each)
        self.term.ready = True

    def load(self, through: int, *, owed: Iterable[JobRow] = (), since: int | None = None) -> None:
        """What is due through this second, and the cadences of these rows, as the database has them now."""
        term = self.term
        term.horizon = through
        rows = list(owed)
        wanted = {row.cadence_id for row in rows}
        for cadence_id, cadence in CADENCES.items():
            first = cadence.next_second(term.expanded - self.max_jitter(cadence_id))
            if first is not None and first <= through:
                wanted.add(cadence_id)
        self.bring(sorted(each for each in wanted if each is not None), rows, since)
        term.loaded_through = through

    def bring(self, cadence_ids: Iterable[int], owed: list[JobRow], since: int | None) -> None:
        term = self.term
        for cadence_id in cadence_ids:
            concerned = [row for row in owed if row.cadence_id == cadence_id]
            if cadence_id in term.rosters:
                for row in concerned:
                    term.owe_member(row, since=term.fired)
                continue
            term.begin_loading(cadence_id, CADENCES[cadence_id])
            for row in self.rows.values():
                if row.active and row.cadence_id == cadence_id:
                    term.load_member(row)
                    if self.applied.get(row.job_id) is not row:
                        self.unsure.add(row.job_id)
                        self.ahead = True
            term.adopt(
                cadence_id,
                max_jitter=self.max_jitter(cadence_id),
                owed=concerned,
                since=term.fired if since is None else since,
            )

    def max_jitter(self, cadence_id: int) -> int:
        rows = [row for versions in self.versions.values() for row in versions.values()]
        return max((row.jitter_seconds for row in rows if row.cadence_id == cadence_id), default=0)

    @rule()
    def poll(self) -> None:
        self.expect_nothing_lost()
        self.polled, self.ahead = self.now, False
        news, self.cursor = dict.fromkeys(self.log[self.cursor :]), len(self.log)
        self.brought = (
            [self.rows[number] for kind, number in news if kind == "job"],
            [self.timers[number] for kind, number in news if kind == "timer" and number in self.timers],
        )
        self.apply(*self.brought)

    @precondition(lambda self: self.brought is not None)
    @rule()
    def replay(self) -> None:
        """What has just been applied is applied again, as after a load."""
        assert self.brought is not None
        self.apply(*self.brought)

    def apply(self, rows: list[JobRow], timers: list[Timer]) -> None:
        unplaced = []
        for row in rows:
            if self.applied.get(row.job_id) is not row and self.is_unsure(row):
                self.unsure.add(row.job_id)
            self.applied[row.job_id] = row
            if not self.term.put_job(row):
                unplaced.append(row)
        self.bring(sorted({row.cadence_id or 0 for row in unplaced}), unplaced, None)
        for each in timers:
            self.armed[each.id] = each
            self.term.put_timer(each)

    def is_unsure(self, row: JobRow) -> bool:
        """Whether the term cannot know what of it has left: it fired while the feed was behind, or its
        cadence is away and the row may be new or only edited.
        """
        resident, place = self.term.rosters.get(row.cadence_id or 0), self.term.home.roster_of(row.job_id)
        if resident is None or place is not resident:
            return row.version > 1
        recent = row.valid_from // 1_000_000 >= self.term.expanded - FEED_LAG
        return recent or row.valid_from == row.updated_at

    @rule()
    def extend(self) -> None:
        if self.now - self.polled > FEED_LAG / 2:
            self.poll()
        reached = self.term.loaded_through
        self.load(int(self.now) + WINDOW)
        for each in self.timers.values():
            if reached < each.due <= self.term.loaded_through:
                self.armed[each.id] = each
                self.term.put_timer(each)

    @rule(pause=PAUSES)
    def fire(self, pause: float) -> None:
        """Time passes, and what is due leaves; it is on its way until it is acknowledged."""
        self.acknowledge()
        self.now += pause
        self.stay_within_reach(self.now - (FEED_LAG if self.ahead else REACH) / 2)
        through = max(self.term.fired, min(int(self.now), self.term.loaded_through))
        before, bucket = self.term.expanded, Bucket()
        self.term.expand(bucket, at(self.now), through)
        self.brought = None
        assert self.term.expanded == through
        assert not self.term.has_owed
        self.expect_well_fired(bucket, before, through)
        self.flying = _Flying(through, self.cursor, self.polled, bucket)

    def stay_within_reach(self, since: float) -> None:
        """No change takes longer to be seen than a term promises to look back, or a load to be caught up."""
        for job_id, row in sorted(self.open.items()):
            if row.updated_at < micros(since):
                self.commit_one(job_id)
        if self.polled < since:
            self.poll()

    @rule()
    def acknowledge(self) -> None:
        """Kafka has it, the mark moves, and fired timers are deleted, in the version that was fired."""
        if self.flying is None:
            return
        (self.term.fired, self.seen, self.seen_at, bucket), self.flying = self.flying, None
        self.mark = self.term.mark = self.term.fired
        if bucket.timers:  # shown once more, they would leave once more: a term forgets what is deleted
            self.brought = None
        for each in bucket.timers:
            if self.timers.get(each.id) == each:
                del self.timers[each.id]
        self.term.forget_spent([(each.id, each.changed) for each in bucket.timers])

    @rule(arrived=st.booleans())
    def die(self, arrived: bool) -> None:
        self.expect_nothing_lost()
        if self.flying is not None and not arrived:
            for message in messages(self.flying.bucket.parcels):
                self.left[message.job_id, message.scheduled] -= 1
            for each in self.flying.bucket.timers:
                self.timers_left[each.id, each.changed] -= 1
        self.take_over()

    # ── what must hold ────────────────────────────────────────────────────────────────────────────────

    def expect_well_fired(self, bucket: Bucket, before: int, through: int) -> None:
        for message in messages(bucket.parcels):
            if message.job_id > 1000:
                continue
            version = self.versions[message.job_id][message.version]
            assert message.due <= through <= self.now
            assert owns(version, message.scheduled)
            assert message.due == due_of(version, message.scheduled)
            key = (message.job_id, message.scheduled)
            assert not self.left_now[key] or message.job_id in self.unsure, f"{key} left twice"
            self.left[key] += 1
            self.left_now[key] += 1
        for each in bucket.timers:
            assert each.due <= through
            assert not self.timers_now[each.id, each.changed], f"timer {each.id} left twice"
            assert self.armed[each.id] == each, "a timer left as it was before its owner moved it"
            self.timers_left[each.id, each.changed] += 1
            self.timers_now[each.id, each.changed] += 1

    def expect_nothing_lost(self) -> None:
        """Whatever the feed has brought and is behind has left, unless it is owed."""
        if self.term.has_owed:
            return
        for job_id, row in self.applied.items():
            for scheduled in owned(row, self.term.expanded):
                if not self.left[job_id, scheduled]:
                    assert not self.has_passed(row, scheduled), f"job {job_id} lost {scheduled - MIDNIGHT}"
        for each in self.armed.values():
            if each.due <= self.term.expanded and self.timers.get(each.id, each) == each:
                assert self.timers_left[each.id, each.changed] > 0, f"timer {each.id} is lost"

    def has_passed(self, row: JobRow, scheduled: int) -> bool:
        """Whether an instant of this version must have left by now.

        Not if somebody has paused the job or given it another schedule, nor if it has another jitter: a load
        may have brought these although the feed has not.
        """
        stands = self.rows[row.job_id]
        if not stands.active or stands.valid_from != row.valid_from:
            return False
        versions = self.versions[row.job_id].values()
        since = [each for each in versions if row.version <= each.version <= stands.version]
        return all(due_of(each, scheduled) <= self.term.expanded for each in since)

    @invariant()
    def what_is_resident_is_armed_or_pending(self) -> None:
        term = self.term
        for cadence_id, roster in term.rosters.items():
            assert -cadence_id in term.wheel or roster.pending > 0
        assert sorted(job_id for roster in term.rosters.values() for job_id in roster.job_ids()) == sorted(
            job_id for job_id in self.versions if term.home.roster_of(job_id) is not None
        )

    def teardown(self) -> None:
        """At rest everything has left: the feed is read, and time passes beyond every jitter."""
        if not hasattr(self, "term"):
            return
        for job_id in sorted(self.open):
            self.commit_one(job_id)
        self.poll()
        for _ in range(10):
            self.extend()
            self.fire(590)
        self.acknowledge()
        self.expect_nothing_lost()


TestTermAgainstTheDatabase = TermAgainstTheDatabase.TestCase
TestTermAgainstTheDatabase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
