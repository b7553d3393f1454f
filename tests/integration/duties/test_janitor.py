"""The janitor: what goes, when, and what must stay."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

import asyncpg
import pytest

from mainspring.registry import Job, JobRequest, Registry
from mainspring.scheduler.duties import janitor as janitor_module
from mainspring.scheduler.duties.janitor import Janitor
from mainspring.schema import partitions
from mainspring.schema.errors import DatabaseUnavailable, PartitionBusy
from mainspring.schema.partitions import PARENTS, drop_day, ensure_days, list_days, list_remains
from mainspring.schema.states import Outcome
from tests.integration.duties.conftest import PATIENCE, SHARDS, House

DAY = timedelta(days=1)
HOUR = timedelta(hours=1)
DONE = [Outcome.SUCCEEDED]


@pytest.fixture
async def connection(house: House) -> AsyncIterator[Any]:
    async with house.connected() as connection:
        yield connection


@pytest.fixture
def janitor(house: House) -> Janitor:
    return Janitor(house.pool)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A removal that meets a reader gives up at once."""
    monkeypatch.setattr(partitions, "_LOCK_TIMEOUT", timedelta(milliseconds=50))


def noon(day: date) -> datetime:
    return datetime.combine(day, time(12), UTC)


async def days_ago(house: House, connection: Any, *ages: int) -> list[date]:
    """Days that long ago, made now."""
    days = [house.now.date() - age * DAY for age in ages]
    await ensure_days(connection, days)
    return days


# Days.


async def test_days_ahead_are_made(house: House, connection: Any, janitor: Janitor) -> None:
    last = (await list_days(connection))[-1]
    await drop_day(connection, last)
    assert (await janitor.run_once()).days_made == (last,)
    assert (await janitor.run_once()).days_made == ()


async def test_a_day_goes_when_it_lies_before_the_retention(house: House, connection: Any) -> None:
    janitor = Janitor(house.pool, run_retention=10 * DAY)
    old, young = await days_ago(house, connection, 12, 9)
    await house.claim("w", [(await house.job(), noon(old), 1)], DONE, age=12 * DAY, finished=True)
    assert (await janitor.run_once()).days_dropped == (old,)
    assert old not in await list_days(connection)
    assert young in await list_days(connection)


async def test_runs_are_kept_for_thirty_days_if_nobody_says_otherwise(
    house: House, connection: Any, janitor: Janitor
) -> None:
    old, young = await days_ago(house, connection, 32, 29)
    assert (await janitor.run_once()).days_dropped == (old,)
    assert young in await list_days(connection)


@pytest.mark.parametrize(
    ("age", "finished"), [(5 * DAY, True), (35 * DAY, False)], ids=["a recent claim", "an open claim"]
)
async def test_an_old_day_stays_while_a_run_of_it_is_young_or_under_way(
    house: House, connection: Any, janitor: Janitor, age: timedelta, finished: bool
) -> None:
    [old] = await days_ago(house, connection, 40)
    job = await house.job()
    await house.worker("w")
    claim = await house.claim(
        "w", [(job, noon(old), 1)], [Outcome(int(finished))], age=age, finished=finished
    )
    assert (await janitor.run_once()).days_dropped == ()
    assert await house.count("runs") == 1
    await house.execute("UPDATE claims SET finished_at = now() WHERE id = $1", claim)
    swept = await Janitor(house.pool, run_retention=2 * DAY).run_once()
    assert swept.days_dropped == (old,)
    assert swept.claims == 1


