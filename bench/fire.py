"""One bucket: so many jobs of one cadence due in the same second, published onto Kafka.

The jobs are registered through the registry, a scheduler process leads all shards, and the topic is
stamped by the broker when it appends (LogAppendTime), so lateness is measured by somebody else than the
scheduler. Afterwards the topic is read back and counted against the list of job ids made beforehand. In
the same run, the same bytes are sent by a bare confluent-kafka loop with the same producer settings.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from statistics import median

import click
from confluent_kafka import Producer

from bench.harness.cluster import (
    Cluster,
    SchedulerProcess,
    progress,
    resident_megabytes,
    running_cluster,
)
from bench.harness.environment import Environment
from bench.harness.jobs import once_at, register, same_jobs
from bench.harness.percentiles import percentile
from bench.harness.second import refuse_if_late
from bench.harness.topics import PARTITIONS, Record, make_topic, read_back
from mainspring.schema.messages import decode
from mainspring.schema.states import Lane, topic_of

BARE_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Result:
    """What one run measured."""

    jobs: int
    published_s: float
    bare_s: float
    ratio: float
    lateness_ms: dict[str, float]
    lost: int
    duplicates: int
    scheduler_mb: float


async def run(jobs: int, payload_bytes: int, lead_seconds: int) -> Result:
    async with running_cluster() as cluster:
        topic = topic_of("default", Lane.NORMAL)
        await asyncio.to_thread(make_topic, cluster, topic)
        due = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=lead_seconds)
        ids = await register(cluster, same_jobs(jobs, once_at(due), payload_bytes))
        scheduler = SchedulerProcess(cluster)
        try:
            await scheduler.wait_for("mainspring_scheduler_shard_jobs_armed", jobs)
            memory = resident_megabytes(scheduler.pid)
            refuse_if_late(due)
            progress(f"armed; due in {(due - datetime.now(UTC)).total_seconds():.0f} s")
            await scheduler.wait_for("mainspring_scheduler_messages_published_total", jobs)
            records = await asyncio.to_thread(lambda: list(read_back(cluster, [topic])))
            bare = [await asyncio.to_thread(send_bare, cluster, records) for _ in range(BARE_ROUNDS)]
        finally:
            scheduler.stop()
    return summarize(ids, due, records, median(bare), memory)


def summarize(
    ids: Sequence[int], due: datetime, records: Sequence[Record], bare: float, memory: float
) -> Result:
    seen = Counter(decode(record.value).job.job_id for record in records)
    due_ms = due.timestamp() * 1000
    lateness = sorted(record.appended_ms - due_ms for record in records)
    published = lateness[-1] / 1000
    return Result(
        jobs=len(ids),
        published_s=round(published, 3),
        bare_s=round(bare, 3),
        ratio=round(bare / published, 3),
        lateness_ms={
            "p50": percentile(lateness, 0.5),
            "p99": percentile(lateness, 0.99),
            "max": lateness[-1],
        },
        lost=sum(1 for job_id in ids if job_id not in seen),
        duplicates=sum(count - 1 for count in seen.values()),
        scheduler_mb=round(memory, 1),
    )


def send_bare(cluster: Cluster, records: Sequence[Record]) -> float:
    """Seconds a plain loop takes to have the same bytes acknowledged."""
    topic = f"bare-{time.time_ns()}"
    make_topic(cluster, topic)
    producer = Producer(
        cluster.settings.kafka.librdkafka()
        | {
            "enable.idempotence": True,
            "acks": "all",
            "compression.type": "lz4",
            "linger.ms": 5,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 2_000_000,
            "queue.buffering.max.kbytes": 2_097_151,
        }
    )
    producer.list_topics(topic, timeout=30)
    values = [record.value for record in records]
    began = time.monotonic()
    for number, value in enumerate(values):
        producer.produce(topic, value, None, number // 1000 % PARTITIONS)
        if number % 1000 == 0:
            producer.poll(0)
    producer.flush()
    return time.monotonic() - began


def report(result: Result, environment: Environment) -> list[str]:
    lateness = ", ".join(f"{name} {value:,.0f} ms" for name, value in result.lateness_ms.items())
    return [
        *environment.lines(),
        "",
        f"jobs          {result.jobs:,} of one cadence, due in one second",
        f"published     {result.published_s:.2f} s after due, all of them",
        f"lateness      {lateness} (due → appended by the broker)",
        f"bare loop     {result.bare_s:.2f} s for the same bytes; ratio {result.ratio:.2f}",
        f"lost          {result.lost}, duplicates {result.duplicates}",
        f"memory        {result.scheduler_mb:.0f} MB of the scheduler, all jobs armed",
    ]


@click.command("fire", short_help="one second's bucket onto Kafka, beside a bare producer loop")
@click.option(
    "--jobs", type=click.IntRange(1, 5_000_000), default=500_000, show_default=True, help="due at once"
)
@click.option("--payload", type=click.IntRange(2, 100_000), default=200, show_default=True, help="bytes each")
@click.option("--lead", type=click.IntRange(10, 3000), help="seconds to register in; default: by the number")
@click.option("--json", "as_json", is_flag=True, help="one JSON object instead of the table")
def command(jobs: int, payload: int, lead: int | None, *, as_json: bool) -> None:
    """How long after due a bucket of JOBS messages is wholly published, and how even.

    Starts a stack of its own. The defaults take about two minutes.
    """
    result = asyncio.run(run(jobs, payload, lead or 30 + jobs // 8000))
    environment = Environment.capture()
    if as_json:
        click.echo(json.dumps(asdict(result) | {"environment": asdict(environment)}))
    else:
        click.echo("\n".join(report(result, environment)))
    if result.lost or result.duplicates:
        raise click.ClickException("what came out is not what went in")
