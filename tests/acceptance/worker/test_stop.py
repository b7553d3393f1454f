"""SIGTERM: what can end does, the rest is handed back; a second one does not wait."""

from __future__ import annotations

from tests.acceptance.waiting import until
from tests.acceptance.worker.fleet import Fleet


async def test_a_stop_waits_for_what_ends_within_the_grace_and_hands_back_the_rest(fleet: Fleet) -> None:
    leaving = await fleet.start("--grace", "6")
    short = await fleet.register(20, payload={"seconds": 2})
    long = await fleet.register(20, payload={"seconds": 300, "fails": 2}, max_retries=1, retry_backoff="none")
    await fleet.under_way(leaving, 40)
    assert await leaving.terminate() == 0
    assert [event.name for event in leaving.events()][-1] == "worker_stopped"
    assert not fleet.journal.under_way()

    staying = await fleet.start()
    verdict = await fleet.verdict([*short, *long])
    verdict.assert_all_succeeded()  # also after a failure: handing back has not spent the only retry
    assert verdict.attempts == {1: 20, 3: 20}
    assert {line.pid for line in fleet.journal.of("end", short)} == {leaving.pid}
    assert {line.pid for line in fleet.journal.of("end", long)} == {staying.pid}
    assert not await fleet.books.dead_workers()
    fleet.assert_sound()


async def test_a_second_signal_hands_everything_back_at_once(fleet: Fleet) -> None:
    leaving = await fleet.start("--grace", "3600")
    occurrences = await fleet.register(20, payload={"seconds": 3600})
    await fleet.under_way(leaving, 20)
    leaving.send("SIGTERM")
    await until(lambda: bool(leaving.events("worker_drains")), "it waits for what is running")
    assert leaving.running
    leaving.send("SIGTERM")
    assert await leaving.ended() == 0

    await fleet.start()
    verdict = await fleet.verdict(occurrences)
    verdict.assert_all_succeeded()
    assert verdict.attempts == {2: 20}
    assert not await fleet.books.dead_workers()
    fleet.assert_sound()
