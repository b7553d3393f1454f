"""SIGSTOP until the reaper has taken the worker for dead, then SIGCONT: what it says then comes too late."""

from __future__ import annotations

from tests.acceptance.waiting import until
from tests.acceptance.worker.fleet import Fleet
from tests.acceptance.worker.judge import Run


async def test_a_worker_taken_for_dead_changes_nothing_when_it_wakes_and_begins_a_new_life(
    fleet: Fleet,
) -> None:
    sleeper = await fleet.start()
    occurrences = await fleet.register(50, payload={"seconds": 1})
    occurrences += await fleet.register(20, payload={"seconds": 300})
    await until(lambda: _succeeded(fleet, 50), "the short runs have ended, and Postgres knows", pause=0.1)
    late = await fleet.register(30, payload={"seconds": 2, "stubborn": True})
    await fleet.under_way(sleeper, 50)
    sleeper.pause()
    fleet.killed.add(sleeper.identity)
    heir = await fleet.start()
    await fleet.settled([*occurrences, *late])
    assert await fleet.books.dead_workers() == {sleeper.identity}
    before = await fleet.books.runs()

    sleeper.resume()
    await until(lambda: len(sleeper.identities) == 2, "it begins a new life under a new name")
    assert _sorted(await fleet.books.runs()) == _sorted(before)
    assert {line.pid for line in fleet.journal.of("stopped")} == {sleeper.pid}, "it has stopped what it had"
    assert not fleet.journal.under_way()

    assert await heir.terminate() == 0
    more = await fleet.register(20, payload={"seconds": 0.1})
    verdict = await fleet.verdict([*occurrences, *late, *more])
    verdict.assert_all_succeeded()
    assert {line.pid for line in fleet.journal.of("end", more)} == {sleeper.pid}, "it takes part again"
    assert verdict.attempts == {1: 70, 2: 50}
    fleet.assert_sound()


async def _succeeded(fleet: Fleet, count: int) -> bool:
    return [run.status for run in await fleet.books.runs()].count("succeeded") == count


def _sorted(runs: list[Run]) -> list[Run]:
    return sorted(runs, key=lambda run: run.key)
