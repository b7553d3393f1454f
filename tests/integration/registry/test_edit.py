"""What an edit moves, and what it must leave alone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mainspring.schema.errors import InvalidInput, NameTaken, NotFound, VersionMismatch
from mainspring.schema.messages import decode_job
from tests.integration.registry.bench import Bench

CRON = {"name": "a", "schedule": "30 2 * * *", "timezone": "Europe/London"}
OTHER_SCHEDULES: list[dict[str, Any]] = [
    {"schedule": "31 2 * * *"},
    {"timezone": "Asia/Tokyo"},
    {"dst": {"gap": "skip"}},
    {"dst": {"repeat": "second"}},
    {"schedule": "every 5m"},
    {"schedule": "2027-01-01T00:00:00Z"},
]
SAME_SCHEDULE: list[dict[str, Any]] = [
    {"payload": {"x": 1}},
    {"name": "b"},
    {"handler": "h"},
    {"pool": "mail"},
    {"priority": "high"},
    {"idempotency_key_template": "{{week}}"},
    {"max_retries": 0},
    {"retry_backoff": "none"},
    {"missed_window": "RUN_ALL"},
    {"max_missed": 3},
    {"grace_seconds": 5},
    {"timeout_seconds": 5},
    {"overlap": "skip"},
    {"jitter_seconds": 5},
    {"starts_at": "2026-01-01T00:00:00Z"},
    {"ends_at": "2036-01-01T00:00:00Z"},
    {"labels": {"k": "v"}},
    {"schedule": "30 02 * * *"},  # another spelling of the same
]


@pytest.mark.parametrize("changes", SAME_SCHEDULE, ids=str)
async def test_an_edit_of_anything_but_the_schedule_keeps_valid_from(
    bench: Bench, changes: dict[str, Any]
) -> None:
    """Moving it would lose an occurrence that is due and not yet fired."""
    job = await bench.create(**CRON)
    before = await bench.facts(job)
    edited = await bench.edit(job, **changes)
    after = await bench.facts(job)
    assert edited.definition == job.definition.with_changes(changes)
    assert (after.version, edited.version) == (2, 2)
    assert after.valid_from == before.valid_from == edited.valid_from
    assert after.updated_at > before.updated_at
    assert after.changed > before.changed
    assert after.changed % 2**32 == after.written_by
    assert decode_job(await bench.value("SELECT body FROM jobs WHERE id = $1", job.id)).version == 2


@pytest.mark.parametrize("changes", OTHER_SCHEDULES, ids=str)
async def test_an_edit_of_the_schedule_moves_valid_from(bench: Bench, changes: dict[str, Any]) -> None:
    job = await bench.create(**CRON)
    before = await bench.facts(job)
    edited = await bench.edit(job, **changes)
    after = await bench.facts(job)
    assert edited.definition == job.definition.with_changes(changes)
    assert after.version == 2
    assert after.valid_from == after.updated_at > before.valid_from
    assert after.changed > before.changed


async def test_an_edit_of_the_phase_moves_valid_from(bench: Bench) -> None:
    job = await bench.create(name="a", schedule="every 1h")
    edited = await bench.edit(job, phase_seconds=60)
    assert edited.valid_from > job.valid_from
    assert edited.cadence_id != job.cadence_id


async def test_valid_from_lies_after_whoever_held_the_job_before(bench: Bench) -> None:
    """An edit that waited for the row must not claim the time in which it waited."""
    job = await bench.create(**CRON)
    async with bench.holding("SELECT FROM jobs WHERE id = $1 FOR UPDATE", job.id) as holder:
        edit = asyncio.create_task(bench.edit(job, schedule="@hourly"))
        await bench.until_waiting(holder)
        released_at = await holder.fetchval("SELECT clock_timestamp()")
    assert (await edit).valid_from > released_at


@pytest.mark.parametrize(
    "changes", [{}, {"timeout_seconds": 300}, {"schedule": "30 2 * * *"}, {"pool": None}]
)
async def test_an_edit_that_changes_nothing_writes_nothing(bench: Bench, changes: dict[str, Any]) -> None:
    job = await bench.create(**CRON)
    before = await bench.facts(job)
    assert (await bench.edit(job, **changes)).version == 1
    assert await bench.facts(job) == before


async def test_an_edit_can_insist_on_a_version(bench: Bench) -> None:
    job = await bench.create(**CRON)
    await bench.registry.edit(bench.tenant, job.id, {"payload": 1}, expected_version=1)
    with pytest.raises(VersionMismatch) as refusal:
        await bench.registry.edit(bench.tenant, job.id, {"payload": 2}, expected_version=1)
    assert (refusal.value.expected, refusal.value.actual) == (1, 2)
    assert (await bench.registry.get(bench.tenant, job.id)).definition.payload == 1


async def test_of_edits_that_insist_on_one_version_one_wins(bench: Bench) -> None:
    job = await bench.create(**CRON)
    answers = await asyncio.gather(
        *(
            bench.registry.edit(bench.tenant, job.id, {"payload": number}, expected_version=1)
            for number in range(1, 11)
        ),
        return_exceptions=True,
    )
    winners = [answer for answer in answers if not isinstance(answer, BaseException)]
    assert len(winners) == 1
    assert sum(isinstance(answer, VersionMismatch) for answer in answers) == 9
    assert (await bench.registry.get(bench.tenant, job.id)).definition == winners[0].definition


async def test_edits_of_different_fields_at_once_both_count(bench: Bench) -> None:
    job = await bench.create(**CRON)
    fields: list[dict[str, Any]] = [
        {"payload": 1},
        {"priority": 9},
        {"timeout_seconds": 9},
        {"schedule": "@hourly"},
        {"pool": "p"},
    ]
    await asyncio.gather(*(bench.edit(job, **change) for change in fields))
    edited = await bench.registry.get(bench.tenant, job.id)
    assert edited.version == 6
    assert (
        edited.definition.as_mapping().items() >= {**fields[0], **fields[1], **fields[2], **fields[4]}.items()
    )
    assert edited.definition.schedule == "@hourly"


@pytest.mark.parametrize(
    "changes", [{"timeout_seconds": 0}, {"schedule": "61 * * * *"}, {"after": ["nobody"]}, {"colour": "red"}]
)
async def test_a_refused_edit_changes_nothing(bench: Bench, changes: dict[str, Any]) -> None:
    job = await bench.create(**CRON)
    before = await bench.facts(job)
    with pytest.raises(InvalidInput):
        await bench.edit(job, payload=1, **changes)
    assert await bench.facts(job) == before


async def test_a_name_of_another_job_is_refused(bench: Bench) -> None:
    await bench.create(name="b", schedule="@daily")
    job = await bench.create(**CRON)
    with pytest.raises(NameTaken) as refusal:
        await bench.edit(job, name="b")
    assert refusal.value.names == ("b",)
    assert (await bench.facts(job)).version == 1


async def test_a_longer_jitter_is_known_to_the_cadence(bench: Bench) -> None:
    job = await bench.create(name="a", schedule="*/29 * * * *", jitter_seconds=10)
    edited = await bench.edit(job, jitter_seconds=240)
    assert edited.cadence_id == job.cadence_id
    assert await bench.value("SELECT max_jitter FROM cadences WHERE id = $1", job.cadence_id) == 240
    await bench.edit(job, jitter_seconds=1)
    assert await bench.value("SELECT max_jitter FROM cadences WHERE id = $1", job.cadence_id) == 240


async def test_a_deleted_job_cannot_be_edited(bench: Bench) -> None:
    job = await bench.create(**CRON)
    await bench.registry.delete(bench.tenant, job.id)
    with pytest.raises(NotFound) as refusal:
        await bench.edit(job, payload=1)
    assert refusal.value.key == job.job_id


async def test_an_edit_of_a_paused_job_leaves_it_paused(bench: Bench) -> None:
    job = await bench.create(**CRON)
    await bench.registry.pause(bench.tenant, job.id, reason="holiday")
    edited = await bench.edit(job, schedule="@hourly")
    assert (edited.status, edited.paused_reason, edited.version) == ("paused", "holiday", 3)