async def test_an_interrupted_removal_is_finished_before_another_begins(
    house: House, connection: Any, janitor: Janitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    older, interrupted = await days_ago(house, connection, 50, 45)
    table = f"runs_{interrupted:%Y%m%d}"
    await connection.execute(f"ALTER TABLE runs DETACH PARTITION {table} CONCURRENTLY")
    order: list[date] = []

    async def drop(connection: Any, day: date) -> bool:
        order.append(day)
        return await drop_day(connection, day)

    monkeypatch.setattr(janitor_module, "drop_day", drop)
    swept = await janitor.run_once()
    assert (swept.removals_finished, swept.days_dropped) == ((interrupted,), (older,))
    assert order == [interrupted, older]
    assert await list_remains(connection) == []


@pytest.mark.usefixtures("impatient")
async def test_a_reader_in_the_way_of_a_day_stops_no_other_sweep(
    house: House, connection: Any, janitor: Janitor, events: list[Any]
) -> None:
    [old] = await days_ago(house, connection, 40)
    await house.execute("INSERT INTO cancellations VALUES (1, now(), 1, NULL, now() - interval '8 days')")
    async with connection.transaction():
        await connection.execute(f"LOCK TABLE {', '.join(PARENTS)} IN ACCESS SHARE MODE")
        swept = await janitor.run_once()
        assert (swept.days_dropped, swept.cancellations) == ((), 1)
        assert (await janitor.run_once()).removals_finished == ()
    assert {event["day"] for event in events if event["event"] == "day_not_dropped"} == {old.isoformat()}
    assert (await janitor.run_once()).removals_finished == (old,)


async def test_a_day_that_cannot_be_made_now_stops_no_other_sweep(
    house: House, connection: Any, janitor: Janitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    [old] = await days_ago(house, connection, 40)

    async def busy(*_: object) -> list[date]:
        raise PartitionBusy("runs", "it is locked")

    monkeypatch.setattr(janitor_module, "ensure_days", busy)
    swept = await janitor.run_once()
    assert (swept.days_made, swept.days_dropped) == ((), (old,))


# Claims.


async def test_claims_go_with_the_last_of_their_runs(house: House, connection: Any, janitor: Janitor) -> None:
    [kept_day] = await days_ago(house, connection, 33)
    job = await house.job()
    await house.claim("w", [(job, noon(kept_day), 1)], DONE, age=DAY, finished=True)  # keeps its day
    used = await house.claim("w", [(job, noon(kept_day), 2)], DONE, age=33 * DAY, finished=True)
    young = await house.claim("w", [], DONE, age=29 * DAY, finished=True)
    unused = await house.claim("w", [], DONE, age=31 * DAY, finished=True)
    reaped = await house.claim("w", [], DONE, age=31 * DAY)
    await house.execute("UPDATE claims SET reaped_at = now() WHERE id = $1", reaped)
    await house.worker("w")
    under_way = await house.claim("w", [], [Outcome.PENDING], age=31 * DAY)
    assert (await janitor.run_once()).claims == 2
    left = {row[0] for row in await house.fetch("SELECT id FROM claims")}
    assert left >= {used, young, under_way}
    assert not left & {unused, reaped}


async def test_claims_that_must_stay_do_not_hide_those_behind_them(
    house: House, connection: Any, janitor: Janitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(janitor_module, "_BATCH", 2)
    monkeypatch.setattr(janitor_module, "_BATCHES", 1)
    [kept_day] = await days_ago(house, connection, 33)
    job = await house.job()
    await house.claim("w", [(job, noon(kept_day), 9)], DONE, age=DAY, finished=True)
    for attempt in (1, 2):
        await house.claim(
            "w", [(job, noon(kept_day), attempt)], DONE, age=35 * DAY + attempt * HOUR, finished=True
        )
    for hours in (1, 2, 3):
        await house.claim("w", [], DONE, age=34 * DAY + hours * HOUR, finished=True)
    assert [(await janitor.run_once()).claims for _ in range(4)] == [0, 2, 1, 0]


# Jobs.


async def closed(house: House, status: str, ago: timedelta, **body: Any) -> Job:
    """A job completed or deleted that long ago, without a timer."""
    schedule = (house.now - timedelta(days=1)).isoformat() if status == "completed" else "0 0 * * *"
    job = await house.job(schedule=schedule, **body)
    await house.execute("DELETE FROM timers WHERE job_id = $1", job.id)
    await house.execute(
        "UPDATE jobs SET status = $2, closed_at = now() - $3::interval WHERE id = $1", job.id, status, ago
    )
    return job


async def exists(house: House, job: Job) -> bool:
    return bool(await house.value("SELECT count(*) FROM jobs WHERE id = $1", job.id))


async def add_timer(house: House, job: Job) -> None:
    await house.execute(
        "INSERT INTO timers (shard, due_at, job_id, scheduled_at, cause)"
        " VALUES ($1, now(), $2, now(), 'retry')",
        job.shard,
        job.id,
    )


async def test_one_offs_go_a_day_after_their_completion(house: House, janitor: Janitor) -> None:
    old, young = await closed(house, "completed", 25 * HOUR), await closed(house, "completed", 23 * HOUR)
    assert (await janitor.run_once()).one_offs == 1
    assert (await exists(house, old), await exists(house, young)) == (False, True)


async def test_tombstones_go_when_kafka_keeps_none_of_their_messages(house: House, janitor: Janitor) -> None:
    old, young = await closed(house, "deleted", 8 * DAY), await closed(house, "deleted", 6 * DAY)
    assert (await janitor.run_once()).tombstones == 1
    assert (await exists(house, old), await exists(house, young)) == (False, True)


async def test_the_retentions_are_arguments(house: House) -> None:
    await closed(house, "completed", 2 * HOUR)
    await closed(house, "deleted", 2 * DAY)
    swept = await Janitor(house.pool, one_off_retention=HOUR, tombstone_retention=DAY).run_once()
    assert (swept.one_offs, swept.tombstones) == (1, 1)


async def test_no_job_goes_that_has_a_timer(house: House, janitor: Janitor) -> None:
    jobs = [await closed(house, status, 40 * DAY) for status in ("completed", "deleted")]
    for job in jobs:
        await add_timer(house, job)
    swept = await janitor.run_once()
    assert (swept.one_offs, swept.tombstones) == (0, 0)


async def test_a_one_off_stays_while_its_dead_letter_can_be_redriven(house: House, janitor: Janitor) -> None:
    waiting, redriven = [await closed(house, "completed", 40 * DAY) for _ in range(2)]
    deleted = await closed(house, "deleted", 40 * DAY)
    await house.letter(waiting, house.now, 1, redriven=False)
    await house.letter(redriven, house.now, 1, redriven=True)
    await house.letter(deleted, house.now, 1, redriven=False)
    await janitor.run_once()
    assert [await exists(house, job) for job in (waiting, redriven, deleted)] == [True, False, False]
    assert await house.count("dead_letters") == 3


async def test_a_one_off_stays_while_others_count_it_among_their_parents(
    house: House, janitor: Janitor
) -> None:
    parent = await house.job(schedule=(house.now + DAY).isoformat())
    await house.dependent(parent)
    await house.execute("DELETE FROM timers")
    await house.execute(
        "UPDATE jobs SET status = 'completed', closed_at = now() - interval '9 days' WHERE id = $1", parent.id
    )
    assert (await janitor.run_once()).one_offs == 0


async def test_jobs_that_stay_do_not_hide_those_behind_them(
    house: House, janitor: Janitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(janitor_module, "_BATCH", 2)
    for ago in (50, 49, 48):
        await add_timer(house, await closed(house, "completed", ago * DAY))
    for _ in range(3):
        await closed(house, "completed", 40 * DAY)
    assert (await janitor.run_once()).one_offs == 3


async def test_a_job_that_somebody_holds_is_passed_by(
    house: House, connection: Any, janitor: Janitor
) -> None:
    held, other = [await closed(house, "completed", 40 * DAY) for _ in range(2)]
    async with asyncio.timeout(PATIENCE), connection.transaction():
        await connection.execute("SELECT FROM jobs WHERE id = $1 FOR NO KEY UPDATE", held.id)
        assert (await janitor.run_once()).one_offs == 1
    assert (await exists(house, held), await exists(house, other)) == (True, False)


async def test_the_overlap_slot_goes_with_its_job(house: House, janitor: Janitor) -> None:
    old, living = await closed(house, "deleted", 8 * DAY, overlap="skip"), await house.job(overlap="skip")
    for job in (old, living):
        await house.execute('INSERT INTO "overlaps" VALUES ($1, 1, 0, now(), 1)', job.id)
    await janitor.run_once()
    assert await house.fetch('SELECT job_id FROM "overlaps"') == [(living.id,)]


# Cadences.


async def test_cadences_without_a_job_go(house: House, janitor: Janitor) -> None:
    living = await house.job(schedule="1 1 * * *")
    tombstone = await house.job(schedule="2 2 * * *")
    await house.registry.delete(house.tenant, tombstone.id)
    orphan = await house.job(schedule="3 3 * * *")
    await house.execute("DELETE FROM jobs WHERE id = $1", orphan.id)
    assert (await janitor.run_once()).cadences == 1
    left = {row[0] for row in await house.fetch("SELECT id FROM cadences")}
    assert left == {living.cadence_id, tombstone.cadence_id}


async def test_a_cadence_whose_first_job_is_being_written_stays(
    house: House, connection: Any, janitor: Janitor
) -> None:
    job = await house.job(schedule="4 4 * * *")
    async with connection.transaction():
        # Gone for everybody, and written again by a transaction that is not over.
        await house.execute("DELETE FROM jobs WHERE id = $1", job.id)
        await connection.execute(
            "INSERT INTO jobs (id, tenant_id, shard, kind, schedule, cadence_id, handler, body)"
            " VALUES ($1, 1, $2, 'cron', '4 4 * * *', $3, 'work', '\\x01')",
            job.id,
            job.shard,
            job.cadence_id,
        )
        async with asyncio.timeout(PATIENCE):
            assert (await janitor.run_once()).cadences == 0
    assert (await janitor.run_once()).cadences == 0


class Racing:
    """A connection on which a job is written between the list of orphans and their deletion."""

    def __init__(self, connection: Any, job: Job) -> None:
        self._connection = connection
        self._job = job
        self.transaction = connection.transaction

    async def fetch(self, statement: str, *arguments: Any) -> Any:
        if statement.startswith("DELETE"):
            await self._connection.execute(
                "UPDATE jobs SET cadence_id = $2, kind = 'cron' WHERE id = $1",
                self._job.id,
                self._job.cadence_id,
            )
        return await self._connection.fetch(statement, *arguments)


async def test_a_job_that_the_list_of_orphans_did_not_see_keeps_its_cadence(
    house: House, connection: Any
) -> None:
    job = await house.job(schedule="5 5 * * *")
    await house.execute("UPDATE jobs SET cadence_id = NULL, kind = 'after' WHERE id = $1", job.id)
    assert job.cadence_id is not None
    racing: Any = Racing(connection, job)
    assert await janitor_module._delete_orphans(racing, [job.cadence_id]) == 0
    assert await house.count("cadences") == 1


async def test_jobs_are_created_while_their_cadences_are_swept(house: House, janitor: Janitor) -> None:
    registries = [Registry(house.pool, shards=SHARDS) for _ in range(3)]
    done = asyncio.Event()

    async def sweep() -> int:
        total = 0
        while not done.is_set():
            total += (await janitor.run_once()).cadences
        return total

    async def create_and_forget(registry: Registry) -> None:
        for number in range(40):
            request = {"handler": "work", "schedule": f"{number % 2} 6 * * *"}
            job = await registry.create(house.tenant, JobRequest.from_mapping(request))
            await house.execute("DELETE FROM jobs WHERE id = $1", job.id)

    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as both:
        sweeping = both.create_task(sweep())
        for creating in [both.create_task(create_and_forget(registry)) for registry in registries]:
            await creating
        done.set()
    assert sweeping.result() > 0


# The rest.


async def test_workers_that_ended_a_week_ago_are_forgotten(house: House, janitor: Janitor) -> None:
    for name in ("alive", "stopped", "dead", "stopped-lately", "dead-lately"):
        await house.worker(name)
    for column, name, ago in (
        ("stopped_at", "stopped", 8),
        ("dead_at", "dead", 8),
        ("stopped_at", "stopped-lately", 6),
        ("dead_at", "dead-lately", 6),
    ):
        await house.execute(
            f"UPDATE workers SET {column} = now() - $2::interval WHERE id = $1", name, ago * DAY
        )
    assert (await janitor.run_once()).workers == 2
    left = {row[0] for row in await house.fetch("SELECT id FROM workers")}
    assert left == {"alive", "stopped-lately", "dead-lately"}


async def test_cancellations_go_after_a_week_and_deferrals_after_a_day(
    house: House, janitor: Janitor
) -> None:
    for number, hours in enumerate((8 * 24, 6 * 24), start=1):
        await house.execute(
            "INSERT INTO cancellations VALUES ($1, now(), 1, NULL, now() - $2::interval)",
            number,
            hours * HOUR,
        )
    for number, hours in enumerate((25, 23), start=1):
        await house.execute(
            "INSERT INTO deferrals VALUES ($1, now(), 1, now() - $2::interval)", number, hours * HOUR
        )
    swept = await janitor.run_once()
    assert (swept.cancellations, swept.deferrals) == (1, 1)
    assert await house.fetch("SELECT job_id FROM cancellations") == [(2,)]
    assert await house.fetch("SELECT job_id FROM deferrals") == [(2,)]


async def test_answers_of_idempotent_requests_go_after_a_day(house: House, janitor: Janitor) -> None:
    for key, hours in (("old", 25), ("new", 23)):
        await house.execute(
            "INSERT INTO idempotency_keys (tenant_id, key, request_hash, status, answer, created_at)"
            " VALUES (1, $1, sha256('x'), 201, 'a', now() - $2::interval)",
            key,
            hours * HOUR,
        )
    assert (await janitor.run_once()).idempotency_keys == 1
    assert await house.fetch("SELECT key FROM idempotency_keys") == [("new",)]


async def test_a_sweep_goes_on_through_its_batches_and_no_further_than_its_bound(
    house: House, janitor: Janitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(janitor_module, "_BATCH", 2)
    monkeypatch.setattr(janitor_module, "_BATCHES", 2)
    for number in range(1, 8):
        await house.execute(
            "INSERT INTO cancellations VALUES ($1, now(), 1, NULL, now() - interval '9 days')", number
        )
    assert [(await janitor.run_once()).cancellations for _ in range(3)] == [4, 3, 0]


async def test_dead_letters_stay_until_their_owner_removes_them(house: House, janitor: Janitor) -> None:
    letter = await house.letter(await house.job(), house.now, 1, redriven=True)
    await house.execute(
        "UPDATE dead_letters SET created_at = now() - interval '400 days', published_at = now()"
        " WHERE id = $1",
        letter,
    )
    await janitor.run_once()
    assert await house.count("dead_letters") == 1


async def test_a_database_that_is_away_is_said_to_be(house: House) -> None:
    pool = asyncpg.create_pool(house.dsn, min_size=0, max_size=1)
    await pool
    pool.terminate()
    with pytest.raises(DatabaseUnavailable):
        await Janitor(pool).run_once()
