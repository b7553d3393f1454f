"""The course of the demo: register, watch, kill a leader, wait until the books are written, judge."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from mainspring.demo.api import Api, ApiSilent
from mainspring.demo.facts import Facts, read_journal
from mainspring.demo.judging import Finding, judge
from mainspring.demo.samples import Promise, Sample, samples
from mainspring.demo.summary import summary
from mainspring.demo.takeover import LeaderKill
from mainspring.demo.view import Clock, Screen
from mainspring.demo.watching import Watcher
from mainspring.local.processes import Processes
from mainspring.local.waiting import beside, together

KILL_SECONDS = 15
SHORTEST_SECONDS = 25
_LOOK_SECONDS = 1.0
_SETTLE_SECONDS = 60.0
_SETTLE_PAUSE_SECONDS = 0.5


class Demo:
    """One performance; `run` returns whether everything that was promised happened."""

    def __init__(
        self, api: Api, processes: Processes, journal: Path, screen: Screen, *, url: str, seconds: int | None
    ) -> None:
        self._api = api
        self._processes = processes
        self._journal = journal
        self._screen = screen
        self._seconds = seconds
        self._tries = tries(url)
        self._samples: list[Sample] = []
        self._begun: float | None = None
        self._after = self._through = datetime.now(UTC)
        self._over = asyncio.Event()
        self._kill: LeaderKill | None = None

    def interrupt(self) -> bool:
        """End the window now; False if there is none to end, or it has been ended before."""
        if self._begun is None or self._over.is_set():
            return False
        self._over.set()
        return True

    def note(self, text: str) -> None:
        """Something happened that the audience should know."""
        self._screen.event(self._clock(), text)

    async def run(self) -> bool:
        """The whole performance."""
        await self._register()
        watcher = Watcher(self._api, self._processes, self._samples)
        self._kill = LeaderKill(self._api, self._processes, watcher, self.note)
        try:
            facts, findings = await beside(self._perform(self._kill), self._look(watcher))
        finally:
            self._screen.close()
        for line in ["", *summary(self._samples, facts, findings)]:
            self._screen.say(line)
        return all(finding.kept for finding in findings)

    async def _register(self) -> None:
        self._samples = samples(datetime.now(UTC))
        self._after = max([await self._api.register(sample) for sample in self._samples])
        self._begun = time.monotonic()
        if not self._screen.live:
            for line in self._tries:
                self._screen.say(line)

    async def _perform(self, kill: LeaderKill) -> tuple[Facts, list[Finding]]:
        await together(self._kill_in_time(kill), self._window())
        return await self._settle()

    async def _window(self) -> None:
        """What is due after its end is nobody's business, however long a takeover still lasts."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._over.wait(), self._seconds)
        self._over.set()
        self._through = datetime.now(UTC).replace(microsecond=0)

    async def _look(self, watcher: Watcher) -> None:
        while True:
            with suppress(ApiSilent):  # it may be the one that is being started again
                picture = await watcher.look()
                self._screen.show(self._clock(), picture, self._tries)
            await asyncio.sleep(_LOOK_SECONDS - time.monotonic() % _LOOK_SECONDS)

    async def _kill_in_time(self, kill: LeaderKill) -> None:
        """At its second, unless the window ends before."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._over.wait(), KILL_SECONDS)
        if not self._over.is_set():
            await kill.run()

    async def _settle(self) -> tuple[Facts, list[Finding]]:
        """What was due is in the books a moment later; only a broken promise costs the whole deadline."""
        self.note("the window is over: waiting until the last of it is written down")
        deadline = time.monotonic() + _SETTLE_SECONDS
        while True:
            try:
                facts = await self._gather()
            except ApiSilent:
                if time.monotonic() > deadline:
                    raise
            else:
                findings = judge(self._samples, facts)
                if time.monotonic() > deadline or not any(each.may_come for each in findings):
                    return facts, findings
            await asyncio.sleep(_SETTLE_PAUSE_SECONDS)

    async def _gather(self) -> Facts:
        """Read anew, all of it: what the view has seen is no evidence."""
        runs = await asyncio.gather(
            *(self._api.runs(sample.name, since=self._after) for sample in self._samples)
        )
        attempts = [run for found in runs for run in found]
        dead = [sample.name for sample in self._samples if sample.promise is Promise.DEAD]
        letters = await asyncio.gather(*(self._api.letters(name) for name in dead))
        marching = {sample.name for sample in self._samples if sample.promise is Promise.MARCHES}
        marches = [run.run_id for run in attempts if run.job in marching]
        progress = await asyncio.gather(*(self._api.progress(run_id) for run_id in marches))
        with self._journal.open(encoding="utf-8") as journal:
            calls = read_journal(journal)
        return Facts(
            after=self._after,
            through=self._through,
            attempts=attempts,
            calls=calls,
            letters=[letter for found in letters for letter in found],
            progress=dict(zip(marches, progress, strict=True)),
            takeover=self._kill.takeover if self._kill else None,
        )

    def _clock(self) -> Clock:
        elapsed = 0.0 if self._begun is None else time.monotonic() - self._begun
        return Clock(elapsed=elapsed, seconds=self._seconds)


def tries(url: str) -> Sequence[str]:
    """Lines to paste into another terminal."""
    base = f"{url}/api/v1"
    return [
        "Try, in another terminal:",
        f"  curl -s '{base}/jobs/every-second/runs?limit=3'",
        f"  curl -s -X POST {base}/jobs/every-minute/trigger",
        f"  curl -s {base}/dead-letters:summary",
    ]
