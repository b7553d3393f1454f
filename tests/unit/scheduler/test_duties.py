"""Which duties are done, by whom, and what a round that fails does to the rest."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import date, timedelta

import pytest
from structlog.testing import capture_logs

from mainspring.scheduler.duties import Duties
from mainspring.scheduler.metrics import Metrics
from mainspring.schema.errors import DatabaseUnavailable

BOUND_SECONDS = 60.0


class Counting:
    """A duty that counts its rounds; its results or errors come from `act`, the round's number in hand."""

    def __init__(self, act: Callable[[int], object] = lambda number: number) -> None:
        self.pause = timedelta(0)
        self.begun = self.ended = 0
        self.hold = asyncio.Event()
        self.hold.set()
        self._act = act

    async def run_once(self) -> object:
        self.begun += 1
        try:
            await self.hold.wait()
            return self._act(self.begun)
        finally:
            self.ended += 1


class World:
    """A process with the duties `a`, `b` and `c`."""

    def __init__(self, tasks: asyncio.TaskGroup) -> None:
        self.told: list[tuple[str, object | None]] = []
        self.a, self.b, self.c = Counting(), Counting(), Counting()
        self.all = {"a": self.a, "b": self.b, "c": self.c}
        self.duties = Duties(self.all, tasks, lambda name, result: self.told.append((name, result)))
        self.is_over: Callable[[], bool] = lambda: False

    async def goes_on(self, *names: str) -> None:
        """Each of these has another two rounds."""
        wanted = {name: self.all[name].ended + 2 for name in names}
        await until(
            lambda: self.is_over() or all(self.all[name].ended >= rounds for name, rounds in wanted.items())
        )
        assert not self.is_over(), "the process has ended"

    async def rests(self, *names: str) -> None:
        """None of these has another round while others have several."""
        before = {name: self.all[name].begun for name in names}
        for _ in range(100):
            await asyncio.sleep(0)
        assert {name: self.all[name].begun for name in names} == before


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made: asyncio.Future[World] = asyncio.get_running_loop().create_future()
    over = asyncio.Event()

    async def process() -> None:
        async with asyncio.TaskGroup() as tasks:
            made.set_result(World(tasks))
            await over.wait()

    task = asyncio.create_task(process())
    world = await made
    world.is_over = task.done
    yield world
    await world.duties.stop()
    over.set()
    await task


async def until(fact: Callable[[], bool]) -> None:
    end = time.monotonic() + BOUND_SECONDS
    while not fact():
        assert time.monotonic() < end, "it never came true"
        await asyncio.sleep(0)


async def test_nothing_is_done_before_it_is_held(world: World) -> None:
    await world.rests("a", "b", "c")
    assert set(world.duties.names) == {"a", "b", "c"}


async def test_exactly_what_is_held_is_done(world: World) -> None:
    await world.duties.attend({"a", "b"})
    await world.goes_on("a", "b")
    await world.rests("c")
    await world.duties.attend({"b", "c"})
    await world.goes_on("b", "c")
    await world.rests("a")
    await world.duties.stop()
    await world.rests("a", "b", "c")


async def test_what_is_held_on_is_not_begun_anew(world: World) -> None:
    world.a.hold.clear()
    await world.duties.attend({"a"})
    await until(lambda: world.a.begun == 1)
    with capture_logs() as logs:
        await world.duties.attend({"a", "b"})
    assert [(each["event"], each["duty"]) for each in logs] == [("duty_began", "b")]
    await world.goes_on("b")
    assert (world.a.begun, world.a.ended) == (1, 0)


async def test_a_duty_has_ended_when_it_is_said_to_be_also_in_the_middle_of_a_round(world: World) -> None:
    world.a.hold.clear()
    await world.duties.attend({"a"})
    await until(lambda: world.a.begun == 1)
    await world.duties.attend(set())
    assert world.a.ended == 1
    assert world.told == []


async def test_a_duty_that_comes_back_is_done_again(world: World) -> None:
    for _ in range(2):
        await world.duties.attend({"a"})
        await world.goes_on("a")
        await world.duties.attend(set())
        await world.rests("a")


async def test_what_this_process_does_not_know_is_left_alone(world: World) -> None:
    await world.duties.attend({"a", "of a newer version"})
    await world.goes_on("a")


async def test_every_round_is_told_with_its_result(world: World) -> None:
    await world.duties.attend({"a"})
    await world.goes_on("a")
    assert world.told[:2] == [("a", 1), ("a", 2)]


@pytest.mark.parametrize(
    ("error", "event"),
    [
        (ZeroDivisionError("a defect"), "duty_fault"),
        (ExceptionGroup("several", [KeyError("x")]), "duty_fault"),
        (DatabaseUnavailable("away"), "duty_failed"),
    ],
)
async def test_a_round_that_fails_is_told_and_tried_again_and_ends_nothing_else(
    world: World, error: Exception, event: str
) -> None:
    def fail_first(number: int) -> object:
        if number == 1:
            raise error
        return number

    world.all["a"] = world.a = Counting(fail_first)
    with capture_logs() as logs:
        await world.duties.attend({"a", "b"})
        await world.goes_on("a", "b")
    mine = [told for told in world.told if told[0] == "a"]
    assert mine[:2] == [("a", None), ("a", 2)]
    assert [each["duty"] for each in logs if each["event"] == event] == ["a"]
    await world.goes_on("a", "b")


async def test_a_duty_rests_between_its_rounds(world: World) -> None:
    world.a.pause = timedelta(days=1)
    await world.duties.attend({"a", "b"})
    await world.goes_on("b")
    await world.goes_on("b")
    assert world.a.ended == 1


@dataclass(frozen=True)
class Did:
    """A result as duties have them: numbers, and collections that are counted."""

    rows: int = 0
    days: tuple[date, ...] = ()


def rounds(metrics: Metrics, duty: str, outcome: str) -> float | None:
    labels = {"duty": duty, "outcome": outcome}
    return metrics.registry.get_sample_value("mainspring_scheduler_duty_rounds_total", labels)


def work(metrics: Metrics, duty: str, what: str) -> float | None:
    labels = {"duty": duty, "what": what}
    return metrics.registry.get_sample_value("mainspring_scheduler_duty_work_total", labels)


def test_rounds_are_counted_by_duty_and_outcome() -> None:
    metrics = Metrics()
    metrics.duty_done("janitor", Did())
    metrics.duty_done("janitor", Did())
    metrics.duty_done("janitor", None)
    metrics.duty_done("reaper", Did())
    assert (rounds(metrics, "janitor", "done"), rounds(metrics, "janitor", "failed")) == (2, 1)
    assert (rounds(metrics, "reaper", "done"), rounds(metrics, "reaper", "failed")) == (1, None)


def test_work_is_added_up_by_the_fields_of_the_results() -> None:
    metrics = Metrics()
    metrics.duty_done("janitor", Did(rows=3, days=(date(2026, 1, 1), date(2026, 1, 2))))
    metrics.duty_done("janitor", Did(rows=4))
    assert (work(metrics, "janitor", "rows"), work(metrics, "janitor", "days")) == (7, 2)


def test_a_round_that_found_nothing_to_do_makes_no_series() -> None:
    metrics = Metrics()
    metrics.duty_done("janitor", Did())
    assert work(metrics, "janitor", "rows") is None


def test_a_result_without_fields_is_a_round_and_no_work() -> None:
    metrics = Metrics()
    metrics.duty_done("reaper", 7)
    assert rounds(metrics, "reaper", "done") == 1
    assert work(metrics, "reaper", "rows") is None
