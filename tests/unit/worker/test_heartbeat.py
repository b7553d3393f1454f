"""What a worker may do by the age of its last heartbeat; the row itself is tested on a real Postgres."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, cast

import pytest

from mainspring.clock import ManualClock
from mainspring.schema.errors import DatabaseUnavailable
from mainspring.worker.claiming import DeclaredDead
from mainspring.worker.heartbeat import DESPAIR_SECONDS, DOUBT_SECONDS, Fitness, Heartbeat, Pool
from tests.unit.worker.runs import NOON


class Row:
    """The worker's row as a pool: it takes so long to answer, or does not answer, or is dead."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.takes = 0.0
        self.away = self.dead = False

    async def fetchval(self, *_: Any) -> int | None:
        self.clock.advance(timedelta(seconds=self.takes))
        if self.away:
            raise ConnectionRefusedError
        return None if self.dead else 1

    async def execute(self, *_: Any) -> None:
        await self.fetchval()


class World:
    """A worker's heartbeat, and its row."""

    def __init__(self) -> None:
        self.clock = ManualClock(NOON)
        self.row = Row(self.clock)
        self.heartbeat = Heartbeat(cast(Pool, self.row), "w", self.clock)

    def wait(self, seconds: float) -> Fitness:
        self.clock.advance(timedelta(seconds=seconds))
        return self.heartbeat.fitness


def test_a_new_life_is_fit() -> None:
    assert World().heartbeat.fitness is Fitness.FIT


def test_fitness_goes_by_age() -> None:
    world = World()
    assert world.wait(DOUBT_SECONDS - 0.1) is Fitness.FIT
    assert world.wait(0.1) is Fitness.DOUBTFUL
    assert world.wait(DESPAIR_SECONDS - DOUBT_SECONDS - 0.1) is Fitness.DOUBTFUL
    assert world.wait(0.1) is Fitness.UNFIT
    assert world.heartbeat.age == pytest.approx(DESPAIR_SECONDS)


def test_everything_has_ended_before_the_reaper_acts() -> None:
    """Fifteen seconds of silence: what is asked to stop at despair has its patience left before them."""
    assert DESPAIR_SECONDS < 15
    assert DOUBT_SECONDS < DESPAIR_SECONDS


async def test_a_beat_makes_fit_again() -> None:
    world = World()
    assert world.wait(DESPAIR_SECONDS) is Fitness.UNFIT
    await world.heartbeat.beat()
    assert world.heartbeat.fitness is Fitness.FIT


async def test_a_beat_counts_from_when_it_was_sent_not_from_its_answer() -> None:
    world = World()
    world.row.takes = 3.0
    await world.heartbeat.beat()
    assert world.heartbeat.age == pytest.approx(3.0)
    await world.heartbeat.register("p", ["high"], ["h"], 1)
    assert world.heartbeat.age == pytest.approx(3.0)


async def test_a_beat_that_is_not_heard_renews_nothing() -> None:
    world = World()
    world.wait(4)
    world.row.away = True
    with pytest.raises(DatabaseUnavailable):
        await world.heartbeat.beat()
    assert world.heartbeat.age == pytest.approx(4.0)


async def test_who_is_dead_learns_it_from_a_beat_and_is_not_renewed() -> None:
    world = World()
    world.wait(4)
    world.row.dead = True
    with pytest.raises(DeclaredDead):
        await world.heartbeat.beat()
    assert world.heartbeat.age == pytest.approx(4.0)


def test_a_step_of_the_wall_clock_changes_nothing() -> None:
    world = World()
    world.clock.step_wall(timedelta(hours=1))
    assert world.heartbeat.fitness is Fitness.FIT
