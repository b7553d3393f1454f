"""Election: which shards and duties this process holds, by keys in etcd that hang on its lease.

    <prefix>members/<identity>     who takes part: shares are counted among these
    <prefix>shards/<number>        who leads a shard: the identity
    <prefix>duties/<name>          who does a duty

Each round reads all keys at one revision, and does what `shares.plan` says. A round follows every event
under the prefix, and a second without one. Creating a key is a transaction that fails if it exists, so
two processes that reach for one shard are decided by etcd; the loser learns it in the next round.

A process that cannot lead (its clock is off, Postgres does not answer it, the database must be rebased)
is no member: it takes nothing, and gives what it holds to those that are. Where there are none, it keeps
its terms: an outage of Postgres must not end the firing that goes on from memory.

Handing back: the bucket in hand is finished and settled, the term ended, then the key deleted; so the
next leader begins where this one stopped. After the loss of a lease the terms go on (leadership.py); the
keys are created again under the next one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable
from contextlib import aclosing
from dataclasses import dataclass
from datetime import timedelta

import structlog

from mainspring.clock import Clock
from mainspring.etcd import Compare, Delete, EtcdClient, KeyValue, LeaseKeeper, Put
from mainspring.scheduler.duties import Duties
from mainspring.scheduler.leadership import Leadership
from mainspring.scheduler.shares import Holdings, plan
from mainspring.scheduler.takeover import Takeover
from mainspring.schema.errors import DatabaseUnavailable, EtcdUnavailable, HistoryLost, MainspringError
from mainspring.settings import EtcdSettings

ROUND_SECONDS = 1.0
ABANDONED_AFTER = timedelta(seconds=6)
"""Two lease times: a shard that is free for longer may be taken beyond the fair share."""

RESCUED_FOR = timedelta(seconds=60)
"""How long such a shard is kept before it counts as surplus."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class _Keys:
    """The keys under the prefix at one revision."""

    revision: int
    members: dict[str, KeyValue]
    shards: dict[int, KeyValue]
    duties: dict[str, KeyValue]

    def holdings(self) -> Holdings:
        return Holdings(
            frozenset(self.members), {shard: found.value.decode() for shard, found in self.shards.items()}
        )


