"""Dead letters: written once, found by kind, redriven once."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any

import pytest

from mainspring.registry import DeadLetters, Job
from mainspring.registry.endings import Ended, end_runs
from mainspring.registry.letters import Letter, bury, bury_unreadable, fingerprint
from mainspring.schema.errors import InvalidInput, NotFound, RedriveRefused
from mainspring.schema.ids import RunKey, to_microseconds
from mainspring.schema.states import DeadReason, Outcome
from tests.integration.registry.bench import SHARDS, Bench

HOUR = timedelta(hours=1)


def letter(bench: Bench, job: Job, at: datetime, attempt: int = 1, error: str = "KeyError: 'a'") -> Letter:
    body = job.definition.body(job.id, bench.tenant, job.version)
    return Letter(
        bench.tenant,
        job.id,
        to_microseconds(at),
        attempt,
        "default",
        job.definition.handler,
        DeadReason.EXHAUSTED,
        error,
        "Traceback",
        body,
    )


async def write(bench: Bench, *letters: Letter) -> None:
    async with bench.pool.acquire() as connection, connection.transaction():
        await bury(connection, letters)


async def dead(bench: Bench, job: Job, at: datetime, attempt: int = 1, error: str = "KeyError: 'a'") -> int:
    """A run that died, with all its attempts; the id of its letter."""
    await record(bench, job, at, attempt, Outcome.DEAD)
    await write(bench, letter(bench, job, at, attempt, error))
    letter_id: int = await bench.value(
        "SELECT id FROM dead_letters WHERE job_id = $1 AND scheduled_at = $2 AND attempt = $3",
        job.id,
        at,
        attempt,
    )
    return letter_id


async def record(bench: Bench, job: Job, at: datetime, attempt: int, outcome: Outcome) -> None:
    """One run as a worker would have left it; its fired timer is gone."""
    claim = await bench.value("SELECT 1 + coalesce(max(id), 0) FROM claims")
    await bench.fetch(
        "INSERT INTO claims (id, worker_id, outcomes) VALUES ($1, 'w', $2)", claim, bytes([outcome])
    )
    await bench.fetch(
        "INSERT INTO runs (job_id, scheduled_at, claim_id, position, attempt) VALUES ($1, $2, $3, 0, $4)",
        job.id,
        at,
        claim,
        attempt,
    )
    await bench.fetch(
        "DELETE FROM timers WHERE job_id = $1 AND scheduled_at = $2 AND attempt = $3", job.id, at, attempt
    )


async def stage(bench: Bench) -> tuple[DeadLetters, Job, datetime]:
    job = await bench.create(handler="h", schedule="@daily")
    return DeadLetters(bench.pool, SHARDS), job, await bench.in_one_hour()


async def redriven_at(bench: Bench, letter_id: int) -> Any:
    return await bench.value("SELECT redriven_at FROM dead_letters WHERE id = $1", letter_id)


# Writing


async def test_a_letter_holds_what_was_executed_and_why_it_died(bench: Bench) -> None:
    letters, job, at = await stage(bench)
    letter_id = await dead(bench, job, at, 3)
    found = await letters.get(bench.tenant, letter_id)
    assert (found.job_id, found.scheduled_at, found.attempt) == (job.id, at, 3)
    assert (found.reason, found.error, found.traceback) == (
        DeadReason.EXHAUSTED,
        "KeyError: 'a'",
        "Traceback",
    )
    assert found.fingerprint == fingerprint("h", "KeyError: 'b'")
    assert found.body == job.definition.body(job.id, bench.tenant, 1)
    assert (found.redriven_at, found.previous_id, found.pool) == (None, None, "default")


async def test_a_run_has_one_letter(bench: Bench) -> None:
    letters, job, at = await stage(bench)
    await write(bench, letter(bench, job, at), letter(bench, job, at, 2), letter(bench, job, at))
    await write(bench, letter(bench, job, at, error="another"))
    assert [found.attempt for found in await letters.find(bench.tenant)] == [1, 2]
    assert await letters.count(bench.tenant, fingerprint=fingerprint("h", "another")) == 0


async def test_text_that_postgres_cannot_store_does_not_lose_the_letter(bench: Bench) -> None:
    letters, job, at = await stage(bench)
    await write(bench, letter(bench, job, at, error="a\0b\ud800c" + "x" * 100_000))
    [found] = await letters.find(bench.tenant)
    assert found.error is not None
    assert found.error.startswith("a\ufffdb?cxxx")
    assert len(found.error) == 10_000


async def test_a_letter_without_a_traceback_has_none(bench: Bench) -> None:
    letters, job, at = await stage(bench)
    await write(bench, letter(bench, job, at)._replace(traceback=None))
    [found] = await letters.find(bench.tenant)
    assert (await letters.get(bench.tenant, found.id)).traceback is None


async def test_unreadable_messages_are_kept_whole_and_belong_to_nobody(bench: Bench) -> None:
    letters, _, _ = await stage(bench)
    before = await bench.value("SELECT coalesce(max(id), 0) FROM dead_letters")
    async with bench.pool.acquire() as connection:
        await bury_unreadable(connection, "default", [(b"\x00\xff", "version 0"), (b"", "version 7")])
        await bury_unreadable(connection, "default", [])
    rows = await bench.fetch(
        "SELECT tenant_id, pool, reason, error, body, fingerprint FROM dead_letters"
        " WHERE id > $1 ORDER BY id",
        before,
    )
    kind = fingerprint("", "version 1")
    assert rows == [
        (None, "default", "unreadable", "version 0", b"\x00\xff", kind),
        (None, "default", "unreadable", "version 7", b"", kind),
    ]
    assert await letters.count(bench.tenant) == 0


# Finding


async def test_letters_are_found_by_every_field_of_the_filter(bench: Bench) -> None:
    letters, job, at = await stage(bench)
    other = await bench.create(handler="i", schedule="@daily")
    ids = [
        await dead(bench, job, at),
        await dead(bench, job, at + HOUR, error="ValueError"),
        await dead(bench, other, at),
    ]
    await letters.redrive(bench.tenant, ids[:1])
    created = (await letters.get(bench.tenant, ids[1])).created_at

    async def found(**where: Any) -> list[int]:
        rows = await letters.find(bench.tenant, **where)
        assert await letters.count(bench.tenant, **where) == len(rows)
        return [row.id for row in rows]

    assert await found() == ids
    assert await found(fingerprint=fingerprint("h", "ValueError")) == [ids[1]]
    assert await found(handler="h") == ids[:2]
    assert await found(job_id=other.id) == [ids[2]]
    assert await found(since=created) == ids[1:]
    assert (await found(redriven=True), await found(redriven=False)) == (ids[:1], ids[1:])
    assert await found(handler="h", redriven=False) == [ids[1]]
    pages = [await letters.find(bench.tenant, limit=2, after_id=after) for after in (0, ids[1])]
    assert [[row.id for row in page] for page in pages] == [ids[:2], ids[2:]]


async def test_another_tenant_finds_nothing(bench: Bench) -> None:
    letters, job, at = await stage(bench)
    letter_id = await dead(bench, job, at)
    stranger = await bench.value("INSERT INTO tenants (name) VALUES ($1) RETURNING id", f"s-{letter_id}")
    assert (await letters.find(stranger), await letters.count(stranger)) == ([], 0)
    for attempted in (letters.get(stranger, letter_id), letters.redrive(stranger, [letter_id])):
        with pytest.raises(NotFound) as refusal:
            await attempted
        assert (refusal.value.what, refusal.value.key) == ("dead letter", letter_id)
    assert (await letters.redrive_matching(stranger, {})).runs == ()
    assert await redriven_at(bench, letter_id) is None


async def test_nobody_asks_for_everything_at_once(bench: Bench) -> None:
    letters, _, _ = await stage(bench)
    with pytest.raises(InvalidInput):
        await letters.find(bench.tenant, limit=1001)
    with pytest.raises(InvalidInput):
        await letters.redrive_matching(bench.tenant, {}, 0)


# Redriving


async def test_a_redrive_is_the_next_attempt_with_a_fresh_budget(bench: Bench) -> None:
    letters, job, at = await stage(bench)
    letter_id = await dead(bench, job, at, 4)
    assert await letters.redrive(bench.tenant, [letter_id, letter_id]) == [RunKey(job.id, at, 5)]
    rows = await bench.fetch(
        "SELECT shard, attempt, retries, losses, cause, due_at <= clock_timestamp() FROM timers"
        " WHERE job_id = $1 AND scheduled_at = $2",
        job.id,
        at,
    )
    assert rows == [(job.shard, 5, 0, 0, "redrive", True)]
    assert await redriven_at(bench, letter_id) is not None


async def test_the_next_attempt_is_after_all_that_any_table_knows(bench: Bench) -> None:
    """After a cancelled attempt the letter's own number says too little."""
    letters, job, at = await stage(bench)
    letter_id = await dead(bench, job, at)
    await letters.redrive(bench.tenant, [letter_id])
    await record(bench, job, at, 2, Outcome.CANCELLED)
    assert await letters.redrive(bench.tenant, [letter_id]) == [RunKey(job.id, at, 3)]


