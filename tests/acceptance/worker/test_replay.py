"""A topic that is read again from its beginning: nothing is executed again."""

from __future__ import annotations

from functools import partial

from tests.acceptance.waiting import until
from tests.acceptance.worker import groups
from tests.acceptance.worker.fleet import Fleet
from tests.acceptance.worker.status import numbers


async def test_a_group_that_has_forgotten_how_far_it_was_executes_nothing_again(fleet: Fleet) -> None:
    first = await fleet.start()
    occurrences = await fleet.register(300, payload={"seconds": 0.1})
    occurrences += await fleet.register(50, payload={"seconds": 0.1, "fails": 1}, retry_backoff="none")
    verdict = await fleet.verdict(occurrences)
    verdict.assert_all_succeeded()
    assert await first.terminate() == 0
    lines, runs = list(fleet.journal.lines), await fleet.books.runs()
    published = await groups.messages(fleet.kafka, fleet.pool)
    assert published == 400

    await groups.forget(fleet.kafka, fleet.pool)
    second = await fleet.start()
    is_read = partial(groups.is_read_to_the_end, fleet.kafka, fleet.pool)
    await until(is_read, "all has been read again", pause=0.5)
    assert (await numbers(second))["mainspring_worker_duplicates_removed_total"] == published
    assert fleet.journal.lines == lines
    assert await fleet.books.runs() == runs
    fleet.assert_sound()