class Election:
    """Takes part in the election of shard leaders and duties."""

    def __init__(
        self,
        client: EtcdClient,
        settings: EtcdSettings,
        *,
        prefix: str,
        identity: str,
        shards: int,
        leadership: Leadership,
        takeover: Takeover,
        duties: Duties,
        unfit: Callable[[], str | None],
        clock: Clock,
        lease: timedelta,
    ) -> None:
        self._client = client
        self._settings = settings
        self._prefix = prefix
        self._identity = identity
        self._shards = shards
        self._leadership = leadership
        self._takeover = takeover
        self._duties = duties
        self._unfit = unfit
        self._clock = clock
        self._lease = lease
        self._keeper: LeaseKeeper | None = None
        self._free_since: dict[int, float] = {}
        self._rescued: dict[int, float] = {}
        self.changed = asyncio.Event()
        self._was_unfit: str | None = None
        self._withdrew_at = 0.0
        self.revision = 0

    async def run(self, stop: asyncio.Event) -> None:
        """Take part until told to stop."""
        async with asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(self._watch(), name="watch-election")
            while not stop.is_set():
                self.changed.clear()
                try:
                    await self.run_once()
                except MainspringError as error:
                    log.warning("election_round_failed", reason=str(error))
                await self._wait()
            watching.cancel()

    async def run_once(self) -> None:
        """One round: read the keys, and do what they and our own state ask for."""
        keeper = await self._kept_lease()
        keys = await self._read()
        keys = await self._be_member(keys, keeper)
        await self._reconcile(keys, keeper)
        holdings = keys.holdings()
        abandoned = self._abandoned(holdings)
        rescued = self._still_rescued(holdings)
        todo = plan(self._identity, self._shards, holdings, abandoned=abandoned, rescued=rescued)
        self._rescued |= dict.fromkeys(abandoned.intersection(todo.take), self._clock.monotonic())
        if todo.give and not self._just_withdrew():
            await self._give(todo.give, keeper)
        created = await self._create([(self._shard_key(shard), shard) for shard in todo.take], keeper)
        # A key of ours without a term: Postgres did not answer when it was created.
        waiting = [shard for shard in holdings.of(self._identity) if shard not in self._leadership.terms]
        await self._begin([*created, *(shard for shard in waiting if shard not in todo.give)], keeper)
        await self._attend(keys, keeper)

    async def resign(self) -> None:
        """Give everything back at once: the terms are ended, the lease is revoked with all its keys."""
        await self._takeover.end(list(self._leadership.terms), "resigned")
        await self._duties.stop()
        if self._keeper is not None:
            await self._keeper.stop(revoke=True)

    async def _kept_lease(self) -> LeaseKeeper:
        if self._keeper is not None and not self._keeper.lost.is_set():
            return self._keeper
        if self._keeper is not None:
            await self._keeper.stop(revoke=False)
            self._keeper = None
        keeper = LeaseKeeper(self._settings, ttl=self._lease, clock=self._clock)
        await keeper.start()
        self._keeper = keeper
        return keeper

    async def _read(self) -> _Keys:
        found = await self._client.range(self._prefix)
        self.revision = found.revision
        by_kind: dict[str, dict[str, KeyValue]] = {"members": {}, "shards": {}, "duties": {}}
        for item in found.items:
            kind, _, name = item.key.removeprefix(self._prefix).partition("/")
            if kind in by_kind:
                by_kind[kind][name] = item
        shards = {int(name): item for name, item in by_kind["shards"].items() if name.isdigit()}
        return _Keys(found.revision, by_kind["members"], shards, by_kind["duties"])

    async def _be_member(self, keys: _Keys, keeper: LeaseKeeper) -> _Keys:
        """Take part if we can lead, else do not; the keys as they are afterwards."""
        reason = self._unfit()
        if reason != self._was_unfit:
            log.warning("cannot_lead", reason=reason) if reason else log.info("can_lead_again")
            if self._was_unfit is None:
                self._withdrew_at = self._clock.monotonic()
            self._was_unfit = reason
        key = f"{self._prefix}members/{self._identity}"
        mine = keys.members.get(self._identity)
        if reason is not None and mine is not None:
            await self._client.delete(key)
            return await self._read()
        if reason is None and (mine is None or mine.lease != keeper.lease_id):
            await self._client.put(key, self._identity.encode(), lease=keeper.lease_id)
            return await self._read()
        return keys

    async def _reconcile(self, keys: _Keys, keeper: LeaseKeeper) -> None:
        """Terms whose key is gone get it again under our lease; those whose key is another's end."""
        lost = [
            shard
            for shard in self._leadership.terms
            if shard in keys.shards and keys.shards[shard].value.decode() != self._identity
        ]
        self._leadership.end(lost, "key_taken")  # at once: there is nothing to hand over
        bare = [shard for shard in self._leadership.terms if shard not in keys.shards]
        for shard in await self._create([(self._shard_key(shard), shard) for shard in bare], keeper):
            self._leadership.rebind(shard, keeper)

    async def _give(self, shards: Collection[int], keeper: LeaseKeeper) -> None:
        await self._takeover.end(shards, "handed_back")
        for shard in shards:
            key = self._shard_key(shard)
            await self._client.transact(
                compare=[Compare.held_by(key, keeper.lease_id)], success=[Delete(key)]
            )

    async def _create(self, wanted: Iterable[tuple[str, int]], keeper: LeaseKeeper) -> list[int]:
        """Create keys that do not exist: those that we got. A lost answer is settled by the next round."""
        created = []
        for key, shard in wanted:
            try:
                result = await self._client.transact(
                    compare=[Compare.absent(key)],
                    success=[Put(key, self._identity.encode(), keeper.lease_id)],
                )
            except EtcdUnavailable as error:
                log.warning("key_not_created", key=key, reason=str(error))
                break
            if result.succeeded:
                created.append(shard)
        return created

    async def _begin(self, shards: Collection[int], keeper: LeaseKeeper) -> None:
        if not shards:
            return
        try:
            await self._takeover.begin(shards, keeper)
        except DatabaseUnavailable as error:
            log.warning("shards_not_taken", shards=len(shards), reason=str(error))

    async def _attend(self, keys: _Keys, keeper: LeaseKeeper) -> None:
        """Hold the duties that nobody has, and do those that are ours."""
        if self._was_unfit is not None:
            await self._duties.stop()
            return
        for name in self._duties.names:
            if name not in keys.duties:
                key = f"{self._prefix}duties/{name}"
                await self._client.transact(
                    compare=[Compare.absent(key)],
                    success=[Put(key, self._identity.encode(), keeper.lease_id)],
                )
        mine = {name for name, found in keys.duties.items() if found.value.decode() == self._identity}
        await self._duties.attend(mine)

    def _just_withdrew(self) -> bool:
        """Whether the others may be in the same trouble, and about to withdraw too."""
        since = self._clock.monotonic() - self._withdrew_at
        return self._was_unfit is not None and since < ABANDONED_AFTER.total_seconds()

    def _abandoned(self, holdings: Holdings) -> set[int]:
        now = self._clock.monotonic()
        free = [shard for shard in range(self._shards) if shard not in holdings.holders]
        self._free_since = {shard: self._free_since.get(shard, now) for shard in free}
        bound = now - ABANDONED_AFTER.total_seconds()
        return {shard for shard, since in self._free_since.items() if since <= bound}

    def _still_rescued(self, holdings: Holdings) -> set[int]:
        """Abandoned shards that we took a short while ago: they are not surplus yet."""
        bound = self._clock.monotonic() - RESCUED_FOR.total_seconds()
        mine = holdings.of(self._identity)
        self._rescued = {
            shard: since for shard, since in self._rescued.items() if shard in mine and since > bound
        }
        return set(self._rescued)

    def _shard_key(self, shard: int) -> str:
        return f"{self._prefix}shards/{shard}"

    async def _wait(self) -> None:
        """Until something changes under the prefix, or a second has passed."""
        try:
            async with asyncio.timeout(ROUND_SECONDS):
                await self.changed.wait()
        except TimeoutError:
            return

    async def _watch(self) -> None:
        """Let every event under the prefix begin a round; the second between rounds is the fallback."""
        while True:
            try:
                async with aclosing(self._client.watch(self._prefix, self.revision + 1)) as batches:
                    async for _ in batches:
                        self.changed.set()
            except HistoryLost:
                self.changed.set()
            except MainspringError as error:
                log.warning("election_watch_failed", reason=str(error))
            await asyncio.sleep(ROUND_SECONDS)