@pytest.mark.parametrize("outcome", [None, Outcome.PENDING, Outcome.FAILED, Outcome.LOST])
async def test_redriving_twice_is_one(bench: Bench, outcome: Outcome | None) -> None:
    letters, job, at = await stage(bench)
    letter_id = await dead(bench, job, at)
    await letters.redrive(bench.tenant, [letter_id])
    if outcome is not None:
        await record(bench, job, at, 2, outcome)
    before = await bench.timers(job), await redriven_at(bench, letter_id)
    with pytest.raises(RedriveRefused) as refusal:
        await letters.redrive(bench.tenant, [letter_id])
    assert (refusal.value.letter_id, refusal.value.status) == (letter_id, "redriven")
    assert refusal.value.reason == "the attempt after it has not ended yet"
    assert (await bench.timers(job), await redriven_at(bench, letter_id)) == before


async def test_a_redriven_run_that_has_left_for_kafka_is_not_redriven_again(bench: Bench) -> None:
    """Its timer is gone and no run is there yet."""
    letters, job, at = await stage(bench)
    letter_id = await dead(bench, job, at)
    await letters.redrive(bench.tenant, [letter_id])
    await bench.fetch("DELETE FROM timers WHERE job_id = $1", job.id)
    with pytest.raises(RedriveRefused):
        await letters.redrive(bench.tenant, [letter_id])
    assert await bench.timers(job) == []


