"""What was promised beside what happened. Pure: facts in, findings out.

What should have run is worked out from the schedule, never from what did run. For each instant there are four
ways to be wrong: no run succeeded (lost), more than one did (twice), the handler was called more often than
there are attempts (twice, behind the history's back), or never although a run is said to have succeeded.
Runs that somebody triggered by hand carry instants that are on no schedule, and are nobody's business here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from mainspring.demo.facts import RUNNING, SUCCEEDED, Attempt, Facts, Takeover
from mainspring.demo.samples import RETRIES, Promise, Sample
from mainspring.schedule import Cadence, Kind

_MANY = 1_000_000
_LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Finding:
    """One promise: kept or not, and what is to be said of it."""

    subject: str
    kept: bool
    text: str
    may_come: bool = False
    """Not kept yet, but waiting may help."""
    reached: bool = True
    """False: the window was too short for it."""


def judge(samples: Sequence[Sample], facts: Facts) -> list[Finding]:
    """One finding for each sample, and one for the takeover."""
    return [*(_JUDGES[sample.promise](sample, facts) for sample in samples), judge_takeover(facts.takeover)]


def expected(sample: Sample, facts: Facts) -> list[datetime]:
    """Every instant in the window at which it is due; a one-off's, also if it was past when registered."""
    cadence = Cadence.parse(sample.schedule)
    begin = _LONG_AGO if cadence.kind is Kind.AT else facts.after
    return cadence.between(begin, facts.through, _MANY)


def judge_once(sample: Sample, facts: Facts) -> Finding:
    instants = expected(sample, facts)
    if not instants:
        return _not_due(sample, facts)
    wrong = _wrong(sample, facts, instants)
    done = f"due {_times(len(instants))}, and ran exactly once each time"
    if len(instants) == 1:
        done = f"due at {instants[0]:%H:%M:%S} UTC, and ran exactly once"
    return _finding(sample, wrong, done)


def judge_released(sample: Sample, facts: Facts) -> Finding:
    instants = expected(sample, facts)
    done = f"its parent was due {_times(len(instants))}, and released it exactly once each time"
    return _finding(sample, _wrong(sample, facts, instants), done)


def judge_dead(sample: Sample, facts: Facts) -> Finding:
    """Every attempt used up, none of them a success, and a letter for the last one."""
    instants, attempts, calls = expected(sample, facts), facts.of(sample.name), facts.calls_of(sample.name)
    letters = {(each.scheduled_at, each.attempt) for each in facts.letters if each.job == sample.name}
    lost, odd, called_twice = [], [], []
    for instant in instants:
        runs = attempts.get(instant, [])
        numbers = sorted(run.attempt for run in runs if run.status in _FAILURES)
        if any(run.status == SUCCEEDED for run in runs):
            odd.append(instant)
        elif len(numbers) <= RETRIES or (instant, numbers[-1]) not in letters:
            lost.append(instant)
        if calls[instant] > max(len(runs), 1):
            called_twice.append(instant)
    wrong = _Wrong([("is not in the dead letters", lost)], [("succeeded", odd), (_BEHIND, called_twice)])
    done = f"due {_times(len(instants))}, each time {RETRIES + 1} attempts and a dead letter"
    return _finding(sample, wrong, done)


def judge_march(sample: Sample, facts: Facts) -> Finding:
    """It ended and its history says how far it came; or it is still under way."""
    instants, attempts = expected(sample, facts), facts.of(sample.name)
    if not instants:
        return _not_due(sample, facts)
    runs = [run for instant in instants for run in attempts.get(instant, ())]
    if any(run.status == RUNNING for run in runs):
        return Finding(sample.name, kept=True, text="still running when the window ended")
    ended = [run for run in runs if run.status == SUCCEEDED]
    if not ended:
        return Finding(sample.name, kept=False, text="did not run to its end", may_come=True)
    wrong = _wrong(sample, facts, instants)
    if facts.progress.get(ended[0].run_id) is None:
        return Finding(sample.name, kept=False, text="ran, but its history has no progress", may_come=True)
    return _finding(sample, wrong, f"ran {_duration(ended[0])}, and said {facts.progress[ended[0].run_id]}")


