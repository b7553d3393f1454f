"""The judgement: pure functions over history and model. Each yields what breaks its rule, by the rule's name.

lost          an occurrence that must have a run has none; a timer that must have become one has not
foreign       a run for an instant at which its job was never due
unfinal       an occurrence whose last attempt has no final outcome, or one before it has
skipped       attempts that are not 1, 2, 3 …
early         claimed or begun before it was due
after_stop    claimed after a pause or delete was answered, and executed all the same
stale         claimed after an edit was answered, and executed with what was before
repeated      an attempt that was executed twice
unknown       an execution of which Postgres knows nothing
unexecuted    succeeded, and no handler has ended it; or executed, though it was born final
unexplained   an outcome or a further attempt for which there is no reason
effects       an effect that is there twice, or not although its run succeeded
dependents    a dependent released without its parents, or not released with them
letters       a dead run without a letter, or a letter without a dead run
books         seconds whose books do not balance, and no fault says why
fences        a mark or an epoch that went back, or an epoch with two leaders
logs          what no process should ever say
answers       an operation that was answered and has left nothing
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from tests.robustness.faults import LINES, Fault, Invalid
from tests.robustness.history import History, Key, Occurrence, Run, Said, Version
from tests.robustness.model import CERTAIN_GRACE, STOPPED, Model, build
from tests.robustness.traffic import OK, REFUSED

FINAL = frozenset({"succeeded", "dead", "cancelled", "skipped", "recalled", "missed"})
BORN_FINAL = frozenset({"skipped", "recalled", "missed"})
_SERVERS = ("postgres", "network")
_VISIBLE_SECONDS = 30
"""A commit has its time a moment before others see it; a server that stands still draws that out."""


class Violation(NamedTuple):
    rule: str
    about: str


@dataclass
class Case:
    """A history with what is looked up in it again and again."""

    history: History
    model: Model
    violations: list[Violation] = field(default_factory=list)

    @cached_property
    def runs(self) -> dict[Occurrence, list[Run]]:
        found: defaultdict[Occurrence, list[Run]] = defaultdict(list)
        for run in sorted(self.history.runs):
            found[run.occurrence].append(run)
        return dict(found)

    @cached_property
    def by_key(self) -> dict[Key, Run]:
        return {run.key: run for run in self.history.runs}

    @cached_property
    def starts(self) -> dict[Key, Said]:
        return {said.key: said for said in self.history.said if said.what == "start"}

    @cached_property
    def said(self) -> set[tuple[Key, str]]:
        return {(said.key, said.what) for said in self.history.said}

    @cached_property
    def done(self) -> Counter[Occurrence]:
        return Counter(self.history.effects)

    def newest(self, job_id: int) -> Version:
        return self.model.versions[job_id][-1]


def judge(history: History) -> Case:
    """Everything that breaks a rule; raises Invalid when too little was going on to prove anything."""
    for fault in history.faults:
        if fault.lines < LINES:
            raise Invalid(f"{fault.kind}: handlers wrote only {fault.lines} lines before it")
    if not history.faults or not history.runs:
        raise Invalid("nothing was broken, or nothing ran")
    case = Case(history, build(history))
    case.violations = [Violation(rule, about) for rule, find in RULES for about in find(case)]
    return case


def lost(case: Case) -> Iterator[str]:
    for occurrence in sorted(case.model.must - case.runs.keys()):
        yield f"{occurrence} must have run"
    for key in sorted(case.model.timers - case.by_key.keys()):
        yield f"the timer {key} has become nothing"


def foreign(case: Case) -> Iterator[str]:
    for run in case.history.runs:
        if run.occurrence not in case.model.may:
            yield f"{run} was never due"


def unfinal(case: Case) -> Iterator[str]:
    for runs in case.runs.values():
        *before, last = runs
        newest = case.newest(last.job_id)
        waits = newest.status in STOPPED or (newest.kind == "at" and newest.run_at != last.scheduled_at)
        waits = waits or _was_given_up(case, last, newest)
        if last.status not in FINAL and not (waits and last.status in ("failed", "lost")):
            yield f"{last} is no end"
        yield from (f"{run} was the end, and {last} came after it" for run in before if not _goes_on(run))


def _was_given_up(case: Case, run: Run, newest: Version) -> bool:
    """Its next attempt was lost from a topic, and is later than its grace when that is found."""
    if newest.missed_window == "RUN_ALL" or newest.grace >= CERTAIN_GRACE:
        return False
    return any(
        fault.kind == "records.delete" and fault.begin - 150 <= run.claimed_at <= fault.end
        for fault in case.history.faults
    )


def _goes_on(run: Run) -> bool:
    return run.status in ("failed", "lost", "recalled")


def skipped(case: Case) -> Iterator[str]:
    for occurrence, runs in case.runs.items():
        attempts = [run.attempt for run in runs]
        if attempts != list(range(1, len(runs) + 1)):
            yield f"{occurrence} has the attempts {attempts}"


def early(case: Case) -> Iterator[str]:
    for run in case.history.runs:
        due = case.model.due.get(run.key, -math.inf)
        start = case.starts.get(run.key)
        begun = run.claimed_at if start is None else min(start.at, run.claimed_at)
        if begun < due:
            yield f"{run} began {due - begun:.6f} s before it was due"


def after_stop(case: Case) -> Iterator[str]:
    stops: defaultdict[int, list[float]] = defaultdict(list)
    for operation in case.history.operations:
        if operation.kind in ("pause", "delete") and operation.outcome == OK:
            stops[operation.job_id or 0].append(operation.answered)
    for key, start in case.starts.items():
        run = case.by_key.get(key)
        for stopped in stops[key[0]] if run is not None else ():
            if run is not None and stopped < run.claimed_at and start.at < _resumed(case, key[0], stopped):
                yield f"{run} was executed, {run.claimed_at - stopped:.3f} s after its job was stopped"


def _resumed(case: Case, job_id: int, after: float) -> float:
    """When a job was active again after a moment at which it was not."""
    found = [
        version.committed_at
        for version in case.model.versions[job_id]
        if version.status not in STOPPED and version.committed_at > after
    ]
    return min(found, default=math.inf)


def stale(case: Case) -> Iterator[str]:
    edits: defaultdict[int, list[tuple[float, int]]] = defaultdict(list)
    for operation in case.history.operations:
        if operation.mark is not None and operation.outcome == OK:
            edits[operation.job_id or 0].append((operation.answered, operation.mark))
    for key, start in case.starts.items():
        run = case.by_key.get(key)
        if run is None or start.mark is None:
            continue
        known = max((mark for answered, mark in edits[key[0]] if answered < run.claimed_at), default=0)
        if start.mark < known:
            yield f"{run} was given {start.mark}, and {known} had been answered"


def repeated(case: Case) -> Iterator[str]:
    counts = Counter(said.key for said in case.history.said if said.what == "start")
    yield from (
        f"{case.by_key.get(key, key)} began {count} times" for key, count in counts.items() if count > 1
    )


def unknown(case: Case) -> Iterator[str]:
    yield from (f"{said} has no run" for said in case.starts.values() if said.key not in case.by_key)


def unexecuted(case: Case) -> Iterator[str]:
    for run in case.history.runs:
        is_effect = case.newest(run.job_id).handler == "effect"
        if run.status == "succeeded" and (run.key, "end") not in case.said and not is_effect:
            yield f"{run}: no handler has ended it"
        if run.status in BORN_FINAL and run.key in case.starts:
            yield f"{run} was executed"


def unexplained(case: Case) -> Iterator[str]:
    for runs in case.runs.values():
        for run in runs:
            reason = _REASONS[run.status](case, run, runs)
            if not reason:
                yield f"{run} has no reason to be {run.status}"


def _failed(case: Case, run: Run, runs: list[Run]) -> bool:
    return (run.key, "raised") in case.said or _was_away(case, run)


def _was_away(case: Case, run: Run) -> bool:
    """A handler with a transaction fails when Postgres does."""
    is_effect = case.newest(run.job_id).handler == "effect"
    return is_effect and any(fault.part in _SERVERS for fault in _before(case, run))


def _lost(case: Case, run: Run, runs: list[Run]) -> bool:
    process = case.history.lives.get(run.worker)
    return any(fault.part == "postgres" or process in fault.target.split(",") for fault in _before(case, run))


def _before(case: Case, run: Run) -> Iterator[Fault]:
    """Faults that may have met the run: begun before it could have ended."""
    longest = run.claimed_at + 120
    return (
        fault for fault in case.history.faults if fault.begin < longest and fault.end > run.claimed_at - 30
    )


def _dead(case: Case, run: Run, runs: list[Run]) -> bool:
    failures = sum(each.status == "failed" for each in runs if each.attempt < run.attempt)
    losses = sum(each.status == "lost" for each in runs if each.attempt < run.attempt)
    spent = failures == case.newest(run.job_id).max_retries and _failed(case, run, runs)
    return spent or losses >= 4


def _cancelled(case: Case, run: Run, runs: list[Run]) -> bool:
    if case.newest(run.job_id).overlap == "cancel_running":
        return True
    return any(
        operation.kind == "cancel"
        and operation.outcome != REFUSED
        and (operation.job_id, operation.scheduled_at) == run.occurrence
        for operation in case.history.operations
    )


def _skipped(case: Case, run: Run, runs: list[Run]) -> bool:
    return case.newest(run.job_id).overlap != "allow"


def _recalled(case: Case, run: Run, runs: list[Run]) -> bool:
    versions = case.model.versions[run.job_id]
    for place, version in enumerate(versions):
        if version.status in STOPPED and version.committed_at <= run.claimed_at + _VISIBLE_SECONDS:
            following = next((each for each in versions[place:] if each.status not in STOPPED), None)
            if following is None or run.claimed_at <= following.committed_at + _VISIBLE_SECONDS:
                return True
    return False


def _missed(case: Case, run: Run, runs: list[Run]) -> bool:
    return run.claimed_at - case.model.due.get(run.key, -math.inf) > case.newest(run.job_id).grace


def _succeeded(case: Case, run: Run, runs: list[Run]) -> bool:
    return True


_REASONS: dict[str, Callable[[Case, Run, list[Run]], bool]] = {
    "succeeded": _succeeded,
    "failed": _failed,
    "lost": _lost,
    "dead": _dead,
    "cancelled": _cancelled,
    "skipped": _skipped,
    "recalled": _recalled,
    "missed": _missed,
    "running": lambda case, run, runs: False,
}


def effects(case: Case) -> Iterator[str]:
    for occurrence, count in case.done.items():
        if count > 1:
            yield f"{occurrence} took effect {count} times"
    for run in case.history.runs:
        is_effect = case.newest(run.job_id).handler == "effect"
        if is_effect and run.status == "succeeded" and not case.done[run.occurrence]:
            yield f"{run} has left no effect"


def dependents(case: Case) -> Iterator[str]:
    ends: defaultdict[int, dict[int, Run]] = defaultdict(dict)
    for (job_id, scheduled_at), runs in case.runs.items():
        ends[job_id][scheduled_at] = runs[-1]
    asked = {(timer.key[0], timer.key[1]) for timer in case.history.timers if timer.cause == "trigger"}
    for dependent, parents in case.history.parents.items():
        by_parent = [ends[parent] for parent in parents]
        if any(case.newest(parent).status == "deleted" for parent in parents):
            continue  # it waits for the others only, from a moment that no run tells
        yield from _released_too_much(case, dependent, by_parent, asked)
        yield from _released_too_little(case, dependent, by_parent)


def _released_too_much(
    case: Case, dependent: int, by_parent: list[dict[int, Run]], asked: set[Occurrence]
) -> Iterator[str]:
    enough = {"succeeded"} if case.newest(dependent).on_failure == "skip" else FINAL
    for job_id, scheduled_at in case.runs:
        if job_id != dependent or (job_id, scheduled_at) in asked:
            continue
        last = [ends.get(scheduled_at) for ends in by_parent]
        if any(run is None or run.status not in enough for run in last):
            yield f"{dependent} ran for {scheduled_at}, and its parents' ends were {last}"


def _released_too_little(case: Case, dependent: int, by_parent: list[dict[int, Run]]) -> Iterator[str]:
    newest = case.newest(dependent)
    if newest.status in STOPPED:
        return
    known = case.model.versions[dependent][0].committed_at + _VISIBLE_SECONDS
    enough = {"succeeded"} if newest.on_failure == "skip" else FINAL
    for scheduled_at in set.intersection(*(set(ends) for ends in by_parent)):
        last = [ends[scheduled_at] for ends in by_parent]
        complete = all(run.status in enough for run in last) and min(run.claimed_at for run in last) > known
        if complete and (dependent, scheduled_at) not in case.runs:
            yield f"{dependent} did not run for {scheduled_at}, and its parents' ends were {last}"


def letters(case: Case) -> Iterator[str]:
    buried = {letter.key for letter in case.history.letters}
    dead = {run.key for run in case.history.runs if run.status == "dead"}
    yield from (f"{case.by_key[key]} has no letter" for key in sorted(dead - buried))
    yield from (f"{key} has a letter and is {case.by_key.get(key)}" for key in sorted(buried - dead))


def books(case: Case) -> Iterator[str]:
    """A term that is cut off may have published what it could not count; its successor counts it again."""
    for second in case.history.seconds:
        surplus = second.published - second.written_off - second.taken - second.repaired
        if surplus > 0 and case.history.books_judged:
            yield f"{second} is short, and the books are judged"
        elif surplus and not _is_disturbed(case, second.shard, second.second):
            yield f"{second}, and nothing was broken then"
        if second.repaired and not any(fault.kind == "records.delete" for fault in case.history.faults):
            yield f"{second} was repaired, and nothing was lost"


def _is_disturbed(case: Case, shard: int, second: int) -> bool:
    looks = case.history.looks[shard]
    for before, after in pairwise(looks):
        if after.epoch != before.epoch and before.mark - 10 <= second <= after.at + 5:
            return True
    return any(fault.begin - 10 <= second <= fault.end + 10 for fault in case.history.faults)


def fences(case: Case) -> Iterator[str]:
    yield from case.history.went_back
    yield from (
        f"shard {shard} had two leaders in epoch {epoch}" for shard, epoch in case.history.double_leads
    )


def logs(case: Case) -> Iterator[str]:
    yield from case.history.complaints


def answers(case: Case) -> Iterator[str]:
    names = {versions[0].name for versions in case.model.versions.values()}
    timers = {timer.key for timer in case.history.timers}
    there = {(version.job_id, version.version) for version in case.history.versions}
    for operation in case.history.operations:
        if operation.outcome != OK or operation.job_id is None:
            continue
        if operation.version is not None and (operation.job_id, operation.version) not in there:
            yield f"{operation} has left no version"
        if operation.kind == "trigger" and (operation.job_id, operation.scheduled_at, 1) not in timers:
            yield f"{operation} has left no timer"
        if operation.kind == "delete" and case.newest(operation.job_id).status != "deleted":
            yield f"{operation} has deleted nothing"
    refused = {
        each.name for each in case.history.operations if (each.kind, each.outcome) == ("create", REFUSED)
    }
    yield from (f"{name} was refused, and exists" for name in sorted(refused & names))


RULES: tuple[tuple[str, Callable[[Case], Iterator[str]]], ...] = (
    ("lost", lost),
    ("foreign", foreign),
    ("unfinal", unfinal),
    ("skipped", skipped),
    ("early", early),
    ("after_stop", after_stop),
    ("stale", stale),
    ("repeated", repeated),
    ("unknown", unknown),
    ("unexecuted", unexecuted),
    ("unexplained", unexplained),
    ("effects", effects),
    ("dependents", dependents),
    ("letters", letters),
    ("books", books),
    ("fences", fences),
    ("logs", logs),
    ("answers", answers),
)
