"""Kill a leader, and see who takes its shards and when firing goes on.

The victim is the scheduler that leads the shard of `every-second`, so that the gap is one in which something
is due. It is not started again before somebody has its shards: a scheduler that comes back is another one,
with a share of its own, and would hide who took them.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

from mainspring.demo.api import Api, patiently
from mainspring.demo.facts import Takeover
from mainspring.demo.watching import Watcher
from mainspring.local.processes import Processes

WITNESS = "every-second"
_PAUSE_SECONDS = 0.1
_DEADLINE_SECONDS = 60.0


class LeaderKill:
    """One kill; `takeover` fills as it goes."""

    def __init__(self, api: Api, processes: Processes, watcher: Watcher, note: Callable[[str], None]) -> None:
        self._api = api
        self._processes = processes
        self._watcher = watcher
        self._note = note
        self.takeover: Takeover | None = None

    async def run(self) -> None:
        """Kill, wait for the heirs, wait for a run, start the killed one again."""
        try:
            async with asyncio.timeout(_DEADLINE_SECONDS):
                victim, mine = await self._choose()
        except TimeoutError:
            self._note("nobody leads who could be killed")
            return
        await self._processes.kill(victim)
        killed_at = datetime.now(UTC)
        self.takeover = Takeover(killed=victim, killed_at=killed_at, shards=len(mine))
        self._note(f"SIGKILL to {victim}, which led {len(mine)} shards")
        try:
            async with asyncio.timeout(_DEADLINE_SECONDS):
                await self._see_them_taken(victim, mine)
                await self._see_firing_go_on()
        except TimeoutError:
            self._note(f"the shards of {victim} are still not fired")
        self._processes.start(victim)
        self._note(f"{victim} is started again, and will get a share")

    async def _choose(self) -> tuple[str, set[int]]:
        """The leader of the witness's shard, and all that it leads."""
        shard = await patiently(lambda: self._api.shard_of(WITNESS, datetime.now(UTC)))
        while True:
            shards = await patiently(self._api.shards)
            leader = next((each["leader"] for each in shards if each["shard"] == shard), None)
            name = self._watcher.name_of(leader) if leader else ""
            if any(child.name == name and child.pid for child in self._processes.children):
                return name, {each["shard"] for each in shards if each["leader"] == leader}
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _see_them_taken(self, victim: str, mine: set[int]) -> None:
        assert self.takeover is not None
        while True:
            shards = await patiently(self._api.shards)
            heirs = Counter(self._watcher.name_of(each["leader"]) for each in shards if each["shard"] in mine)
            if victim not in heirs:
                break
            await asyncio.sleep(_PAUSE_SECONDS)
        seconds = (datetime.now(UTC) - self.takeover.killed_at).total_seconds()
        self.takeover = replace(self.takeover, taken_by=dict(heirs), taken_seconds=seconds)
        takers = " and ".join(f"{name} took {count}" for name, count in heirs.items())
        self._note(f"{takers} of its shards within {seconds:.1f} s")

    async def _see_firing_go_on(self) -> None:
        assert self.takeover is not None
        killed_at = self.takeover.killed_at
        while True:
            runs = await patiently(lambda: self._api.runs(WITNESS, newest=50))
            begun = [run.started_at for run in runs if run.started_at and run.scheduled_at > killed_at]
            if begun:
                break
            await asyncio.sleep(_PAUSE_SECONDS)
        seconds = (min(begun) - killed_at).total_seconds()
        self.takeover = replace(self.takeover, resumed_seconds=seconds)
        self._note(f"firing went on {seconds:.1f} s after the kill")
