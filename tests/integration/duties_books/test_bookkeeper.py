"""Design 3.6: what was published and did not arrive is found, counted and published again."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from datetime import timedelta
from typing import Any

import pytest

from mainspring.registry import Job
from mainspring.schedule import jitter_offset
from mainspring.scheduler.duties.bookkeeper import Balanced
from tests.integration.duties_books.conftest import Desk
from tests.integration.scheduler.simulated import START, instant

Events = list[MutableMapping[str, Any]]
JUDGED = 6
"""Rounds within which a loss is found: the patience, and an answer of Kafka that counts."""
AT_2 = "2 0 12 * * *"
"""Once a day, two seconds after START."""


def named(events: Events, name: str) -> list[MutableMapping[str, Any]]:
    return [event for event in events if event["event"] == name]


def about_books(events: Events) -> list[MutableMapping[str, Any]]:
    return [event for event in events if event["event"].startswith("books_")]


async def lost_at_2(desk: Desk, **body: Any) -> Job:
    """A job whose only message is gone before anybody read it."""
    await desk.hire()
    job = await desk.create(AT_2, **body)
    leader = await desk.leading()
    await desk.fire(leader, 2)
    await desk.lose()
    return job


async def test_lost_records_are_published_again_and_run(desk: Desk, events: Events) -> None:
    await desk.hire()
    taken = await desk.create("1 0 12 * * *")
    lost = await desk.create_many(5, AT_2)
    leader = await desk.leading()
    await desk.fire(leader, 1)
    await desk.take()
    await desk.fire(leader, 2)
    await desk.lose()
    done = await desk.rounds(JUDGED)
    assert (done.missing, done.repaired, done.unexplained) == (5, 5, 0)
    assert await desk.timers() == [(job_id, 2, 1, 2) for job_id in sorted(lost)]
    assert sum(event["messages"] for event in named(events, "books_repaired")) == 5
    await leader.live()
    again = await desk.take("catchup")
    assert sorted(message.job.job_id for message in again) == sorted(lost)
    assert {message.second for message in again} == {START + 2}
    done = await desk.rounds(JUDGED)
    assert done.short == 0
    assert await desk.is_balanced()
    assert await desk.runs_of(taken) == [1]
    assert [await desk.runs_of(job_id) for job_id in lost] == [[2]] * 5


async def test_what_waits_in_kafka_is_not_published_again(desk: Desk, events: Events) -> None:
    await desk.hire()
    job = await desk.create(AT_2)
    leader = await desk.leading()
    await desk.fire(leader, 2)
    done = await desk.rounds(20)
    assert (done.repaired, done.unexplained) == (0, 0)
    assert not await desk.is_balanced()
    await desk.take()
    done = await desk.rounds(20)
    assert (done.missing, done.repaired, done.unexplained) == (0, 0, 0)
    assert await desk.is_balanced()
    assert await desk.timers() == []
    assert await desk.instants(job) == [2]
    assert about_books(events) == []


async def test_a_pool_that_is_never_served_hides_no_loss_of_another(desk: Desk) -> None:
    await desk.hire()
    lost = await desk.create_many(20, AT_2)
    await desk.create_many(20, AT_2, pool=f"{desk.name}-absent")
    leader = await desk.leading()
    await desk.fire(leader, 2)
    await desk.lose()
    done = await desk.rounds(JUDGED)
    assert {each[0] for each in await desk.timers()} == set(lost)
    assert done.unexplained == 0
    done = await desk.rounds(10)
    assert (done.repaired, done.unexplained) == (0, 0)
    await desk.take(pool=f"{desk.name}-absent")
    await leader.live()
    await desk.take("catchup")
    await desk.rounds(JUDGED)
    assert await desk.is_balanced()


async def test_a_topic_that_was_deleted_is_a_loss(desk: Desk) -> None:
    await desk.hire()
    job = await desk.create(AT_2)
    leader = await desk.leading()
    await desk.fire(leader, 2)
    await desk.delete_topic()
    await desk.rounds(JUDGED)
    assert await desk.timers() == [(job.id, 2, 1, 2)]


async def test_a_topic_that_is_never_empty_is_judged_by_what_was_read(desk: Desk) -> None:
    await desk.hire()
    lost = await desk.create(AT_2)
    busy = await desk.create("*/20 * * * * *", missed_window="RUN_ALL")
    leader = await desk.leading()
    await desk.fire(leader, 2)
    await desk.lose()
    for _ in range(JUDGED + 1):
        await desk.rounds(1)
        await desk.take("normal")
        await desk.take("catchup")
        await leader.live()  # so that something waits at every look
    await desk.take("normal")
    await desk.take("catchup")
    assert await desk.runs_of(lost) == [2]
    assert await desk.runs_of(busy) == list(range(0, int(desk.second - START) + 1, 20))[1:]


async def test_copies_do_not_hide_a_loss(desk: Desk) -> None:
    await desk.hire()
    await desk.create_many(6, AT_2)
    leader = await desk.leading()
    await desk.fire(leader, 2)
    messages = await desk.take(claimed=False)
    kept, lost = messages[:3], messages[3:]
    for _ in range(2):
        await desk.claim(kept)
    await desk.rounds(JUDGED)
    assert {each[0] for each in await desk.timers()} == {message.job.job_id for message in lost}


async def test_a_row_counted_twice_is_reported_once_as_unexplained(desk: Desk, events: Events) -> None:
    await desk.hire()
    await desk.create(AT_2)
    leader = await desk.leading()
    await desk.fire(leader, 2)
    await desk.take()
    await desk.execute("UPDATE ledger SET published = published + 3")
    done = await desk.rounds(JUDGED)
    assert (done.short, done.missing, done.repaired, done.unexplained) == (1, 0, 0, 3)
    done = await desk.rounds(JUDGED)
    assert (done.short, done.unexplained) == (0, 0)
    [event] = named(events, "books_unexplained")
    assert (event["published"], event["claimed"], event["messages"]) == (4, 1, 3)
    assert await desk.timers() == []


async def test_a_claim_that_is_not_yet_counted_is_not_unexplained(desk: Desk) -> None:
    """A worker that was away takes what waited just before the bookkeeper looks."""
    await desk.hire()
    await desk.create(AT_2)
    leader = await desk.leading()
    await desk.fire(leader, 2)
    await desk.rounds(JUDGED)
    for _ in range(30):
        await desk.at(desk.second + 5)
        if desk.second > START + 300:
            await desk.take()
        done = await desk.keeper.run_once()
        assert (done.repaired, done.unexplained) == (0, 0)
    assert await desk.is_balanced()


@pytest.mark.parametrize("change", ["pause", "delete"])
async def test_a_job_that_no_longer_fires_is_not_repaired(desk: Desk, events: Events, change: str) -> None:
    job = await lost_at_2(desk)
    await getattr(desk.registry, change)(desk.tenant, job.id)
    done = await desk.rounds(JUDGED)
    assert (done.short, done.missing, done.repaired, done.unexplained) == (1, 0, 0, 0)
    assert await desk.timers() == []
    assert about_books(events) == []
    assert await desk.is_balanced()


async def test_an_occurrence_is_looked_for_in_the_second_to_which_its_jitter_moved_it(desk: Desk) -> None:
    await desk.hire()
    jobs = await desk.create_many(12, AT_2, jitter_seconds=30)
    moved = {
        job_id: 2 + jitter_offset(job_id, timedelta(seconds=30), instant(START + 2), None).seconds
        for job_id in jobs
    }
    leader = await desk.leading()
    await desk.fire(leader, *range(2, 20))
    await desk.take()
    await desk.fire(leader, *range(20, 33))
    await desk.lose()
    await desk.rounds(JUDGED)
    lost = sorted(job_id for job_id, second in moved.items() if second >= 20)
    assert lost
    assert await desk.timers() == [(job_id, 2, 1, moved[job_id]) for job_id in lost]


@pytest.mark.parametrize("policy", ["SKIP", "RUN_ONCE"])
async def test_what_is_too_late_by_its_policy_is_given_up_as_a_leader_gives_it_up(
    desk: Desk, policy: str
) -> None:
    await desk.hire()
    await desk.create("2 * * * * *", missed_window=policy)
    leader = await desk.leading()
    await desk.fire(leader, 2)
    await desk.lose()
    done = await desk.rounds(JUDGED)
    assert (done.missing, done.repaired, done.unexplained) == (1, 0, 0)
    assert await desk.timers() == []
    assert await desk.fetch("SELECT gap_to, skipped FROM missed") == [(instant(START + 2), 1)]
    assert await desk.is_balanced()


async def test_a_lost_one_off_is_published_again(desk: Desk) -> None:
    await desk.hire()
    job = await desk.create("2030-01-01T12:00:02Z", missed_window="SKIP")
    other = await desk.create("2030-01-01T12:00:02Z", jitter_seconds=3600)
    leader = await desk.leading()
    await desk.fire(leader, 2)
    await desk.lose()
    await desk.rounds(JUDGED)
    assert await desk.timers() == [(job.id, 2, 1, 2)]
    assert other.id not in {each[0] for each in await desk.timers()}


async def test_a_lost_retry_is_published_again_with_what_was_spent(desk: Desk) -> None:
    await desk.hire()
    job = await desk.create(AT_2)
    leader = await desk.leading()
    await desk.fire(leader, 2)
    [message] = await desk.take()
    await desk.claim([message._replace(attempt=2, second=START + 3)])
    for attempt, status in ((1, "failed"), (2, "lost")):
        await desk.execute(
            "INSERT INTO failures (job_id, scheduled_at, attempt, tenant_id, status)"
            " VALUES ($1, $2, $3, 1, $4)",
            job.id,
            instant(START + 2),
            attempt,
            status,
        )
    await desk.execute(
        "INSERT INTO timers (shard, due_at, job_id, scheduled_at, attempt, retries, losses, cause)"
        " VALUES ($1, $2, $3, $4, 3, 1, 1, 'retry')",
        job.shard,
        instant(START + 5),
        job.id,
        instant(START + 2),
    )
    await desk.fire(leader, 5)
    await desk.lose()
    done = await desk.rounds(JUDGED)
    assert (done.missing, done.repaired, done.unexplained) == (1, 1, 0)
    assert await desk.timers() == [(job.id, 2, 3, 5)]
    assert await desk.fetch("SELECT retries, losses FROM timers") == [(1, 1)]


PROMISES = {
    "released": (
        "INSERT INTO arrivals (job_id, scheduled_at, released_at) VALUES ($1, $2, $3)",
        1,
    ),
    "redriven": (
        "INSERT INTO dead_letters (tenant_id, job_id, scheduled_at, attempt, pool, reason, fingerprint, body,"
        " redriven_at) VALUES (1, $1, $2, 4, 'p', 'exhausted', 'f', 'x', $3)",
        5,
    ),
    "put off": (
        "INSERT INTO deferrals (job_id, scheduled_at, attempt, first_at) VALUES ($1, $2, 2, $3)",
        2,
    ),
}


@pytest.mark.parametrize("promise", PROMISES)
async def test_a_lost_promise_is_kept(desk: Desk, promise: str) -> None:
    statement, attempt = PROMISES[promise]
    await desk.hire()
    job = await desk.create("0 0 1 1 *")
    leader = await desk.leading()
    await desk.execute(statement, job.id, instant(START), instant(START + 1))
    await desk.execute(
        "INSERT INTO timers (shard, due_at, job_id, scheduled_at, attempt, cause)"
        " VALUES ($1, $2, $3, $4, $5, 'retry')",
        job.shard,
        instant(START + 2),
        job.id,
        instant(START),
        attempt,
    )
    await desk.fire(leader, 2)
    await desk.lose()
    await desk.rounds(JUDGED)
    assert await desk.timers() == [(job.id, 0, attempt, 2)]


async def test_a_dependent_that_was_skipped_is_not_released(desk: Desk) -> None:
    await desk.hire()
    job = await desk.create("0 0 1 1 *")
    leader = await desk.leading()
    await desk.execute(
        "INSERT INTO arrivals (job_id, scheduled_at, failed, released_at)"
        " VALUES ($1, $2, ARRAY[$1::bigint], $2)",
        job.id,
        instant(START),
    )
    await desk.fire(leader, 2)
    await desk.execute(
        "INSERT INTO ledger (shard, second, published) VALUES ($1, $2, 1)", job.shard, instant(START + 2)
    )
    done = await desk.rounds(JUDGED)
    assert (done.repaired, done.unexplained) == (0, 1)


async def test_a_lost_trigger_cannot_be_derived_and_is_reported(desk: Desk) -> None:
    await desk.hire()
    job = await desk.create("0 0 1 1 *")
    leader = await desk.leading()
    await desk.at(START + 1.25)
    await desk.registry.trigger(desk.tenant, job.id)
    await desk.fire(leader, 2)
    await desk.lose()
    done = await desk.rounds(JUDGED)
    assert (done.repaired, done.unexplained) == (0, 1)


async def test_what_is_lost_again_and_again_is_repaired_three_times_and_then_reported(
    desk: Desk, events: Events
) -> None:
    job = await lost_at_2(desk)
    leader = desk.leaders[0]
    repaired = 0
    for _ in range(6):
        done = await desk.rounds(JUDGED)
        repaired += done.repaired
        await leader.live()
        await desk.lose("catchup")
    assert repaired == 3
    assert await desk.runs_of(job) == []
    [event] = named(events, "books_shortfall")
    assert (event["messages"], event["repairs"]) == (1, 3)
    assert await desk.is_balanced()
    assert await desk.timers() == []


async def test_two_holders_at_the_same_time_do_the_work_of_one(desk: Desk, events: Events) -> None:
    await desk.hire()
    await desk.create_many(4, "1 0 12 * * *")
    lost = await desk.create_many(4, AT_2)
    leader = await desk.leading()
    await desk.fire(leader, 1)
    await desk.take()
    await desk.fire(leader, 2)
    await desk.lose()
    both = [desk.keeper, desk.bookkeeper()]
    repaired = 0
    for _ in range(JUDGED):
        await desk.at(desk.second + 40)
        done = await asyncio.gather(*(keeper.run_once() for keeper in both))
        repaired += sum(each.repaired for each in done)
    assert repaired == 4
    assert {each[0] for each in await desk.timers()} == set(lost)
    assert await desk.value("SELECT sum(claimed) FROM ledger") == 4
    assert sum(event["messages"] for event in named(events, "books_repaired")) == 4
    await leader.live()
    await desk.take("catchup")
    await desk.rounds(JUDGED)
    assert await desk.is_balanced()


async def test_a_second_settled_by_another_holder_since_it_was_read_is_left_alone(desk: Desk) -> None:
    job = await lost_at_2(desk)
    other = desk.bookkeeper()
    settle = other._books.settle

    async def overtaken(balances: Any) -> Any:
        assert (await desk.keeper.run_once()).repaired == 1
        await desk.execute("DELETE FROM timers")
        return await settle(balances)

    for _ in range(JUDGED - 3):
        await desk.at(desk.second + 40)
        await asyncio.gather(desk.keeper._ask(instant(desk.second)), other._ask(instant(desk.second)))
        await desk.keeper._books.count()
    other._books.settle = overtaken  # type: ignore[method-assign]
    await desk.at(desk.second + 40)
    done = await other.run_once()
    assert (done.short, done.repaired) == (0, 0)
    assert job.id not in {each[0] for each in await desk.timers()}


async def test_a_new_holder_goes_on_where_the_last_one_stopped(desk: Desk) -> None:
    await desk.hire()
    await desk.create_many(3, "1 0 12 * * *")
    lost = await desk.create(AT_2)
    leader = await desk.leading()
    await desk.fire(leader, 1)
    await desk.take()
    assert (await desk.rounds(1)).seconds > 0
    position = await desk.value("SELECT counted_through FROM books")
    heir = desk.bookkeeper()
    assert (await desk.rounds(1, heir)).seconds == 0
    assert await desk.value("SELECT counted_through FROM books") > position
    assert await desk.value("SELECT sum(claimed) FROM ledger") == 3
    await leader.live()
    await desk.lose("catchup")
    await desk.lose()
    await desk.rounds(2)
    await desk.rounds(JUDGED, desk.bookkeeper())
    assert [each[0] for each in await desk.timers()] == [lost.id]


async def test_a_long_absence_is_caught_up_in_steps(desk: Desk) -> None:
    await desk.hire()
    await desk.create("1 0 12 * * *")
    leader = await desk.leading()
    await desk.fire(leader, 1)
    await desk.at(START + 7200)
    await desk.take()
    lags = []
    for _ in range(14):
        await desk.at(desk.second + 1)
        assert await desk.keeper.run_once() is not None
        lags.append(desk.second - (await desk.value("SELECT counted_through FROM books")).timestamp())
    assert lags == sorted(lags, reverse=True)
    assert lags[0] > 6000
    assert lags[-1] <= 31
    await desk.rounds(1)
    assert await desk.is_balanced()


async def test_a_claim_counted_before_its_ledger_row_is_there_is_kept(desk: Desk) -> None:
    await desk.hire()
    await desk.create(AT_2)
    leader = await desk.leading()
    await desk.at(START + 2)
    await leader.poll()
    await leader.fire()
    await desk.take()
    assert (await desk.rounds(1)).seconds == 1
    assert await desk.fetch("SELECT published, claimed FROM ledger") == [(0, 1)]
    await leader.settle()
    assert await desk.fetch("SELECT published, claimed FROM ledger") == [(1, 1)]
    assert (await desk.rounds(JUDGED)).short == 0


async def test_a_claim_of_a_day_without_a_ledger_makes_the_day(desk: Desk) -> None:
    statement = (
        "INSERT INTO claims (id, worker_id, outcomes, tally_shards, tally_seconds, tally_counts, claimed_at)"
        " VALUES (1, 'w', '\\x01', '{0}', ARRAY[$1::timestamptz], '{1}', $2)"
    )
    await desk.execute(statement, instant(START - 5 * 86400), instant(START + 1))
    assert (await desk.rounds(1)).seconds == 1
    assert await desk.fetch("SELECT second, claimed FROM ledger") == [(instant(START - 5 * 86400), 1)]


async def test_what_is_older_than_the_days_are_kept_is_not_judged(desk: Desk) -> None:
    await lost_at_2(desk)
    await desk.at(START + 31 * 86400)
    for _ in range(JUDGED):
        await desk.execute("UPDATE books SET counted_through = $1", instant(desk.second))
        assert (await desk.rounds(1)).short == 0
    assert await desk.timers() == []


async def test_when_all_balances_a_round_is_three_statements_and_no_question_to_kafka(desk: Desk) -> None:
    await desk.hire()
    await desk.create(AT_2)
    leader = await desk.leading()
    await desk.fire(leader, 2)
    await desk.take()
    await desk.rounds(1)

    class Nobody:
        async def passed(self, *_: object) -> dict[str, Any]:
            raise AssertionError("nobody is to be asked")

    desk.keeper._progress = Nobody()
    assert await desk.rounds(JUDGED) == Balanced()


async def test_a_job_edited_meanwhile_is_owed_nothing_from_before_the_edit(desk: Desk) -> None:
    job = await lost_at_2(desk)
    await desk.at(START + 10)
    await desk.edit(job, schedule="2 0 12 * * 1-7")
    done = await desk.rounds(JUDGED)
    assert (done.repaired, done.unexplained) == (0, 1)
