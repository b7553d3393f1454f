"""Each rule of the judgement fails on a history in which that one thing went wrong, and on no other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.robustness.faults import Fault, Invalid
from tests.robustness.history import History, Letter, Second
from tests.robustness.traffic import OK, REFUSED, UNKNOWN, Operation
from tests.robustness.validate import judge
from tests.unit.robustness.histories import (
    EFFECT,
    EVENTS,
    FAILS,
    START,
    TRIGGERED,
    WAITS,
    at,
    changed,
    operation,
    run,
    said,
    sound,
    version,
    without,
)

Doctor = Callable[[History], None]


def broken(history: History) -> set[str]:
    return {violation.rule for violation in judge(history).violations}


def test_a_sound_history_breaks_no_rule() -> None:
    assert judge(sound()).violations == []


def _lose_an_occurrence(history: History) -> None:
    without(history, EVENTS, 4)
    without(history, WAITS, 4)
    history.timers = [each for each in history.timers if each.key != (WAITS, at(4), 1)]


def _lose_a_trigger(history: History) -> None:
    without(history, EFFECT, TRIGGERED)


def _run_while_paused(history: History) -> None:
    history.runs.append(run(EVENTS, 7, "recalled"))


def _run_after_the_end(history: History) -> None:
    history.runs.append(run(EVENTS, 10, "recalled"))


def _leave_a_failure(history: History) -> None:
    history.runs = [each for each in history.runs if each.key != (FAILS, at(2), 2)]
    history.timers = [each for each in history.timers if each.key != (FAILS, at(2), 2)]
    history.said = [each for each in history.said if each.key != (FAILS, at(2), 2)]
    history.letters = []


def _run_again_after_success(history: History) -> None:
    history.runs.append(run(EVENTS, 2, attempt=2))
    history.said += [said(EVENTS, 2, "start", 2, mark=2), said(EVENTS, 2, "end", 2)]


def _leave_out_an_attempt(history: History) -> None:
    history.runs = [
        each._replace(attempt=3) if each.key == (FAILS, at(2), 2) else each for each in history.runs
    ]
    history.letters = [Letter((FAILS, at(2), 3), "exhausted")]
    history.timers = [
        each._replace(key=(FAILS, at(2), 3)) if each.cause == "retry" else each for each in history.timers
    ]
    history.said = [
        each._replace(key=(FAILS, at(2), 3)) if each.key == (FAILS, at(2), 2) else each
        for each in history.said
    ]


def _claim_early(history: History) -> None:
    changed(history, EVENTS, 3, claimed_at=START + 2.99)


def _retry_early(history: History) -> None:
    history.runs = [
        each._replace(claimed_at=START + 3.9) if each.attempt == 2 else each for each in history.runs
    ]


def _execute_after_a_pause(history: History) -> None:
    changed(history, EVENTS, 5, claimed_at=START + 5.7)
    history.said = [
        each._replace(at=START + 5.8) if each.key == (EVENTS, at(5), 1) else each for each in history.said
    ]


def _execute_what_was_before_an_edit(history: History) -> None:
    history.said = [
        each._replace(mark=1) if each.key == (EVENTS, at(8), 1) and each.mark else each
        for each in history.said
    ]


def _execute_an_attempt_twice(history: History) -> None:
    history.said.append(said(EVENTS, 3, "start", mark=2))


def _execute_without_a_claim(history: History) -> None:
    history.said.append(said(EVENTS, 3, "start", attempt=2, mark=2))


def _succeed_without_an_end(history: History) -> None:
    history.said = [each for each in history.said if (each.key, each.what) != ((EVENTS, at(3), 1), "end")]


def _execute_what_was_recalled(history: History) -> None:
    changed(history, EVENTS, 5, status="recalled")


def _lose_without_a_fault(history: History) -> None:
    history.faults = [replace(history.faults[0], target="worker-2")]
    history.runs += [run(EVENTS, 9, attempt=2)]
    history.said += [said(EVENTS, 9, "start", 2, mark=2), said(EVENTS, 9, "end", 2)]
    history.runs = [
        each._replace(status="lost") if each.key == (EVENTS, at(9), 1) else each for each in history.runs
    ]


def _fail_without_raising(history: History) -> None:
    history.said = [each for each in history.said if each.what != "raised"]


def _die_with_a_retry_left(history: History) -> None:
    history.versions = [
        each._replace(max_retries=2) if each.job_id == FAILS else each for each in history.versions
    ]


def _cancel_unasked(history: History) -> None:
    changed(history, EVENTS, 9, status="cancelled")
    without(history, WAITS, 9)
    history.timers = [each for each in history.timers if each.key != (WAITS, at(9), 1)]


def _miss_in_time(history: History) -> None:
    without(history, EVENTS, 9)
    without(history, WAITS, 9)
    history.timers = [each for each in history.timers if each.key != (WAITS, at(9), 1)]
    history.runs.append(run(EVENTS, 9, "missed"))


def _take_effect_twice(history: History) -> None:
    history.effects.append((EFFECT, at(4)))


def _take_no_effect(history: History) -> None:
    history.effects.remove((EFFECT, at(4)))


def _release_without_a_parent(history: History) -> None:
    without(history, EVENTS, 5)
    history.runs.append(run(EVENTS, 5, "recalled"))


def _release_nobody(history: History) -> None:
    without(history, WAITS, 3)
    history.timers = [each for each in history.timers if each.key != (WAITS, at(3), 1)]


def _bury_nothing(history: History) -> None:
    history.letters = []


def _bury_the_living(history: History) -> None:
    history.letters.append(Letter((EVENTS, at(3), 1), "exhausted"))


def _count_one_too_many(history: History) -> None:
    history.faults = [replace(history.faults[0], begin=START + 300, end=START + 301)]
    history.seconds[0] = history.seconds[0]._replace(published=3)


def _repair_what_was_there(history: History) -> None:
    history.seconds.append(Second(0, START + 7, 2, 1, 1, 0, 1))


def _go_back(history: History) -> None:
    history.went_back.append("shard 0: 9 then 8")


def _lead_twice(history: History) -> None:
    history.double_leads.append((0, 1))


def _complain(history: History) -> None:
    history.complaints.append("worker-1.log: Traceback")


def _answer_without_a_change(history: History) -> None:
    operation(history, "resume").version = 4


def _trigger_nothing(history: History) -> None:
    operation(history, "trigger").scheduled_at = at(3.5)


def _refuse_and_create(history: History) -> None:
    history.operations.append(Operation("create", "job-2", None, START, START, REFUSED))


CASES: list[tuple[Doctor, set[str]]] = [
    (_lose_an_occurrence, {"lost"}),
    (_lose_a_trigger, {"lost"}),
    (_run_while_paused, {"foreign"}),
    (_run_after_the_end, {"foreign"}),
    (_leave_a_failure, {"unfinal"}),
    (_run_again_after_success, {"unfinal"}),
    (_leave_out_an_attempt, {"skipped"}),
    (_claim_early, {"early"}),
    (_retry_early, {"early"}),
    (_execute_after_a_pause, {"after_stop"}),
    (_execute_what_was_before_an_edit, {"stale"}),
    (_execute_an_attempt_twice, {"repeated"}),
    (_execute_without_a_claim, {"unknown"}),
    (_succeed_without_an_end, {"unexecuted"}),
    (_execute_what_was_recalled, {"unexecuted", "dependents"}),
    (_lose_without_a_fault, {"unexplained"}),
    (_fail_without_raising, {"unexplained"}),
    (_die_with_a_retry_left, {"unexplained"}),
    (_cancel_unasked, {"unexplained"}),
    (_miss_in_time, {"unexplained"}),
    (_take_effect_twice, {"effects"}),
    (_take_no_effect, {"effects"}),
    (_release_without_a_parent, {"dependents"}),
    (_release_nobody, {"dependents"}),
    (_bury_nothing, {"letters"}),
    (_bury_the_living, {"letters"}),
    (_count_one_too_many, {"books"}),
    (_repair_what_was_there, {"books"}),
    (_go_back, {"fences"}),
    (_lead_twice, {"fences"}),
    (_complain, {"logs"}),
    (_answer_without_a_change, {"answers"}),
    (_trigger_nothing, {"answers"}),
    (_refuse_and_create, {"answers"}),
]


@pytest.mark.parametrize(("doctor", "rules"), CASES, ids=lambda each: getattr(each, "__name__", ""))
def test_a_doctored_history_breaks_its_rule(doctor: Doctor, rules: set[str]) -> None:
    history = sound()
    doctor(history)
    assert broken(history) == rules


def test_a_loss_is_explained_by_what_was_done_to_its_worker() -> None:
    history = sound()
    _lose_without_a_fault(history)
    history.faults[0].target = "worker-1"
    assert broken(history) == set()


def test_a_cancellation_without_an_answer_explains_a_cancelled_run() -> None:
    history = sound()
    _cancel_unasked(history)
    asked = Operation("cancel", "job-1", EVENTS, START + 9, outcome=UNKNOWN, scheduled_at=at(9))
    history.operations.append(asked)
    assert broken(history) == set()


def test_a_run_without_load_proves_nothing() -> None:
    history = sound()
    history.faults.append(Fault("etcd.kill", "etcd-1", START + 8, START + 9, lines=3))
    with pytest.raises(Invalid, match="etcd"):
        judge(history)


def test_a_history_without_faults_proves_nothing() -> None:
    history = sound()
    history.faults = []
    with pytest.raises(Invalid):
        judge(history)


def test_what_is_deleted_afterwards_need_not_have_been_retried() -> None:
    history = sound()
    _leave_a_failure(history)
    history.versions.append(version(FAILS, 2, 3, kind="at", run_at=at(2), status="deleted"))
    history.operations.append(
        Operation("delete", "job-3", FAILS, START + 2.9, START + 3, OK),
    )
    assert broken(history) == set()
