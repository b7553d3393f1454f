"""A small history in which every rule holds, for tests that break one at a time.

Seconds are counted from START. Job 1 fires every second from 1 to 9 and is paused at 5.5 and resumed at 7.2;
job 2 waits for it. Job 3 always fails and has one retry; job 4 leaves an effect and was triggered once.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from tests.robustness.faults import LINES, Fault
from tests.robustness.history import History, Letter, Run, Said, Second, Timer, Version
from tests.robustness.traffic import OK, Operation
from tests.robustness.watch import Look

START = 1_800_000_000
MICROSECONDS = 1_000_000
EVENTS, WAITS, FAILS, EFFECT = 1, 2, 3, 4
FIRED_BY_EVENTS = (1, 2, 3, 4, 5, 8, 9)
TRIGGERED = 3.25


def at(second: float) -> int:
    """A scheduled_at."""
    return round((START + second) * MICROSECONDS)


def moment(second: float) -> datetime:
    return datetime.fromtimestamp(START, UTC) + timedelta(seconds=second)


def version(job_id: int, number: int, second: float, **changes: object) -> Version:
    """What was committed at that second."""
    made = Version(
        job_id=job_id,
        version=number,
        xid=100 + 10 * number + job_id,
        committed_at=START + second,
        status="active",
        kind="cron",
        schedule="* * * * * *",
        timezone="UTC",
        shard=0,
        valid_from=moment(second),
        run_at=None,
        ends_at=START + 9.5,
        jitter=0,
        grace=60,
        missed_window="RUN_ONCE",
        overlap="allow",
        max_retries=1,
        on_failure="skip",
        handler="work",
        name=f"job-{job_id}",
        fails=0,
    )
    return made._replace(**changes)  # type: ignore[arg-type]


def run(job_id: int, second: float, status: str = "succeeded", attempt: int = 1, wait: float = 0.1) -> Run:
    return Run(job_id, at(second), attempt, status, "w-1", START + second + wait, None)


def said(job_id: int, second: float, what: str, attempt: int = 1, mark: int | None = None) -> Said:
    return Said((job_id, at(second), attempt), what, mark, START + second + 0.2 + 2 * (attempt - 1))


def sound() -> History:
    """The history of the page above."""
    history = History(seed=0, closes_at=START + 9.5)
    stopped = version(EVENTS, 2, 5.5, status="paused", valid_from=moment(0.5))
    history.versions = [
        version(EVENTS, 1, 0.5),
        stopped,
        version(EVENTS, 3, 7.2),
        version(WAITS, 1, -100, kind="after", schedule="", ends_at=None),
        version(FAILS, 1, 1.5, kind="at", run_at=at(2), ends_at=None, fails=99),
        version(EFFECT, 1, 1, kind="at", run_at=at(4), handler="effect", ends_at=None),
    ]
    history.looks = {0: [Look(START + s + 0.4, START + s, 92 + 5 * s, 1, "s-1") for s in range(-5, 61)]}
    history.parents = {WAITS: {EVENTS}}
    for second in FIRED_BY_EVENTS:
        _execute(history, EVENTS, second, mark=1 if second < 3 else 2)
        history.timers.append(_timer(WAITS, second, "dependency", second))
        _execute(history, WAITS, second)
    history.timers += [_timer(FAILS, 2, "one_off", 2), _timer(FAILS, 2, "retry", 4, attempt=2)]
    history.runs += [run(FAILS, 2, "failed"), run(FAILS, 2, "dead", attempt=2, wait=2.1)]
    for attempt in (1, 2):
        history.said += [said(FAILS, 2, "start", attempt, mark=3), said(FAILS, 2, "raised", attempt)]
    history.letters = [Letter((FAILS, at(2), 2), "exhausted")]
    for instant, cause in ((TRIGGERED, "trigger"), (4.0, "one_off")):
        history.timers.append(_timer(EFFECT, instant, cause, instant))
        _execute(history, EFFECT, instant)
        history.effects.append((EFFECT, at(instant)))
    history.operations = _operations()
    history.faults = [Fault("worker.kill", "worker-1", START + 6, START + 6.5, LINES)]
    history.lives = {"w-1": "worker-1"}
    history.seconds = [Second(0, START + second, 2, 2, 0, 0, 2) for second in FIRED_BY_EVENTS]
    return history


def without(history: History, job_id: int, second: float) -> None:
    """An occurrence of which nothing is left."""
    history.runs = [each for each in history.runs if each.occurrence != (job_id, at(second))]
    history.said = [each for each in history.said if each.key[:2] != (job_id, at(second))]


def changed(history: History, job_id: int, second: float, **changes: object) -> None:
    """A run that went otherwise."""
    history.runs = [
        each._replace(**changes) if each.occurrence == (job_id, at(second)) else each  # type: ignore[arg-type]
        for each in history.runs
    ]


def operation(history: History, kind: str) -> Operation:
    return next(each for each in history.operations if each.kind == kind)


def _execute(history: History, job_id: int, second: float, mark: int = 0) -> None:
    history.runs.append(run(job_id, second))
    history.said += [said(job_id, second, "start", mark=mark), said(job_id, second, "end")]


def _timer(job_id: int, second: float, cause: str, due: float, attempt: int = 1) -> Timer:
    return Timer((job_id, at(second), attempt), cause, START + due, START + due)


def _operations() -> list[Operation]:
    asked = Operation("", "job-1", EVENTS, START, outcome=OK)
    return [
        replace(asked, kind="create", answered=START + 0.6, version=1, mark=1),
        replace(asked, kind="edit", answered=START + 2.9, mark=2),
        replace(asked, kind="pause", answered=START + 5.6, version=2),
        replace(asked, kind="resume", answered=START + 7.3, version=3),
        replace(
            asked,
            kind="trigger",
            job_id=EFFECT,
            name="job-4",
            answered=START + TRIGGERED,
            scheduled_at=at(TRIGGERED),
        ),
    ]
