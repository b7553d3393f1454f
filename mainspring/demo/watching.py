"""Once a second: what the API says, as one picture."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from mainspring.demo.api import Api
from mainspring.demo.facts import SUCCEEDED, Attempt
from mainspring.demo.samples import Promise, Sample
from mainspring.local.processes import Processes

RECENT = timedelta(seconds=10)
MINUTE = timedelta(minutes=1)
# Of each job at each look: more than are due between two looks, unless those are a minute apart.
_NEWEST = 60


@dataclass(frozen=True, kw_only=True)
class Row:
    """One job in the picture."""

    name: str
    when: str
    succeeded: int
    others: int
    last: Attempt | None
    late: float | None
    """How late that one started; None of a dependent, which is due when its parents have ended."""


@dataclass(frozen=True, kw_only=True)
class Picture:
    """What the demo looks like at one moment."""

    fired: int
    executed: int
    """In the last minute, as `fired`."""
    lateness: Sequence[float]
    """Of the last seconds, sorted."""
    leaders: dict[str, int]
    behind: float
    running: int
    letters: int
    rows: Sequence[Row]


class Watcher:
    """Looks, and remembers what it has seen."""

    def __init__(self, api: Api, processes: Processes, samples: Sequence[Sample]) -> None:
        self._api = api
        self._processes = processes
        self._samples = samples
        self._names: dict[int, str] = {}
        self._seen: dict[str, Attempt] = {}

    def name_of(self, leader: str) -> str:
        """The name of the process behind `host-pid-random`: also of one that was ours and is no more."""
        self._names.update({child.pid: child.name for child in self._processes.children if child.pid})
        return self._names.get(_pid_of(leader), leader)

    def _shown(self, leader: str | None) -> str:
        if leader is None:
            return "nobody"
        lives = any(child.pid == _pid_of(leader) for child in self._processes.children)
        return self.name_of(leader) + ("" if lives else " (killed)")

    async def look(self) -> Picture:
        """One round of questions, all at once."""
        shards, workers, letters, *runs = await asyncio.gather(
            self._api.shards(),
            self._api.workers(),
            self._api.count_letters(),
            *(self._api.runs(sample.name, newest=_NEWEST) for sample in self._samples),
        )
        for run in (run for found in runs for run in found):
            self._seen[run.run_id] = run
        now = datetime.now(UTC)
        leaders: dict[str, int] = {}
        for shard in shards:
            name = self._shown(shard["leader"])
            leaders[name] = leaders.get(name, 0) + 1
        return Picture(
            fired=sum(shard["published_last_minute"] for shard in shards),
            executed=sum(_within(run.finished_at, now, MINUTE) for run in self._seen.values()),
            lateness=sorted(self._lateness(now)),
            leaders=dict(sorted(leaders.items())),
            behind=max(shard["lag_seconds"] for shard in shards),
            running=sum(worker["running"] for worker in workers),
            letters=letters,
            rows=[self._row(sample, found) for sample, found in zip(self._samples, runs, strict=True)],
        )

    def _lateness(self, now: datetime) -> list[float]:
        dependents = {each.name for each in self._samples if each.promise is Promise.RELEASED}
        return [
            run.lateness
            for run in self._seen.values()
            if run.lateness is not None and run.job not in dependents and _within(run.started_at, now, RECENT)
        ]

    def _row(self, sample: Sample, newest: Sequence[Attempt]) -> Row:
        mine = [run for run in self._seen.values() if run.job == sample.name and run.finished_at]
        succeeded = sum(run.status == SUCCEEDED for run in mine)
        return Row(
            name=sample.name,
            when=sample.when,
            succeeded=succeeded,
            others=len(mine) - succeeded,
            last=newest[0] if newest else None,
            late=newest[0].lateness if newest and sample.promise is not Promise.RELEASED else None,
        )


def _pid_of(leader: str) -> int:
    pid = leader.rsplit("-", 2)[-2] if leader.count("-") >= 2 else ""
    return int(pid) if pid.isdigit() else 0


def _within(moment: datetime | None, now: datetime, span: timedelta) -> bool:
    return moment is not None and now - span <= moment


def percentile(ordered: Sequence[float], share: float) -> float | None:
    """The smallest value that at least this share of all does not exceed."""
    if not ordered:
        return None
    return ordered[max(0, -int(-share * len(ordered) // 1) - 1)]
