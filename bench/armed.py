"""Memory of armed jobs: what a leader holds for so many members of cadences that are due in its window.

Counted by tracemalloc around the loading of real rows into a real term: the ready bytes, the groups they
leave in and the index by which the feed finds them again. What the interpreter and the drivers need is
not in it; the scheduler's resident memory is reported by `fire`.
"""

from __future__ import annotations

import gc
import json
import tracemalloc
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import click

from bench.harness.environment import Environment
from mainspring.schedule import Cadence, MissedPolicy
from mainspring.scheduler.rosters import JobRow
from mainspring.scheduler.terms import Term
from mainspring.schema.ids import JobIds
from mainspring.schema.messages import JobDefinition, encode_job

NOW = 1_767_225_300  # 2025-12-31T23:55:00Z
WINDOW = 600


@dataclass(frozen=True, slots=True)
class Result:
    """What so many armed jobs weigh."""

    jobs: int
    payload_bytes: int
    megabytes: float
    bytes_per_job: float
    message_bytes_per_job: float


def rows(jobs: int, payload_bytes: int) -> Iterator[JobRow]:
    """Jobs as the feed would bring them; each is made when it is asked for."""
    payload = b'"' + b"x" * (payload_bytes - 2) + b'"'
    for job_id in JobIds().take_many(jobs):
        body = encode_job(JobDefinition(job_id, 1, 1, "send-report", payload, name=f"report-{job_id}"))
        yield JobRow(
            job_id=job_id,
            shard=0,
            tenant_id=1,
            cadence_id=1,
            active=True,
            changed=1,
            version=1,
            valid_from=0,
            updated_at=0,
            starts_at=None,
            ends_at=None,
            jitter_seconds=0,
            pool="default",
            priority=5,
            missed_window=MissedPolicy.RUN_ONCE,
            grace_seconds=60,
            max_missed=100,
            body=body,
        )


def measure(jobs: int, payload_bytes: int) -> Result:
    """Load them into a term whose cadence fires at midnight."""
    term = Term(0, 1, mark=NOW, gap_to=None)
    term.horizon = NOW + WINDOW
    term.begin_loading(1, Cadence.parse("@daily"))
    gc.collect()
    tracemalloc.start()
    try:
        total = 0
        for row in rows(jobs, payload_bytes):
            total += len(row.body)
            term.load_member(row)
        term.adopt(1, max_jitter=0, owed=(), since=NOW)
        del row
        gc.collect()
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    if term.armed_jobs != jobs:
        raise click.ClickException(f"{term.armed_jobs} of {jobs} jobs are armed")
    return Result(jobs, payload_bytes, round(held / 1e6, 1), round(held / jobs, 1), round(total / jobs, 1))


@click.command("armed", short_help="memory of the jobs that a leader holds ready")
@click.option("--jobs", type=click.IntRange(min=1), default=167_000, show_default=True, help="armed at once")
@click.option("--payload", type=click.IntRange(2, 100_000), default=200, show_default=True, help="bytes each")
@click.option("--json", "as_json", is_flag=True, help="one JSON object instead of the lines")
def command(jobs: int, payload: int, *, as_json: bool) -> None:
    """What JOBS armed jobs weigh in a leader's memory."""
    result = measure(jobs, payload)
    environment = Environment.capture()
    if as_json:
        click.echo(json.dumps(asdict(result) | {"environment": asdict(environment)}))
        return
    click.echo("\n".join(environment.lines()))
    each, leaves = result.bytes_per_job, result.message_bytes_per_job
    click.echo(f"\n{jobs:,} jobs with {payload} bytes of payload: {result.megabytes:.1f} MB,")
    click.echo(f"{each:.0f} bytes each, of which {leaves:.0f} leave as the message")
