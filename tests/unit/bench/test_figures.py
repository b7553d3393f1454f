"""What the scenarios of a whole cluster make of what broker, Postgres and handlers say afterwards."""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

import pytest

from bench import failover, midnight, steady
from bench.harness.beats import expected, job_lines, spread
from bench.harness.books import Runs
from bench.harness.keys import run_key
from bench.harness.noop import executions
from bench.harness.percentiles import curve, in_words, summary
from bench.harness.processes import Sample, Watch
from bench.harness.second import Seen, measures
from bench.harness.topics import Published
from mainspring.schedule import Cadence, Kind
from mainspring.schedule.instants import parse_instant

DUE = 1_800_000_000
MICROSECONDS = 1_000_000
OPTIONS = midnight.Options(
    jobs=2500, tenants=1, cadences="1", kind="cron", workers=1, schedulers=1, concurrency=1, payload=10,
    lead=40, seed=1,
)  # fmt: skip


def published(*messages: tuple[int, float], epoch: int = 1, shard: int = 0) -> Published:
    """Of these jobs, so many seconds late."""
    found = Published()
    for job_id, late in messages:
        found.job_ids.append(job_id)
        found.scheduled.append(DUE * MICROSECONDS)
        found.seconds.append(DUE)
        found.shards.append(shard)
        found.epochs.append(epoch)
        found.appended.append(DUE + late)
    return found


def runs(*ended: tuple[int, float, float]) -> Runs:
    """Of these jobs: started and durable, in seconds after due."""
    found = Runs()
    for job_id, started, durable in ended:
        found.job_ids.append(job_id)
        found.scheduled.append(DUE * MICROSECONDS)
        found.started.append(DUE + started)
        found.durable.append(DUE + durable)
    return found


def seen(
    messages: Published, ended: Runs, executed: dict[int, int], durable_at: float | None = DUE + 4.0
) -> Seen:
    counts = Counter({run_key(job_id, DUE * MICROSECONDS): count for job_id, count in executed.items()})
    return Seen(float(DUE), durable_at, messages, ended, counts)


def test_a_hot_second_is_told_by_its_last_message_its_last_start_and_its_last_outcome() -> None:
    messages = published((1, 0.25), (2, 0.5), (3, 0.125))
    ended = runs((1, 1.0, 2.0), (2, 1.5, 3.0), (3, 0.5, 2.0))
    found = measures([1, 2, 3], seen(messages, ended, {1: 1, 2: 1, 3: 1}))
    assert (found["published_s"], found["started_s"], found["durable_s"]) == (0.5, 1.5, 4.0)
    assert found["publish_lateness_ms"] == {"p50": 250, "p99": 500, "p999": 500, "max": 500}
    assert found["start_lateness_ms"]["max"] == 1500
    assert found["durable_lateness_ms"]["p50"] == 2000
    assert (found["lost"], found["executed_twice"], found["published_twice"]) == (0, 0, 0)


def test_a_job_is_lost_without_a_success_or_without_an_execution() -> None:
    messages = published((1, 0.1), (2, 0.1), (3, 0.1))
    no_success = measures([1, 2, 3], seen(messages, runs((1, 1, 1), (2, 1, 1)), {1: 1, 2: 1, 3: 1}))
    no_execution = measures([1, 2], seen(messages, runs((1, 1, 1), (2, 1, 1)), {1: 1}))
    assert (no_success["lost"], no_execution["lost"]) == (1, 1)


def test_what_was_done_twice_is_counted_apart_for_topics_and_handlers() -> None:
    messages = published((1, 0.1), (2, 0.1), (2, 0.2), (2, 0.3))
    found = measures([1, 2], seen(messages, runs((1, 1, 1), (2, 1, 1)), {1: 2, 2: 1}))
    assert (found["published_twice"], found["executed_twice"], found["lost"]) == (2, 1, 0)


def test_a_run_that_was_stopped_tells_what_it_has() -> None:
    found = measures([1, 2], seen(published((1, 0.1)), runs(), {}, durable_at=None), complete=False)
    assert (found["durable_s"], found["started_s"], found["lost"]) == (None, None, None)
    assert (found["published_s"], found["jobs"]) == (0.1, 2)
    assert found["start_lateness_ms"] == {"p50": None, "p99": None, "p999": None, "max": None}
    assert in_words(found["start_lateness_ms"]) == "p50 –, p99 –, p99.9 –, max –"


def test_percentiles_are_values_that_occurred() -> None:
    values = [float(value) for value in range(1, 1001)]
    assert summary(values) == {"p50": 501, "p99": 991, "p999": 1000, "max": 1000}
    points = curve(values)
    assert points[0] == (0.0, 1.0)
    assert points[-1][1] == 1000.0
    assert [y for _, y in points] == sorted(y for _, y in points)