async def test_two_redrives_at_once_are_one(bench: Bench) -> None:
    letters, job, at = await stage(bench)
    letter_id = await dead(bench, job, at)
    hold = "SELECT FROM dead_letters WHERE id = $1 FOR NO KEY UPDATE"
    async with asyncio.TaskGroup() as tasks, bench.holding(hold, letter_id) as other:
        both = [tasks.create_task(_outcome(letters.redrive(bench.tenant, [letter_id]))) for _ in range(2)]
        await bench.until_waiting(other)
    assert sorted(task.result() for task in both) == ["RedriveRefused", "redriven"]
    assert len(await bench.timers(job)) == 1


async def _outcome(attempted: Any) -> str:
    try:
        await attempted
    except RedriveRefused as refusal:
        return type(refusal).__name__
    return "redriven"


async def test_a_run_that_succeeded_after_its_redrive_is_not_run_again(bench: Bench) -> None:
    letters, job, at = await stage(bench)
    letter_id = await dead(bench, job, at)
    await letters.redrive(bench.tenant, [letter_id])
    await record(bench, job, at, 2, Outcome.SUCCEEDED)
    with pytest.raises(RedriveRefused) as refusal:
        await letters.redrive(bench.tenant, [letter_id])
    assert refusal.value.status == "succeeded"


async def test_a_redriven_run_that_dies_again_has_a_letter_that_knows_the_one_before(bench: Bench) -> None:
    letters, job, at = await stage(bench)
    first = await dead(bench, job, at)
    await letters.redrive(bench.tenant, [first])
    second = await dead(bench, job, at, 2)
    assert (await letters.get(bench.tenant, second)).previous_id == first
    with pytest.raises(RedriveRefused) as refusal:
        await letters.redrive(bench.tenant, [first])
    assert refusal.value.reason == f"it was, and the run died again: redrive {second}"
    assert await letters.redrive(bench.tenant, [second]) == [RunKey(job.id, at, 3)]


async def test_a_letter_of_another_occurrence_is_not_the_one_before(bench: Bench) -> None:
    letters, job, at = await stage(bench)
    first = await dead(bench, job, at)
    await letters.redrive(bench.tenant, [first])
    second = await dead(bench, job, at + HOUR, 2)
    assert (await letters.get(bench.tenant, second)).previous_id is None


async def test_a_letter_of_a_later_attempt_is_not_the_one_before(bench: Bench) -> None:
    letters, job, at = await stage(bench)
    await letters.redrive(bench.tenant, [await dead(bench, job, at, 2)])
    late = await dead(bench, job, at, 1)
    assert (await letters.get(bench.tenant, late)).previous_id is None


async def test_a_letter_of_a_deleted_job_is_refused_and_none_of_the_call_is_redriven(bench: Bench) -> None:
    letters, job, at = await stage(bench)
    gone = await bench.create(handler="h", schedule="@daily")
    ids = [await dead(bench, job, at), await dead(bench, gone, at)]
    await bench.registry.delete(bench.tenant, gone.id)
    with pytest.raises(RedriveRefused) as refusal:
        await letters.redrive(bench.tenant, ids)
    assert (refusal.value.letter_id, refusal.value.status) == (ids[1], "deleted")
    assert str(refusal.value) == f"cannot redrive the dead letter {ids[1]}: its job is deleted"
    assert await bench.timers(job) == []
    assert [await redriven_at(bench, each) for each in ids] == [None, None]


