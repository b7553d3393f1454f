"""What a claim that is repeated does to the limits; claims themselves are tested on a real Postgres."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import pytest

from mainspring.clock import ManualClock
from mainspring.schema.ids import from_microseconds
from mainspring.schema.messages import Message
from mainspring.schema.queries import query
from mainspring.schema.states import Outcome, Overlap
from mainspring.worker.batches import Batch
from mainspring.worker.claiming import Claimer, Pool
from mainspring.worker.limits import Limits
from mainspring.worker.metrics import Metrics
from tests.unit.worker.runs import NOON, message


class Answers:
    """A pool, its connection and their transactions; answers by the name of the query, else with nothing."""

    def __init__(self, **answers: Callable[..., Any]) -> None:
        self._by_text: dict[str, Callable[..., Any]] = {
            query(name): answer for name, answer in answers.items()
        }
        self._by_text[query("feed_position")] = lambda: {
            "snapshot": "100:100:",
            "timeline": "00000001",
            "at": NOON,
        }

    def acquire(self) -> Answers:
        return self

    transaction = acquire

    async def __aenter__(self) -> Answers:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    async def fetch(self, text: str, *values: Any) -> Any:
        answer = self._by_text.get(text)
        return [] if answer is None else answer(*values)

    async def fetchval(self, text: str, *values: Any) -> Any:
        answer = self._by_text.get(text)
        return None if answer is None else answer(*values)

    fetchrow = fetchval

    async def execute(self, text: str, *values: Any) -> str:
        return ""

    async def copy_to_table(self, *_: Any, **__: Any) -> str:
        return ""


def claim(limits: Limits, answers: Answers, *messages: Message) -> Any:
    claimer = Claimer(
        cast(Pool, answers),
        worker_id="w",
        worker_pool="p",
        handlers={"h"},
        limits=limits,
        metrics=Metrics(),
        clock=ManualClock(NOON),
    )
    return claimer.claim(messages)


def places(limits: Limits, run: Message) -> int:
    """How many more of it would be admitted; they are withdrawn again."""
    admitted = 0
    while limits.admit(run) is None:
        admitted += 1
    for _ in range(admitted):
        limits.withdraw(run)
    return admitted


def written_before(outcomes: bytes, *runs: Message) -> Answers:
    """The claim stands already: its commit was done, and the answer to it lost."""
    rows = [
        {
            "job_id": each.job.job_id,
            "scheduled_at": from_microseconds(each.scheduled_at),
            "attempt": each.attempt,
            "position": position,
        }
        for position, each in enumerate(runs)
    ]
    return Answers(
        claim_as_it_stands=lambda *_: {"claimed_at": NOON, "outcomes": outcomes},
        runs_of_claim=lambda *_: rows,
    )


async def test_a_run_overtaken_at_its_turn_does_not_take_its_handlers_place_with_each_try() -> None:
    """Else the last try would put it off, because of itself, and the place would never be free again."""
    turns: list[Sequence[int]] = []

    def take(job_ids: Sequence[int], *_: Any) -> list[Mapping[str, Any]]:
        turns.append(job_ids)
        return [] if len(turns) < 5 else [{"job_id": each} for each in job_ids]

    limits, run = Limits({"h": 1}, ManualClock(NOON)), message(overlap=Overlap.SKIP)
    answers = Answers(take_overlaps=take, insert_claim=lambda *_: NOON, win_runs=lambda *_: [{"position": 0}])
    batch: Batch = await claim(limits, answers, run)
    assert len(turns) == 5
    assert [each.message for each in batch.runs] == [run]
    assert places(limits, run) == 0
    limits.release(run, 1.0, failed=False)
    assert places(limits, run) == 1


async def test_what_the_repeated_claim_does_not_hold_takes_no_place() -> None:
    limits, runs = Limits({"h": 3}, ManualClock(NOON)), [message(1), message(2)]
    batch: Batch = await claim(limits, written_before(bytes([Outcome.PENDING]), runs[0]), *runs)
    assert [each.message for each in batch.runs] == [runs[0]]
    assert places(limits, runs[0]) == 2


async def test_what_the_repeated_claim_holds_counts_also_beyond_the_limit() -> None:
    limits, runs = Limits({"h": 1}, ManualClock(NOON)), [message(1), message(2)]
    batch: Batch = await claim(limits, written_before(bytes([Outcome.PENDING] * 2), *runs), *runs)
    assert len(batch.runs) == 2
    limits.release(runs[0], 1.0, failed=False)
    assert places(limits, runs[0]) == 0
    limits.release(runs[1], 1.0, failed=False)
    assert places(limits, runs[0]) == 1


@pytest.mark.parametrize("outcome", [Outcome.VOID, Outcome.MISSED])
async def test_what_the_repeated_claim_holds_as_over_takes_no_place(outcome: Outcome) -> None:
    limits, run = Limits({"h": 1}, ManualClock(NOON)), message(1)
    batch: Batch = await claim(limits, written_before(bytes([outcome]), run), run)
    assert batch.runs == []
    assert places(limits, run) == 1