def test_executions_are_summed_over_the_files_of_all_workers(tmp_path: Path) -> None:
    for worker, numbers in {"7": [1, 10, 2, 10], "8": [1, 10, 1, 20]}.items():
        (tmp_path / worker).write_bytes(array("q", numbers).tobytes())
    assert executions(tmp_path) == {run_key(1, 10): 2, run_key(2, 10): 1, run_key(1, 20): 1}


def test_many_cadences_differ_and_fire_at_the_same_instant() -> None:
    due = datetime(2026, 11, 18, 23, 59, 58, tzinfo=UTC)
    made = list(islice(midnight.expressions(due, seed=1), 300))
    assert len(set(made)) == 300
    assert made == list(islice(midnight.expressions(due, seed=1), 300))
    before = datetime(2026, 11, 18, 23, 59, 57, tzinfo=UTC)
    assert {Cadence.parse(text).next_after(before) for text in made} == {due}


@pytest.mark.parametrize(("cadences", "schedules"), [("1", 1), ("many", midnight.MANY)])
def test_midnight_has_as_many_schedules_as_asked_for(cadences: str, schedules: int) -> None:
    due = datetime(2026, 11, 18, 23, 59, 58, tzinfo=UTC)
    made = list(midnight.job_lines(replace(OPTIONS, cadences=cadences), due))
    assert (len(made), len(set(made))) == (2500, schedules)


@pytest.mark.parametrize("rate", [7, 300, 2801])
def test_a_spread_load_has_its_rate_in_every_second(rate: int) -> None:
    groups = spread(rate)
    ids = list(range(1, sum(group.jobs for group in groups) + 1))
    seconds = Counter(key & (2**64 - 1) for key in expected(groups, ids, DUE, DUE + 60))
    assert seconds == {(DUE + second) * MICROSECONDS: rate for second in range(60)}
    assert sum(1 for _ in job_lines(groups, 10)) == len(ids)


def test_a_beat_is_due_when_its_schedule_says() -> None:
    for beat, _ in spread(100):
        cadence = Cadence.parse(beat.schedule)
        if cadence.kind is Kind.EVERY:
            cadence = replace(cadence, phase=beat.fields["phase_seconds"])
        found = []
        following = cadence.next_second(DUE - 1)
        while following is not None and following < DUE + 120:
            found.append(following)
            following = cadence.next_second(following)
        assert found == list(beat.due(DUE, DUE + 120))


def test_each_minute_has_its_own_percentiles() -> None:
    moments = {"start": [(DUE + 0.0, 10.0), (DUE + 59.0, 20.0), (DUE + 60.0, 500.0)]}
    first, second = steady.minutes(moments, DUE)
    assert (first["minute"], first["start_lateness_ms"]["max"]) == (0, 20)
    assert (second["minute"], second["start_lateness_ms"]["max"]) == (1, 500)


def test_drift_is_the_last_minute_against_the_first() -> None:
    samples = {"worker": [Sample(DUE + at, 0.0, 100.0 + at) for at in range(180)]}
    [found] = steady.drift(samples, DUE, DUE + 180)
    assert (found["first_mb"], found["last_mb"], found["drift_mb"]) == (129.5, 249.5, 120.0)


def test_a_failover_is_from_the_kill_to_the_next_epoch_of_the_same_shards() -> None:
    messages = published((1, 1.0), epoch=4, shard=0)
    for late, epoch, shard in ((2.0, 9, 1), (3.0, 5, 0), (3.5, 10, 1), (9.0, 6, 0)):
        more = published((1, late), epoch=epoch, shard=shard)
        for name in ("job_ids", "scheduled", "seconds", "shards", "epochs", "appended"):
            getattr(messages, name).extend(getattr(more, name))
    [found] = failover.recoveries(messages, [failover.Kill(DUE + 0.5, {0: 4, 1: 9})])
    assert (found["first_s"], found["all_s"], found["shards"]) == (2.5, 3.0, 2)


def test_a_kill_nobody_recovered_from_is_no_recovery() -> None:
    messages = published((1, 1.0), epoch=4)
    assert failover.recoveries(messages, [failover.Kill(DUE + 0.5, {0: 4})]) == []


def test_usage_is_what_was_added_between_two_moments() -> None:
    watch = Watch(dict)
    watch.samples["worker"] = [Sample(DUE + at, at * 0.5, 10.0 * at) for at in range(10)]
    [usage] = watch.usage(DUE + 2, DUE + 6)
    assert (usage.name, usage.cpu_s, usage.peak_mb) == ("worker", 2.0, 90.0)


def test_an_instant_for_one_offs_is_one_that_the_api_reads() -> None:
    due = datetime(2026, 11, 18, 23, 59, 58, tzinfo=UTC)
    assert parse_instant(due.isoformat(), "UTC", field="schedule") == due
