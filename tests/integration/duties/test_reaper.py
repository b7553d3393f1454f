"""The reaper: who is dead, what is done about their locks, and what becomes of their runs."""

from __future__ import annotations

import asyncio
import signal
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest

from mainspring.clock import ManualClock
from mainspring.scheduler.duties import reaper as reaper_module
from mainspring.scheduler.duties.reaper import Reaped, Reaper, Spent, Watch, reap_claim, spent
from mainspring.schema.errors import DatabaseUnavailable
from mainspring.schema.ids import new_claim_id
from mainspring.schema.states import Outcome
from tests.integration.duties.conftest import PATIENCE, House
from tests.integration.scheduler.line import Line

SECOND = timedelta(seconds=1)
PENDING, SUCCEEDED, FAILED = Outcome.PENDING, Outcome.SUCCEEDED, Outcome.FAILED
LOST, DEAD, VOID = Outcome.LOST, Outcome.DEAD, Outcome.VOID


class Watcher:
    """A reaper whose seconds pass when the test says so."""

    def __init__(self, pool: Any) -> None:
        self.clock = ManualClock(datetime(2030, 1, 1, tzinfo=UTC))
        self.reaper = Reaper(pool, self.clock)

    async def rounds(self, number: int) -> Reaped:
        """So many rounds, a second apart; the last one's result."""
        for _ in range(number - 1):
            await self.reaper.run_once()
            self.clock.advance(SECOND)
        return await self.reaper.run_once()

    async def silence(self) -> Reaped:
        """As long as it takes to be dead, from now on."""
        return await self.rounds(16)


@pytest.fixture
def watcher(house: House) -> Watcher:
    return Watcher(house.pool)


# Who is dead.


async def test_a_worker_whose_heartbeat_stands_still_is_dead_after_the_silence_and_not_before(
    house: House, watcher: Watcher
) -> None:
    await house.worker("w")
    await watcher.rounds(15)
    assert not await house.is_dead("w")
    watcher.clock.advance(SECOND)
    assert (await watcher.rounds(1)).workers == 1
    assert await house.is_dead("w")


async def test_a_heartbeat_that_moved_once_begins_the_silence_anew(house: House, watcher: Watcher) -> None:
    await house.worker("w")
    await watcher.rounds(15)
    await house.beat("w")
    watcher.clock.advance(SECOND)
    await watcher.rounds(15)
    assert not await house.is_dead("w")
    watcher.clock.advance(SECOND)
    await watcher.rounds(1)
    assert await house.is_dead("w")


