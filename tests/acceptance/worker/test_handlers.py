"""Handlers that misbehave, and one that must take effect once."""

from __future__ import annotations

from tests.acceptance.waiting import until
from tests.acceptance.worker.fleet import Fleet
from tests.acceptance.worker.status import numbers


async def test_a_handler_that_holds_the_event_loop_is_named_and_the_worker_lives_on(fleet: Fleet) -> None:
    worker = await fleet.start()
    occurrences = await fleet.register(handler="block", payload={"seconds": 4})
    await until(lambda: bool(worker.events("loop_blocked")), "the standstill is noticed")
    named = [event.data["handler"] for event in worker.events("loop_blocked")]
    assert "block" in named
    occurrences += await fleet.register(10, payload={"seconds": 0.1})
    verdict = await fleet.verdict(occurrences)
    verdict.assert_all_succeeded()
    assert verdict.attempts == {1: 11}
    assert (await numbers(worker))['mainspring_worker_loop_blocked_total{handler="block"}'] == 1
    beat = await _heartbeat(fleet)
    await until(lambda: _beats_on(fleet, beat), "the heart beats on")
    assert not await fleet.books.dead_workers()
    fleet.assert_sound()


async def test_an_effect_stands_once_whether_its_worker_dies_right_before_or_right_after_the_commit(
    fleet: Fleet,
) -> None:
    await fleet.database.execute("CREATE TABLE done (job text)")
    victim = await fleet.start()
    before = await fleet.register(5, handler="effect", payload={"wait": "before"})
    after = await fleet.register(5, handler="effect", payload={"wait": "after"})
    await until(lambda: len(fleet.journal.of("here")) == 10, "transactions are open, or committed")
    await fleet.kill(victim)
    await fleet.start()
    await fleet.settled([*before, *after])
    done = await fleet.database.fetch("SELECT job, count(*) FROM done GROUP BY job")
    assert [row["count"] for row in done] == [1] * 10
    assert len(fleet.journal.of("start", before)) == 10, "what was undone is done again"
    assert len(fleet.journal.of("start", after)) == 5, "what stands is not even begun again"
    assert {run.status for run in await fleet.books.runs() if run.attempt == 2} == {"succeeded"}
    fleet.assert_sound()


async def _heartbeat(fleet: Fleet) -> int:
    beat: int = await fleet.database.fetchval("SELECT heartbeat FROM workers")
    return beat


async def _beats_on(fleet: Fleet, beat: int) -> bool:
    return await _heartbeat(fleet) > beat
