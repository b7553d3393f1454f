"""What follows from the end of a run, and what becomes of endings that could not be written."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, cast

import pytest

from mainspring.clock import ManualClock
from mainspring.schema.errors import DatabaseUnavailable
from mainspring.schema.messages import Message
from mainspring.schema.states import Outcome, TimerCause
from mainspring.worker.batches import SUCCESS, Batch, Ending
from mainspring.worker.plans import NewTimer
from mainspring.worker.reporting import PARTIAL_SECONDS, Pool, Reporter, _next_attempt
from tests.unit.worker.runs import NOON, batch_of, message

FAILED = Ending(Outcome.FAILED, "no", after=timedelta(seconds=90))
HANDED_BACK = Ending(Outcome.LOST, "handed back", after=timedelta(0), spends=False)


def next_attempt(each: Message, ending: Ending) -> NewTimer | None:
    """What follows when it ends so, seven seconds after its claim."""
    batch = batch_of([each])
    batch.end(batch.runs[0], ending, 7.0)
    return _next_attempt((batch.runs[0], ending))


def test_a_failure_is_tried_again_that_long_after_its_end_and_spends_a_retry() -> None:
    run = message(5, shard=3, attempt=2, retries=1, losses=1)
    assert next_attempt(run, FAILED) == NewTimer(
        shard=3,
        due_at=NOON + timedelta(seconds=7 + 90),
        job_id=5,
        scheduled_at=run.scheduled_at,
        attempt=3,
        retries=2,
        losses=1,
        cause=TimerCause.RETRY,
    )


def test_what_was_handed_back_is_due_at_once_and_spends_no_retry() -> None:
    timer = next_attempt(message(attempt=2, retries=1), HANDED_BACK)
    assert timer is not None
    assert (timer.attempt, timer.retries, timer.due_at) == (3, 1, NOON + timedelta(seconds=7))


@pytest.mark.parametrize("outcome", [Outcome.SUCCEEDED, Outcome.CANCELLED, Outcome.DEAD])
def test_an_end_without_a_next_attempt_is_no_timer(outcome: Outcome) -> None:
    assert next_attempt(message(), Ending(outcome)) is None


class Away:
    """A pool of a Postgres that does not answer; something may happen while it is asked."""

    def __init__(self) -> None:
        self.asked = 0
        self.meanwhile: Callable[[], None] = lambda: None

    def acquire(self) -> Away:
        return self

    async def __aenter__(self) -> Any:
        self.asked += 1
        self.meanwhile()
        raise ConnectionRefusedError

    async def __aexit__(self, *_: object) -> None:
        raise AssertionError("nobody got in")


class World:
    """A reporter that cannot reach Postgres."""

    def __init__(self) -> None:
        self.clock, self.pool = ManualClock(NOON), Away()
        self.reporter = Reporter(cast(Pool, self.pool), worker_id="w", worker_pool="p", clock=self.clock)

    def claim(self, runs: int, claim_id: int = 1) -> Batch:
        batch = batch_of(
            [message(number) for number in range(1, runs + 1)],
            claim_id=claim_id,
            monotonic=self.clock.monotonic(),
        )
        self.reporter.add(batch)
        return batch

    def end(self, batch: Batch, position: int, ending: Ending = FAILED) -> None:
        batch.end(batch.runs[position], ending, self.clock.monotonic())

    def has_something(self) -> bool:
        return self.reporter.unwritten

    async def tries(self, *, hurry: bool = False) -> bool:
        """Whether a round finds anything to write now."""
        asked = self.pool.asked
        try:
            await self.reporter.run_once(hurry=hurry)
        except DatabaseUnavailable:
            return True
        return self.pool.asked > asked


async def test_a_flush_that_failed_keeps_its_endings_in_their_order() -> None:
    """Also before those that came while it was tried."""
    world = World()
    batch = world.claim(4)
    world.end(batch, 2)
    world.end(batch, 0)
    world.pool.meanwhile = lambda: world.end(batch, 3)
    assert await world.tries(hurry=True)
    world.pool.meanwhile = lambda: world.end(batch, 1)
    assert await world.tries(hurry=True)
    assert [run.position for run, _ in batch.endings] == [2, 0, 3, 1]
    assert {ending for _, ending in batch.endings} == {FAILED}
    assert world.has_something()
    assert batch.is_dirty


async def test_a_claim_that_is_over_is_written_at_once_one_that_goes_on_once_a_second() -> None:
    world = World()
    batch = world.claim(2)
    assert not await world.tries(hurry=True)
    world.end(batch, 0)
    assert not await world.tries()
    assert await world.tries(hurry=True)
    world.clock.advance(timedelta(seconds=PARTIAL_SECONDS))
    assert await world.tries()
    other = world.claim(1, claim_id=2)
    world.end(other, 0, SUCCESS)
    world.reporter.forget([batch])
    assert await world.tries()


class Reaped:
    """A Postgres in which somebody has reaped every claim; after the first transaction it is away."""

    def __init__(self) -> None:
        self.transactions = 0

    def acquire(self) -> Reaped:
        return self

    transaction = acquire

    async def __aenter__(self) -> Reaped:
        self.transactions += 1
        if self.transactions > 2:  # a connection and its transaction
            raise ConnectionRefusedError
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    async def fetchval(self, *_: Any) -> None:
        return None


async def test_a_lost_claim_is_told_of_also_when_the_round_could_not_go_on() -> None:
    """Else its runs would go on beside their next attempts."""
    world = World()
    pool = Reaped()
    world.reporter = Reporter(cast(Pool, pool), worker_id="w", worker_pool="p", clock=world.clock)
    batches = [world.claim(1, claim_id=number) for number in range(1, 101)]
    for batch in batches:
        world.end(batch, 0)
    with pytest.raises(DatabaseUnavailable):
        await world.reporter.run_once()
    pool.transactions = -1000
    reported = await world.reporter.run_once()
    assert [batch.id for batch in reported.lost] == [batch.id for batch in batches]
    assert (await world.reporter.run_once()).lost == []


async def test_what_is_forgotten_is_never_written() -> None:
    world = World()
    batches = [world.claim(1, claim_id=number) for number in (1, 2)]
    for batch in batches:
        world.end(batch, 0)
    assert world.has_something()
    world.reporter.forget([batches[0]])
    assert await world.tries(hurry=True)
    world.reporter.forget_all()
    assert not world.has_something()
    assert not await world.tries(hurry=True)
    assert [batch.is_ours for batch in batches] == [False, False]


async def test_a_claim_with_nothing_to_execute_is_not_looked_after() -> None:
    world = World()
    batch = Batch(1, NOON, 0.0, bytes([Outcome.VOID, Outcome.MISSED]))
    world.reporter.add(batch)
    assert not world.has_something()
    assert not await world.tries(hurry=True)


def test_the_first_outcome_of_a_run_stands() -> None:
    batch = batch_of([message(1), message(2)])
    batch.end(batch.runs[0], FAILED, 1.0)
    batch.end(batch.runs[0], SUCCESS, 2.0)
    assert list(batch.outcomes) == [Outcome.FAILED, Outcome.PENDING]
    assert (batch.open, batch.ended_ms) == (1, [1000, None])
    assert [ending for _, ending in batch.endings] == [FAILED]
