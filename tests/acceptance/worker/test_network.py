"""The network between a worker and Postgres breaks: for a moment, and for longer than the reaper waits."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from urllib.parse import urlsplit, urlunsplit

import pytest

from tests.acceptance.processes import MainspringProcess
from tests.acceptance.reports import Report
from tests.acceptance.waiting import until
from tests.acceptance.worker.fleet import Fleet
from tests.acceptance.worker.proxy import Proxy
from tests.acceptance.worker.status import ask


@pytest.fixture
async def proxy(fleet: Fleet) -> AsyncIterator[Proxy]:
    """What stands between a worker and Postgres."""
    _, _, address = urlsplit(fleet.dsn).netloc.rpartition("@")
    async with Proxy.listening(address) as proxy:
        yield proxy


def behind(proxy: Proxy, fleet: Fleet) -> dict[str, str]:
    """The variables of a worker that reaches Postgres through it."""
    parts = urlsplit(fleet.dsn)
    login, _, _ = parts.netloc.rpartition("@")
    return {"MAINSPRING_POSTGRES_DSN": urlunsplit(parts._replace(netloc=f"{login}@{proxy.address}"))}


async def test_a_cut_of_a_few_seconds_loses_nothing(fleet: Fleet, proxy: Proxy) -> None:
    worker = await fleet.start(concurrency=50, variables=behind(proxy, fleet))
    occurrences = await fleet.register(150, payload={"seconds": 1.5})
    await fleet.under_way(worker, 50)
    proxy.cut()
    await until(lambda: len(fleet.journal.of("end")) >= 50, "what was under way ends all the same")
    await until(lambda: bool(worker.events("outcomes_wait")), "the outcomes wait")
    await until(lambda: bool(worker.events("worker_holds")), "nothing more is started")
    assert (await ask(worker, "/readyz"))[0] == 503
    assert (await ask(worker, "/healthz"))[0] == 200
    started = len(fleet.journal.of("start"))
    proxy.restore()
    verdict = await fleet.verdict(occurrences)
    verdict.assert_all_succeeded()
    assert verdict.attempts == {1: 150}
    assert started < 150, "it had something left to do"
    assert len(worker.identities) == 1
    await until(lambda: _is_ready(worker), "it is ready again")
    fleet.assert_sound()


async def test_a_worker_that_is_cut_off_for_long_has_stopped_before_others_begin(
    fleet: Fleet, proxy: Proxy, report: Report
) -> None:
    lonely = await fleet.start(concurrency=50, variables=behind(proxy, fleet))
    occurrences = await fleet.register(50, payload={"seconds": 300, "again": 0.5})
    await fleet.under_way(lonely, 50)
    proxy.silence()
    silent_at = time.time()
    fleet.killed.add(lonely.identity)
    await fleet.start()
    await fleet.settled(occurrences)
    assert await fleet.books.dead_workers() == {lonely.identity}
    stopped = [line.at for line in fleet.journal.of("stopped")]
    begun = [line.at for line in fleet.journal.of("start") if line.attempt == 2]
    report(
        f"stopped {max(stopped) - silent_at:.1f} s after the silence began, "
        f"the next attempts began after {min(begun) - silent_at:.1f} s"
    )
    assert len(stopped) == len(begun) == 50
    assert max(stopped) < min(begun)

    proxy.restore()
    await until(lambda: len(lonely.identities) == 2, "it begins a new life")
    for worker in fleet.workers:
        if worker is not lonely:
            assert await worker.terminate() == 0
    more = await fleet.register(50, payload={"seconds": 0.1})
    verdict = await fleet.verdict([*occurrences, *more])
    verdict.assert_all_succeeded()
    assert verdict.attempts == {1: 50, 2: 50}
    fleet.assert_sound()


async def _is_ready(worker: MainspringProcess) -> bool:
    return (await ask(worker, "/readyz"))[0] == 200
