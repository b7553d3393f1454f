"""Waiting for a run: what is an end, what follows, when it is given up."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from mainspring.client import StillGoing
from mainspring.client.models import Run, read
from mainspring.client.waiting import Waiting
from mainspring.schema.errors import InvalidInput
from mainspring.schema.ids import RunKey, format_run_id
from tests.unit.client.test_models import RUN

AT = datetime(2026, 11, 18, 9, tzinfo=UTC)


def run_id(attempt: int) -> str:
    return format_run_id(RunKey(7, AT, attempt))


def run(status: str, attempt: int = 1) -> Run:
    return read(Run, {**RUN, "run_id": run_id(attempt), "attempt": attempt, "status": status})


def waiting(timeout: float | None = None, *, retries: bool = True, clock: Any = None) -> Waiting:
    return Waiting(run_id(1), timeout, retries=retries, now=clock or (lambda: 0.0))


@pytest.mark.parametrize("status", ["succeeded", "dead", "cancelled", "skipped", "recalled", "missed"])
def test_an_outcome_after_which_nothing_follows_is_the_end(status: str) -> None:
    assert waiting().is_over(run(status))


@pytest.mark.parametrize("status", ["failed", "lost"])
def test_after_a_failure_the_next_attempt_is_waited_for(status: str) -> None:
    wait = waiting()
    assert not wait.is_over(run(status))
    assert wait.run_id == run_id(2)
    assert waiting(retries=False).is_over(run(status))


def test_a_run_that_runs_or_that_nobody_has_taken_is_waited_for() -> None:
    wait = waiting()
    assert not wait.is_over(run("running"))
    assert not wait.is_over(None)
    assert wait.run_id == run_id(1)


def test_pauses_grow_to_two_seconds() -> None:
    wait = waiting()
    pauses = [wait.pause(None) for _ in range(12)]
    assert pauses[0] == 0.1
    assert pauses == sorted(pauses)
    assert pauses[-1] == 2.0


def test_it_is_given_up_after_its_time() -> None:
    now = 0.0
    wait = waiting(5.0, clock=lambda: now)
    assert wait.pause(None) == 0.1
    now = 4.95
    assert 0.04 < wait.pause(None) < 0.06
    now = 5.0
    with pytest.raises(StillGoing, match="was running after 5 s") as caught:
        wait.pause(run("running"))
    assert isinstance(caught.value, TimeoutError)
    with pytest.raises(StillGoing, match="had not been taken by a worker"):
        wait.pause(None)


def test_an_id_that_is_none_is_refused_at_once() -> None:
    with pytest.raises(InvalidInput):
        Waiting("r_nonsense", None, retries=True, now=lambda: 0.0)
