"""Messages that cannot become runs are kept as dead letters, and the partition goes on behind them."""

from __future__ import annotations

from datetime import timedelta

from mainspring.schema.states import DeadReason
from tests.integration.worker.apps import Recorder, app_of, nothing
from tests.integration.worker.bench import Bench

APP = app_of(nothing)


async def test_a_message_nobody_can_decode_is_kept_whole_and_the_partition_goes_on(bench: Bench) -> None:
    job, broken = await bench.job(), b"\x63 not one of ours"
    await bench.make_topic()
    async with bench.living(APP):
        await bench.publish(broken, await bench.raw(job), b"")
        await bench.until_ended(job)

        async def committed() -> bool:
            return await bench.committed() == 3

        await bench.until(committed)
    rows = await bench.fetch("SELECT body, reason, pool, job_id FROM dead_letters ORDER BY id")
    assert rows == [(broken, "unreadable", bench.name, None), (b"", "unreadable", bench.name, None)]
    error = await bench.value("SELECT error FROM dead_letters WHERE body = $1", broken)
    assert "shorter than the prefix" in error
    assert await bench.statuses(job) == [(0, 1, "succeeded")]


async def test_a_message_older_than_runs_are_kept_is_not_executed(bench: Bench) -> None:
    old, young = await bench.jobs(2, missed_window="RUN_ALL")
    recorder = Recorder()
    await bench.make_topic(retention_ms="-1", message_timestamp_before_max_ms=str(2**62))
    await bench.publish(await bench.raw(old), at=bench.now - timedelta(days=30, minutes=1))
    await bench.publish(await bench.raw(young), at=bench.now - timedelta(days=29, hours=23))
    async with bench.living(recorder.app, run_retention=timedelta(days=30)):
        await bench.until_ended(young)
    assert len(recorder.runs) == 1
    assert await bench.statuses(old) == []
    [letter] = await bench.letters.find(1)
    assert (letter.job_id, letter.scheduled_at, letter.attempt) == (old.id, bench.now, 1)
    assert letter.reason == DeadReason.EXPIRED
