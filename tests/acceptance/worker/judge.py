"""The judge: compares what the handlers wrote with what Postgres says, after the fact.

unfinal      an occurrence that has not exactly one final outcome, or has it not as its last attempt
unexpected   one whose outcome is final, but not success
repeated     an attempt that was executed twice
unknown      an execution of which Postgres knows nothing
unexecuted   an attempt that succeeded, says Postgres, and no handler has ended it
unexplained  an attempt after one that neither failed nor was lost with a killed worker nor handed back
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

import asyncpg

from mainspring.schema.ids import to_microseconds
from tests.acceptance.worker.journal import Line, Occurrence

FINAL = ("succeeded", "dead", "cancelled", "skipped", "recalled", "missed")


class Run(NamedTuple):
    """One attempt, as Postgres has it."""

    occurrence: Occurrence
    attempt: int
    status: str
    worker: str
    error: str | None
    reaped_at: datetime | None

    @property
    def key(self) -> tuple[Occurrence, int]:
        return self.occurrence, self.attempt


@dataclass(slots=True)
class Verdict:
    """What the judge found; see the page above."""

    runs: int = 0
    executions: int = 0
    attempts: Counter[int] = field(default_factory=Counter)
    """How many occurrences took so many attempts."""
    unfinal: list[list[Run]] = field(default_factory=list)
    unexpected: list[Run] = field(default_factory=list)
    repeated: list[tuple[Occurrence, int]] = field(default_factory=list)
    unknown: list[Line] = field(default_factory=list)
    unexecuted: list[Run] = field(default_factory=list)
    unexplained: list[Run] = field(default_factory=list)

    def assert_sound(self) -> None:
        """What holds under every fault there is."""
        assert self.runs > 0, "nothing was expected: the test itself is broken"
        for name in ("unfinal", "repeated", "unknown", "unexecuted", "unexplained"):
            found = getattr(self, name)
            assert not found, f"{len(found)} of {self.runs} {name}, e.g. {found[:3]}"

    def assert_all_succeeded(self) -> None:
        self.assert_sound()
        assert not self.unexpected, f"{len(self.unexpected)} did not succeed, e.g. {self.unexpected[:3]}"

    def figures(self) -> str:
        took = ", ".join(f"{count} in {attempts}" for attempts, count in sorted(self.attempts.items()))
        return f"{self.runs} runs, {self.executions} executions (attempts: {took})"


def judge(
    occurrences: Sequence[Occurrence],
    runs: Iterable[Run],
    lines: Iterable[Line],
    killed: Collection[str],
) -> Verdict:
    """Judge occurrences that have ended; `killed` are names of workers."""
    by_occurrence: defaultdict[Occurrence, list[Run]] = defaultdict(list)
    for run in runs:
        by_occurrence[run.occurrence].append(run)
    lines = list(lines)
    starts = [line for line in lines if line.what == "start"]
    executed = Counter((line.occurrence, line.attempt) for line in starts)
    ended = {(line.occurrence, line.attempt) for line in lines if line.what == "end"}
    known = {run.key for found in by_occurrence.values() for run in found}
    verdict = Verdict(runs=len(occurrences), executions=len(starts))
    verdict.repeated = [key for key, count in executed.items() if count > 1]
    verdict.unknown = [line for line in starts if (line.occurrence, line.attempt) not in known]
    for occurrence in occurrences:
        found = sorted(by_occurrence[occurrence], key=lambda run: run.attempt)
        verdict.attempts[len(found)] += 1
        final = [run for run in found if run.status in FINAL]
        if not final or final != found[-1:]:
            verdict.unfinal.append(found)
            continue
        verdict.unexplained += [run for run in found[:-1] if not _explains(run, killed)]
        verdict.unexpected += [run for run in found[-1:] if run.status != "succeeded"]
        verdict.unexecuted += [run for run in found if run.status == "succeeded" and run.key not in ended]
    return verdict


def _explains(run: Run, killed: Collection[str]) -> bool:
    """Whether another attempt had to follow this one."""
    if run.status == "failed":
        return True
    handed_back = run.error is not None and run.error.startswith("handed back")
    return run.status == "lost" and (handed_back or run.worker in killed)


class Books:
    """What Postgres says of the runs."""

    def __init__(self, database: asyncpg.Pool[asyncpg.Record]) -> None:
        self._database = database

    async def are_settled(self, occurrences: Collection[Occurrence]) -> bool:
        """Whether each of these has a final outcome, and neither a timer nor an open claim is left."""
        row = await self._database.fetchrow(_SETTLED, [each.job_id for each in occurrences], list(FINAL))
        assert row is not None
        return row["ended"] == len(occurrences) and not row["open"] and not row["timers"]

    async def runs(self) -> list[Run]:
        rows = await self._database.fetch(_RUNS)
        return [
            Run(
                Occurrence(row["job_id"], to_microseconds(row["scheduled_at"])),
                row["attempt"],
                row["status"],
                row["worker_id"],
                row["error"],
                row["reaped_at"],
            )
            for row in rows
        ]

    async def dead_workers(self) -> set[str]:
        """Whom the reaper has declared dead."""
        rows = await self._database.fetch("SELECT id FROM workers WHERE dead_at IS NOT NULL")
        return {row["id"] for row in rows}

    async def balance(self) -> bool:
        """Whether claims have taken, of each second of each shard, what was published."""
        return not await self._database.fetchval(_SHORT)


_SETTLED = """
SELECT
    (SELECT count(*) FROM (SELECT DISTINCT job_id, scheduled_at FROM run_history
                           WHERE job_id = ANY ($1) AND status = ANY ($2)) AS occurrence) AS ended,
    (SELECT count(*) FROM claims WHERE finished_at IS NULL AND reaped_at IS NULL) AS open,
    (SELECT count(*) FROM timers WHERE job_id = ANY ($1)) AS timers
"""

_RUNS = """
SELECT job_id, scheduled_at, attempt, status, history.worker_id, error, reaped_at
FROM run_history AS history JOIN claims AS claim ON claim.id = history.claim_id
"""

# As the bookkeeper counts, but at once. Taken more often than published is no fault: a message that is put
# off leaves no run, so its copy, read after a death, is put off and counted again. A leader counts what it
# has published a moment after the fact, so a second may have been taken and have no row yet.
_SHORT = """
WITH taken AS (
    SELECT shard, second, sum(count) AS claimed
    FROM claims, unnest(tally_shards, tally_seconds, tally_counts) AS tally (shard, second, count)
    GROUP BY shard, second
)
SELECT count(*)
FROM ledger FULL JOIN taken USING (shard, second)
WHERE published IS NULL OR published > coalesce(taken.claimed, 0) + repaired
"""