def judge_takeover(takeover: Takeover | None) -> Finding:
    subject = "takeover"
    if takeover is None:
        text = "the window ended before a leader was killed"
        return Finding(subject, kept=False, text=text, reached=False)
    lost = f"{takeover.killed} led {takeover.shards} shards when it was killed"
    if takeover.taken_seconds is None:
        return Finding(subject, kept=False, text=f"{lost}, and not all of them were taken", may_come=True)
    if takeover.shards == 0 or takeover.killed in takeover.taken_by:
        return Finding(subject, kept=False, text=f"{lost}: nobody else could take them")
    takers = " and ".join(f"{name} took {count}" for name, count in sorted(takeover.taken_by.items()))
    taken = f"{lost}; {takers} within {takeover.taken_seconds:.1f} s"
    if takeover.resumed_seconds is None:
        return Finding(subject, kept=False, text=f"{taken}, but nothing was fired", may_come=True)
    return Finding(subject, kept=True, text=f"{taken}, firing went on after {takeover.resumed_seconds:.1f} s")


_FAILURES = ("failed", "dead")
_BEHIND = "was executed more often than it has attempts"
_JUDGES: dict[Promise, Callable[[Sample, Facts], Finding]] = {
    Promise.ONCE: judge_once,
    Promise.RELEASED: judge_released,
    Promise.DEAD: judge_dead,
    Promise.MARCHES: judge_march,
}


@dataclass(frozen=True, slots=True)
class _Wrong:
    """What is amiss, with its instants: what may still come, and what cannot be mended."""

    open: list[tuple[str, list[datetime]]]
    final: list[tuple[str, list[datetime]]]


def _wrong(sample: Sample, facts: Facts, instants: Sequence[datetime]) -> _Wrong:
    attempts, calls = facts.of(sample.name), facts.calls_of(sample.name)
    lost, twice, called_twice, uncalled = [], [], [], []
    for instant in instants:
        runs = attempts.get(instant, [])
        succeeded = sum(run.status == SUCCEEDED for run in runs)
        if succeeded == 0:
            lost.append(instant)
        if succeeded > 1:
            twice.append(instant)
        if calls[instant] > max(len(runs), 1):
            called_twice.append(instant)
        if succeeded and not calls[instant]:
            uncalled.append(instant)
    return _Wrong(
        [("did not run", lost)],
        [
            ("succeeded twice", twice),
            (_BEHIND, called_twice),
            ("succeeded without being executed", uncalled),
        ],
    )


def _not_due(sample: Sample, facts: Facts) -> Finding:
    following = Cadence.parse(sample.schedule).next_after(facts.through)
    coming = f"; the next one is due at {following:%H:%M:%S} UTC" if following else ""
    return Finding(sample.name, kept=True, text=f"not due in the window{coming}")


def _finding(sample: Sample, wrong: _Wrong, done: str) -> Finding:
    faults = [f"{text} for {_list(instants)}" for text, instants in wrong.final + wrong.open if instants]
    if not faults:
        return Finding(sample.name, kept=True, text=done)
    final = any(instants for _, instants in wrong.final)
    return Finding(sample.name, kept=False, text="; ".join(faults), may_come=not final)


def _list(instants: Sequence[datetime]) -> str:
    shown = ", ".join(f"{instant:%H:%M:%S}" for instant in instants[:_SHOWN])
    more = f" and {len(instants) - _SHOWN} more" if len(instants) > _SHOWN else ""
    return f"{shown}{more} UTC"


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def _duration(attempt: Attempt) -> str:
    if attempt.started_at is None or attempt.finished_at is None:
        return "to its end"
    return f"{(attempt.finished_at - attempt.started_at).total_seconds():.1f} s"
