"""What the scenarios make of their measurements; they themselves run on a cluster of their own."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from click.testing import CliRunner

from bench import armed, feed, fire
from bench.harness.jobs import once_at, same_jobs
from bench.harness.topics import Record
from mainspring.schedule import Cadence
from mainspring.schema.messages import JobDefinition, encode_job, encode_prefix

DUE = datetime(2026, 11, 18, 23, 59, 58, tzinfo=UTC)


def record(job_id: int, late_ms: int) -> Record:
    second = int(DUE.timestamp())
    prefix = encode_prefix(
        attempt=1, shard=0, second=second, scheduled_at=second * 1_000_000, epoch=1, position=1
    )
    body = encode_job(JobDefinition(job_id, 1, 1, "noop"))
    return Record(prefix + body, second * 1000 + late_ms)


def test_lateness_is_counted_from_due_to_the_last_append() -> None:
    result = fire.summarize([1, 2, 3], DUE, [record(1, 100), record(2, 300), record(3, 200)], 0.15, 50.0)
    assert (result.published_s, result.bare_s, result.ratio) == (0.3, 0.15, 0.5)
    assert result.lateness_ms == {"p50": 200, "p99": 300, "max": 300}
    assert (result.lost, result.duplicates) == (0, 0)


def test_what_is_missing_and_what_came_twice_is_counted_against_the_list() -> None:
    result = fire.summarize([1, 2, 3], DUE, [record(1, 1), record(1, 2), record(3, 3)], 1.0, 50.0)
    assert (result.lost, result.duplicates) == (1, 1)


def test_a_job_for_one_instant_fires_then() -> None:
    before = datetime(2026, 11, 18, 23, 59, 57, tzinfo=UTC)
    assert Cadence.parse(once_at(DUE)).next_after(before) == DUE
    [request] = same_jobs(1, once_at(DUE), payload_bytes=200)
    assert len(json.dumps(request.payload)) == 200


def test_daily_jobs_share_so_many_schedules_and_a_seed_repeats_them() -> None:
    jobs = feed.daily_jobs(100, 7, seed=1)
    assert len({job.schedule for job in jobs}) == 7
    assert [job.schedule for job in jobs] == [job.schedule for job in feed.daily_jobs(100, 7, seed=1)]


def test_the_cost_of_staying_informed_is_the_work_between_two_looks() -> None:
    before = {f"{feed.POLL}_sum": 1.0, f"{feed.POLL}_count": 10.0, f"{feed.LOAD}_sum": 2.0}
    before[f"{feed.LOAD}_count"] = 1.0
    after = {f"{feed.POLL}_sum": 1.4, f"{feed.POLL}_count": 30.0, f"{feed.LOAD}_sum": 2.24}
    after[f"{feed.LOAD}_count"] = 2.0
    result = feed.summarize(1000, 7, 10, before, after)
    assert (result.poll_ms, result.horizon_ms) == (20.0, 240.0)
    assert result.ms_per_shard_and_second == pytest.approx(640 / 10 / 64)


def test_armed_jobs_weigh_more_than_their_messages() -> None:
    done = CliRunner().invoke(armed.command, ["--jobs", "1000", "--payload", "50", "--json"])
    found = json.loads(done.stdout)
    assert found["jobs"] == 1000
    assert found["bytes_per_job"] > found["message_bytes_per_job"] > 50