async def test_a_heartbeat_that_moves_between_the_look_and_the_verdict_saves_its_worker(
    house: House, watcher: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    await house.worker("w")
    await watcher.rounds(15)
    watcher.clock.advance(SECOND)
    look = watcher.reaper._look

    async def look_then_beat() -> dict[str, int]:
        silent = await look()
        await house.beat("w")
        return silent

    monkeypatch.setattr(watcher.reaper, "_look", look_then_beat)
    assert (await watcher.rounds(1)).workers == 0
    assert not await house.is_dead("w")


async def test_an_outage_of_postgres_kills_nobody(house: House) -> None:
    await house.worker("w")
    async with Line(house.dsn) as line, asyncpg.create_pool(line.dsn, min_size=0, max_size=2) as pool:
        watcher = Watcher(pool)
        await watcher.rounds(15)
        line.cut()
        for _ in range(20):
            watcher.clock.advance(SECOND)
            with pytest.raises(DatabaseUnavailable):
                await watcher.reaper.run_once()
        line.mend()
        await watcher.rounds(15)
        assert not await house.is_dead("w")
        watcher.clock.advance(SECOND)
        await watcher.rounds(1)
        assert await house.is_dead("w")
        pool.terminate()


async def test_a_short_outage_gives_the_full_silence_again_too(house: House) -> None:
    await house.worker("w")
    async with Line(house.dsn) as line, asyncpg.create_pool(line.dsn, min_size=0, max_size=2) as pool:
        watcher = Watcher(pool)
        await watcher.rounds(15)
        line.cut()
        with pytest.raises(DatabaseUnavailable):
            await watcher.reaper.run_once()
        line.mend()
        watcher.clock.advance(SECOND)
        await watcher.rounds(15)
        assert not await house.is_dead("w")
        pool.terminate()


async def test_a_reaper_that_was_stopped_itself_kills_nobody(house: House, watcher: Watcher) -> None:
    await house.worker("w")
    await watcher.rounds(15)
    watcher.clock.advance(timedelta(minutes=5))
    await watcher.rounds(15)
    assert not await house.is_dead("w")


async def test_a_postgres_that_answers_but_commits_nothing_kills_nobody(
    house: House, watcher: Watcher
) -> None:
    await house.worker("w")
    await watcher.rounds(15)
    async with house.connected() as administrator:
        await administrator.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
        await administrator.execute("SELECT pg_reload_conf()")
        try:
            await house.until(lambda: _shows(house, "synchronous_standby_names", "nobody"))
            looking = asyncio.create_task(watcher.reaper.run_once())
            await house.until(lambda: _waits_for_a_standby(administrator))
            watcher.clock.advance(timedelta(seconds=20))
        finally:
            await administrator.execute("ALTER SYSTEM RESET synchronous_standby_names")
            await administrator.execute("SELECT pg_reload_conf()")
    assert (await looking).workers == 0
    watcher.clock.advance(SECOND)
    await watcher.rounds(14)
    assert not await house.is_dead("w")


async def _shows(house: House, setting: str, value: str) -> bool:
    async with house.connected() as connection:
        return bool(await connection.fetchval("SELECT current_setting($1)", setting) == value)


async def _waits_for_a_standby(connection: Any) -> bool:
    return bool(
        await connection.fetchval(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE datname = current_database() AND wait_event = 'SyncRep'"
        )
    )


async def test_a_worker_that_stopped_is_not_judged(house: House, watcher: Watcher) -> None:
    await house.stopped_worker("w")
    assert (await watcher.silence()).workers == 0
    assert not await house.is_dead("w")


def test_only_the_time_that_surely_lies_between_two_looks_counts() -> None:
    watch = Watch(silence=15.0)
    watch.look({"w": 1}, asked=0.0, answered=2.0)
    assert watch.look({"w": 1}, asked=3.0, answered=6.0) == {}
    for second in range(7, 20):
        assert watch.look({"w": 1}, asked=second, answered=second) == {}
    assert watch.look({"w": 1}, asked=20.0, answered=20.0) == {"w": 1}


# Backends.


async def test_a_client_stopped_inside_copy_holds_its_heir_only_until_it_is_dead(
    house: House, watcher: Watcher
) -> None:
    await house.worker("stopped")
    claim = new_claim_id(house.now)
    arguments = [house.dsn, "stopped", "1", house.now.isoformat(), str(claim)]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.integration.duties.copying_worker", *arguments, stdout=-1
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(PATIENCE):
            assert await process.stdout.readline() == b"sent\n"
        process.send_signal(signal.SIGSTOP)
        async with house.connected() as heir:
            won = asyncio.create_task(
                heir.execute(
                    "INSERT INTO runs (job_id, scheduled_at, claim_id, position, attempt)"
                    " VALUES (1, $1, 7, 0, 1)",
                    house.now,
                )
            )
            await house.until(lambda: _is_blocked(house, heir))
            await watcher.rounds(15)
            assert not won.done()
            watcher.clock.advance(SECOND)
            reaped = await watcher.rounds(1)
            assert (reaped.workers, reaped.backends, reaped.lingering) == (1, 1, 0)
            async with asyncio.timeout(PATIENCE):
                await won
    finally:
        process.kill()
        await process.wait()
    assert await house.fetch("SELECT job_id, claim_id FROM runs") == [(1, 7)]
    assert await house.count("claims") == 0


async def _is_blocked(house: House, connection: Any) -> bool:
    return bool(await house.value("SELECT pg_blocking_pids($1)", connection.get_server_pid()))


async def test_only_backends_of_the_dead_are_ended(house: House, watcher: Watcher) -> None:
    for name in ("w", "w2", "other"):
        await house.worker(name)
    names = ["mainspring worker w", "mainspring worker w claims", "mainspring worker w2", "their worker w"]
    async with (
        house.connected(application_name=names[0]) as bare,
        house.connected(application_name=names[1]) as purpose,
        house.connected(application_name=names[2]) as longer,
        house.connected(application_name=names[3]) as foreign,
    ):
        await house.execute("UPDATE workers SET dead_at = now() WHERE id = 'w'")
        assert (await watcher.rounds(1)).backends == 2
        for connection in (bare, purpose):
            with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
                await connection.fetchval("SELECT 1")
        for connection in (longer, foreign):
            assert await connection.fetchval("SELECT 1") == 1


async def test_claims_are_not_reaped_while_a_backend_of_their_worker_is_there(
    house: House, watcher: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("w", "gone"):
        await house.worker(name)
    job = await house.job()
    left = await house.claim("w", [(job, house.now, 1)])
    other = await house.claim("gone", [(job, house.now, 2)])
    await house.execute("UPDATE workers SET dead_at = now()")
    monkeypatch.setattr(reaper_module, "_TERMINATION_TRIES", 1)
    async with house.connected(application_name="mainspring worker w") as connection:
        # The first look always meets the backend; with one try nobody waits until it is gone.
        assert (await watcher.rounds(1)).lingering == 1
        assert not await house.is_reaped(left)
        assert await house.is_reaped(other)
        await house.until(lambda: _is_gone(house, connection))
    await watcher.rounds(1)
    assert await house.is_reaped(left)


async def _is_gone(house: House, connection: Any) -> bool:
    pid = connection.get_server_pid()
    return not await house.value("SELECT count(*) FROM pg_stat_activity WHERE pid = $1", pid)


# Claims.


async def test_a_dead_workers_runs_are_lost_and_their_next_attempts_are_due(
    house: House, watcher: Watcher
) -> None:
    await house.worker("w")
    job, paused = await house.job(), await house.job()
    await house.registry.pause(house.tenant, paused.id)
    claim = await house.claim("w", [(job, house.now, 1), (paused, house.now, 1)])
    reaped = await watcher.silence()
    assert (reaped.claims, reaped.lost, reaped.dead) == (1, 2, 0)
    assert await house.outcomes(claim) == [LOST, LOST]
    assert await house.is_reaped(claim)
    for each in (job, paused):
        assert await house.failures(each) == [(1, "lost", "w", house.tenant)]
        assert await house.timers(each) == [(house.now, 2, 0, 1, "retry")]
    due = "SELECT count(*) FROM timers WHERE due_at <= now() AND (shard, job_id) IN (($1, $2), ($3, $4))"
    assert await house.value(due, job.shard, job.id, paused.shard, paused.id) == 2
    assert (await watcher.rounds(1)).claims == 0


async def test_outcomes_that_were_written_are_kept(house: House, watcher: Watcher) -> None:
    await house.stopped_worker("w")
    jobs = [await house.job() for _ in range(4)]
    runs = [(job, house.now, 1) for job in jobs]
    claim = await house.claim("w", runs, [SUCCEEDED, PENDING, FAILED, VOID])
    # A position that was not won has its run in another claim.
    await house.execute("DELETE FROM runs WHERE job_id = $1", jobs[3].id)
    assert (await watcher.rounds(1)).lost == 1
    assert await house.outcomes(claim) == [SUCCEEDED, LOST, FAILED, VOID]
    assert [len(await house.timers(job)) for job in jobs] == [0, 1, 0, 0]


async def test_open_claims_of_a_worker_that_stopped_are_reaped_at_once(
    house: House, watcher: Watcher
) -> None:
    await house.stopped_worker("w")
    job = await house.job()
    claim = await house.claim("w", [(job, house.now, 1)])
    done = await house.claim("w", [(job, house.now, 2)], [PENDING], finished=True)
    await watcher.rounds(1)
    assert await house.is_reaped(claim)
    assert not await house.is_reaped(done)


async def test_claims_of_a_worker_nobody_knows_are_reaped_when_they_are_older_than_the_silence(
    house: House, watcher: Watcher
) -> None:
    job = await house.job()
    young = await house.claim("nobody", [(job, house.now, 1)], age=timedelta(hours=-1))
    old = await house.claim("nobody", [(job, house.now, 2)], age=timedelta(minutes=1))
    await watcher.rounds(1)
    assert await house.is_reaped(old)
    assert not await house.is_reaped(young)


async def test_claims_of_the_living_are_left_alone(house: House, watcher: Watcher) -> None:
    await house.worker("w")
    claim = await house.claim("w", [(await house.job(), house.now, 1)], age=timedelta(days=2))
    await watcher.rounds(15)
    assert not await house.is_reaped(claim)


async def test_a_claim_that_is_being_written_is_reaped_a_round_later_with_what_was_written(
    house: House, watcher: Watcher
) -> None:
    await house.stopped_worker("w")
    first, second = await house.job(), await house.job()
    claim = await house.claim("w", [(first, house.now, 1), (second, house.now, 1)])
    other = await house.claim("w", [(first, house.now, 2)])
    async with house.connected() as flushing, flushing.transaction():
        await flushing.execute("UPDATE claims SET outcomes = $2 WHERE id = $1", claim, bytes([SUCCEEDED, 0]))
        async with asyncio.timeout(PATIENCE):
            assert (await watcher.rounds(1)).claims == 1
        assert await house.is_reaped(other)
    await watcher.rounds(1)
    assert await house.outcomes(claim) == [SUCCEEDED, LOST]
    flush = "UPDATE claims SET outcomes = $2 WHERE id = $1 AND reaped_at IS NULL"
    assert await house.pool.execute(flush, claim, bytes([SUCCEEDED, SUCCEEDED])) == "UPDATE 0"


async def test_a_deleted_job_has_no_next_attempt(house: House, watcher: Watcher) -> None:
    await house.stopped_worker("w")
    job, collected = await house.job(), await house.job()
    claim = await house.claim("w", [(job, house.now, 1), (collected, house.now, 1)])
    await house.registry.delete(house.tenant, job.id)
    await house.execute("DELETE FROM jobs WHERE id = $1", collected.id)
    await watcher.rounds(1)
    assert await house.outcomes(claim) == [LOST, LOST]
    assert await house.count("timers") == 0
    assert await house.failures(job) == [(1, "lost", "w", house.tenant)]


async def test_a_lost_attempt_spends_no_retry(house: House, watcher: Watcher) -> None:
    await house.stopped_worker("w")
    job = await house.job()
    for attempt, outcome in enumerate([FAILED, LOST, FAILED, LOST, LOST], start=1):
        await house.ended(job, house.now, attempt, outcome)
    await house.claim("w", [(job, house.now, 6)])
    await watcher.rounds(1)
    assert await house.timers(job) == [(house.now, 7, 2, 3, "retry")]


async def test_a_redrive_starts_with_a_fresh_budget(house: House, watcher: Watcher) -> None:
    await house.stopped_worker("w")
    job, other = await house.job(), await house.job()
    for each in (job, other):
        await house.ended(each, house.now, 1, FAILED)
        await house.ended(each, house.now, 2, LOST)
    await house.ended(job, house.now, 3, DEAD)
    await house.letter(other, house.now, 3, redriven=True)  # never claimed: there is a letter, and no run
    await house.claim("w", [(job, house.now, 4), (other, house.now, 4)])
    await watcher.rounds(1)
    assert await house.timers(job) == [(house.now, 5, 0, 1, "retry")]
    assert await house.timers(other) == [(house.now, 5, 0, 1, "retry")]


async def test_the_fifth_loss_is_a_dead_letter_and_takes_no_innocent_along(
    house: House, watcher: Watcher
) -> None:
    await house.stopped_worker("w")
    killer, innocent = await house.job(payload={"kill": True}), await house.job()
    dependent = await house.dependent(killer, on_failure="run")
    for attempt in range(1, 5):
        await house.ended(killer, house.now, attempt, LOST)
    claim = await house.claim("w", [(innocent, house.now, 1), (killer, house.now, 5)])
    reaped = await watcher.rounds(1)
    assert (reaped.lost, reaped.dead, reaped.released) == (1, 1, 1)
    assert await house.outcomes(claim) == [LOST, DEAD]
    assert (await house.failures(killer))[-1] == (5, "dead", "w", house.tenant)
    assert await house.timers(killer) == []
    assert await house.timers(innocent) == [(house.now, 2, 0, 1, "retry")]
    assert await house.timers(dependent) == [(house.now, 1, 0, 0, "dependency")]
    letters = await house.fetch(
        "SELECT letter.job_id, attempt, reason, letter.body = job.body FROM dead_letters AS letter"
        " JOIN jobs AS job ON job.id = letter.job_id"
    )
    assert letters == [(killer.id, 5, "killed_workers", True)]


async def test_what_was_handed_back_is_no_loss_and_interrupts_none(house: House, watcher: Watcher) -> None:
    await house.stopped_worker("w")
    deployed, killer = await house.job(), await house.job()
    for attempt in range(1, 5):
        await house.ended(deployed, house.now, attempt, LOST, handed_back=True)
    for attempt in range(1, 6):
        await house.ended(killer, house.now, attempt, LOST, handed_back=attempt == 3)
    claim = await house.claim("w", [(deployed, house.now, 5), (killer, house.now, 6)])
    await watcher.rounds(1)
    assert await house.outcomes(claim) == [LOST, DEAD]
    assert await house.timers(deployed) == [(house.now, 6, 0, 1, "retry")]


async def test_the_fifth_loss_of_a_one_off_completes_it_and_the_fourth_does_not(
    house: House, watcher: Watcher
) -> None:
    await house.stopped_worker("w")
    at = house.now - timedelta(seconds=60)
    jobs = [await house.job(schedule=at.isoformat()) for _ in range(2)]
    await house.execute("DELETE FROM timers")
    for losses, job in zip((3, 4), jobs, strict=True):
        for attempt in range(1, losses + 1):
            await house.ended(job, at, attempt, LOST)
        await house.claim("w", [(job, at, losses + 1)])
    await watcher.rounds(1)
    for job, status in zip(jobs, ("active", "completed"), strict=True):
        assert await house.value("SELECT status FROM jobs WHERE id = $1", job.id) == status


async def test_a_lost_run_frees_its_overlap_slot(house: House, watcher: Watcher) -> None:
    await house.stopped_worker("w")
    job = await house.job(overlap="skip")
    claim = await house.claim("w", [(job, house.now, 1)])
    await house.execute(
        'INSERT INTO "overlaps" (job_id, claim_id, position, scheduled_at, attempt)'
        " VALUES ($1, $2, 0, $3, 1)",
        job.id,
        claim,
        house.now,
    )
    await watcher.rounds(1)
    assert await house.count('"overlaps"') == 0


async def test_a_claim_that_cannot_be_reaped_does_not_keep_the_others(
    house: House, watcher: Watcher, events: list[Any]
) -> None:
    await house.stopped_worker("w")
    first, second = await house.job(), await house.job()
    broken = await house.claim("w", [(first, house.now, 1)], age=SECOND)
    sound = await house.claim("w", [(second, house.now, 1)])
    await house.execute(f"ALTER TABLE timers ADD CHECK (job_id <> {first.id})")
    await watcher.rounds(1)
    assert not await house.is_reaped(broken)
    assert await house.is_reaped(sound)
    assert [event["claim"] for event in events if event["event"] == "claim_not_reaped"] == [broken]


async def test_a_claim_of_thousands_costs_no_more_statements_than_one_of_two(house: House) -> None:
    jobs = await house.registry.create_many(house.tenant, [(await house.job()).definition] * 5000)
    rounds: list[list[str]] = []
    async with house.connected() as connection:
        for attempt, number in enumerate((2, 2, 5000), start=1):  # the first lets the driver learn the types
            claim = await _claim_of(house, jobs[:number], attempt)
            statements: list[str] = []
            with connection.query_logger(lambda record, to=statements: to.append(record.query)):
                assert (await reap_claim(connection, claim)).lost == number
                await asyncio.sleep(0)  # the driver tells a moment later
            rounds.append(statements)
    assert rounds[1] == rounds[2]
    assert 0 < len(rounds[2]) < 10


async def _claim_of(house: House, jobs: list[int], attempt: int) -> int:
    claim = new_claim_id(house.now)
    await house.execute(
        "INSERT INTO claims (id, worker_id, outcomes) VALUES ($1, 'w', $2)", claim, bytes(len(jobs))
    )
    records = [(job, house.now, claim, place, attempt) for place, job in enumerate(jobs)]
    columns = ["job_id", "scheduled_at", "claim_id", "position", "attempt"]
    await house.pool.copy_records_to_table("runs", records=records, columns=columns)
    return claim


@pytest.mark.parametrize(
    ("earlier", "last_letter", "expected"),
    [
        ([], None, Spent(0, 0)),
        ([(2, "lost"), (1, "lost")], None, Spent(0, 2)),
        ([(3, "lost"), (2, "failed"), (1, "lost")], None, Spent(1, 1)),
        ([(3, "lost"), (2, "recalled"), (1, "lost")], None, Spent(0, 2)),
        ([(3, "handed back"), (2, "lost"), (1, "handed back")], None, Spent(0, 1)),
        ([(3, "lost"), (2, ""), (1, "lost")], None, Spent(0, 1)),
        ([(3, "failed"), (2, "dead"), (1, "failed")], None, Spent(1, 0)),
        ([(4, "failed"), (2, "failed"), (1, "lost")], 3, Spent(1, 0)),
    ],
)
def test_retries_and_losses_are_counted_back_to_the_last_letter(
    earlier: list[tuple[int, str]], last_letter: int | None, expected: Spent
) -> None:
    assert spent(earlier, last_letter) == expected
