"""Three brokers, one of them killed: firing goes on, and nothing that was acknowledged is lost.

The stack is this test's own: three brokers cost a gigabyte and some seconds, and nobody else needs them.
"""

from __future__ import annotations

import time
from pathlib import Path

import asyncpg

from mainspring.local import LocalStack
from mainspring.schema.migrate import migrate
from tests.acceptance.reports import Report
from tests.acceptance.scheduler.cluster import SHARDS, Cluster
from tests.integration.local.environments import own


async def test_one_broker_of_three_is_killed_and_firing_goes_on(tmp_path: Path, report: Report) -> None:
    async with LocalStack(brokers=3, environment=own()) as stack:
        dsn = stack.environment()["MAINSPRING_POSTGRES_DSN"]
        connection = await asyncpg.connect(dsn)
        await migrate(connection, shards=SHARDS)
        await connection.close()
        async with Cluster.on(stack, dsn, tmp_path) as cluster:
            jobs = await cluster.register(300)
            await cluster.start(2)
            epochs = cluster.observer.epochs()
            await stack.brokers[0].kill()
            killed_at = time.time()
            await cluster.marks_pass(killed_at + 5)
            went_on_at = time.time()
            assert cluster.observer.epochs() == epochs
            verdict = await cluster.verdict(jobs)
            latest = max(record.published_at - record.second for record in cluster.recorder.records)
            report(
                f"one broker of three killed, {verdict.figures()}; five seconds of schedule were settled "
                f"{went_on_at - killed_at:.1f} s later, latest by {latest:.2f} s",
            )
