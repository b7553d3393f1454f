"""Jobs change in the very second they are due, while leaders are killed: the last commit decides."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from tests.acceptance.reports import Report
from tests.acceptance.scheduler.cluster import TENANT, Cluster
from tests.acceptance.scheduler.recorder import Record, by_run
from tests.acceptance.scheduler.writers import Writer
from tests.acceptance.waiting import until

SEED = 20
WRITERS = 8
KILLS = 2


async def test_the_last_committed_change_decides_also_while_leaders_are_killed(
    cluster: Cluster, report: Report
) -> None:
    await cluster.start(2)
    writers = [Writer(cluster, SEED + number) for number in range(WRITERS)]
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as writing:
        for writer in writers:
            writing.create_task(writer.run(stop))
        for _ in range(KILLS):
            victim = cluster.alive[0]
            await cluster.marks_pass(cluster.observer.now + 2)
            await victim.kill()
            await cluster.marks_pass(cluster.observer.now)
            await cluster.start()
        await cluster.marks_pass(cluster.observer.now + 1)
        stop.set()
    await _let_everybody_see(cluster)
    through = await cluster.end()
    _judge(cluster, writers, through, report)
    assert not await cluster.database.fetch("SELECT * FROM missed")
    # A paused job's timers are kept for it; all others have been fired and deleted.
    assert not await cluster.database.fetch(
        "SELECT * FROM timers JOIN jobs ON jobs.id = job_id WHERE status <> 'paused'"
    )


async def test_an_edit_just_before_its_leader_dies_counts_nothing_as_missed(cluster: Cluster) -> None:
    """The successor cannot know whether the edit was seen; what it looks at again was published long ago."""
    mark = datetime.now(UTC).replace(microsecond=0) - timedelta(minutes=5)
    jobs = await cluster.made_valid(await cluster.register(20), mark)
    await cluster.put_marks_back(mark)
    [leader] = await cluster.start()
    given_up = await cluster.given_up()
    assert given_up
    async with cluster.database.acquire() as connection, connection.transaction():
        await connection.fetch("SELECT FROM shards FOR UPDATE")  # so that no mark can move behind the edits
        for job in jobs:
            await cluster.registry.edit(TENANT, job.job_id, {"payload": "another"})
        await leader.kill()
    await cluster.start()
    assert await cluster.given_up() == given_up


async def _let_everybody_see(cluster: Cluster) -> None:
    """Wait for messages of every shard whose leader had seen all changes: a witness in each shard fires."""
    witnesses = await cluster.register(600)
    last = await cluster.database.fetchval("SELECT max(changed::text::bigint) FROM jobs")
    shards = {job.shard for job in witnesses}

    def all_seen() -> bool:
        seen = {record.shard for record in cluster.recorder.records if record.position > last}
        return seen >= shards

    await until(all_seen, "every leader has seen every change")


def _judge(cluster: Cluster, writers: list[Writer], through: int, report: Report) -> None:
    published = by_run(cluster.recorder.records)
    of_job: dict[int, list[Record]] = {}
    for record in cluster.recorder.records:
        of_job.setdefault(record.run.job_id, []).append(record)
    end = datetime.fromtimestamp(through, UTC)
    lives = [life for writer in writers for life in writer.lives]
    one_offs = {run: deleted for writer in writers for run, deleted in writer.one_offs.items()}
    lost = [run for life in lives for run in life.required(end) if run not in published]
    lost += [
        run
        for life in lives
        for run in life.triggers
        if life.changes[-1].status == "active" and run not in published
    ]
    lost += [run for run, deleted in one_offs.items() if deleted is None and run not in published]
    contradictions = [each for life in lives for each in life.violations(of_job.get(life.job_id, []))]
    zombies = [
        record
        for run, deleted in one_offs.items()
        if deleted is not None
        for record in published.get(run, [])
        if record.position > deleted.transaction
    ]
    early = [record for record in cluster.recorder.records if record.published_at < record.second]
    changes = sum(len(life.changes) for life in lives)
    report(
        f"{len(lives)} jobs with {changes} changes, {len(one_offs)} one-offs, {KILLS} kills: "
        f"{len(published)} runs, {sum(len(copies) > 1 for copies in published.values())} published again",
    )
    assert not lost, f"{len(lost)} lost, e.g. {lost[:3]}"
    assert not contradictions, f"{len(contradictions)} against what was seen, e.g. {contradictions[:3]}"
    assert not zombies, f"{len(zombies)} of deleted one-offs, e.g. {zombies[:3]}"
    assert not early, f"{len(early)} early, e.g. {early[:3]}"