async def test_a_message_nobody_could_read_cannot_be_redriven(bench: Bench) -> None:
    letters, _, _ = await stage(bench)
    async with bench.pool.acquire() as connection:
        await bury_unreadable(connection, "default", [(b"?", "version 0")])
    letter_id = await bench.value("SELECT max(id) FROM dead_letters WHERE tenant_id IS NULL")
    with pytest.raises(RedriveRefused) as refusal:
        await letters.redrive(bench.tenant, [letter_id])
    assert refusal.value.status == "unreadable"


async def test_a_completed_one_off_is_active_again_until_its_redrive_has_ended(bench: Bench) -> None:
    letters, job = DeadLetters(bench.pool, SHARDS), await bench.one_off()
    at = job.definition.run_at
    assert at is not None
    letter_id = await dead(bench, job, at)
    await bench.set_status(job, "completed")
    await letters.redrive(bench.tenant, [letter_id])
    assert (await bench.registry.get(bench.tenant, job.id)).status == "active"
    await record(bench, job, at, 2, Outcome.SUCCEEDED)
    async with bench.pool.acquire() as connection, connection.transaction():
        await end_runs(
            connection,
            [Ended(job.id, to_microseconds(at), 2, Outcome.SUCCEEDED, overlaps=False, one_off=True)],
        )
    assert (await bench.registry.get(bench.tenant, job.id)).status == "completed"


async def test_the_timer_of_a_paused_job_waits(bench: Bench) -> None:
    letters, job, at = await stage(bench)
    letter_id = await dead(bench, job, at)
    await bench.registry.pause(bench.tenant, job.id)
    await letters.redrive(bench.tenant, [letter_id])
    assert len(await bench.timers(job)) == 1
    assert (await bench.registry.get(bench.tenant, job.id)).status == "paused"


async def test_a_redrive_makes_the_day_that_is_gone(bench: Bench) -> None:
    """The day of the run was dropped; its next attempt needs one."""
    letters, job, _ = await stage(bench)
    at = await bench.value("SELECT date_trunc('day', now() - interval '400 days', 'UTC') + interval '1 hour'")
    await write(bench, letter(bench, job, at))
    [found] = await letters.find(bench.tenant)
    assert await letters.redrive(bench.tenant, [found.id]) == [RunKey(job.id, at, 2)]
    await record(bench, job, at, 2, Outcome.SUCCEEDED)


async def test_a_fingerprint_is_redriven_in_one_call(bench: Bench) -> None:
    letters, job, at = await stage(bench)
    gone = await bench.create(handler="h", schedule="@daily")
    deleted = await dead(bench, gone, at, error="no row 9")
    await bench.registry.delete(bench.tenant, gone.id)
    wanted = [await dead(bench, job, at + n * HOUR, error=f"no row {n}") for n in range(3)]
    other = await dead(bench, job, at + 3 * HOUR, error="timeout")
    kind = fingerprint("h", "no row 7")
    done = await letters.redrive_matching(bench.tenant, {"fingerprint": kind}, 2)
    assert done.runs == (RunKey(job.id, at, 2), RunKey(job.id, at + HOUR, 2))
    done = await letters.redrive_matching(bench.tenant, {"fingerprint": kind}, 2)
    assert (done.runs, done.refused) == ((RunKey(job.id, at + 2 * HOUR, 2),), ())
    assert await letters.redrive_matching(bench.tenant, {"fingerprint": kind}) == ((), ())
    assert [bool(await redriven_at(bench, each)) for each in (*wanted, other, deleted)] == [True] * 3 + [
        False
    ] * 2


async def test_what_cannot_be_redriven_stays_behind_with_its_reason(bench: Bench) -> None:
    letters, job, at = await stage(bench)
    ids = [await dead(bench, job, at), await dead(bench, job, at + HOUR)]
    await record(bench, job, at, 2, Outcome.SUCCEEDED)
    done = await letters.redrive_matching(bench.tenant, {})
    assert done.runs == (RunKey(job.id, at + HOUR, 2),)
    assert [(refusal.letter_id, refusal.status) for refusal in done.refused] == [(ids[0], "succeeded")]


async def test_a_redrive_does_not_make_the_next_death_wait(bench: Bench) -> None:
    """The letter of the next death refers to the locked one."""
    letters, job, at = await stage(bench)
    first = await dead(bench, job, at)
    await letters.redrive(bench.tenant, [first])
    async with bench.holding("SELECT FROM dead_letters WHERE id = $1 FOR NO KEY UPDATE", first):
        async with asyncio.timeout(30):
            second = await dead(bench, job, at, 2)
    assert (await letters.get(bench.tenant, second)).previous_id == first
