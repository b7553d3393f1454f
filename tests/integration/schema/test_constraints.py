"""What Postgres itself refuses, whoever writes; each refusal by the constraint that is meant to refuse it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest

from mainspring.schema.cluster import _SHARDED
from mainspring.schema.states import MAXIMUM_ATTEMPT
from tests.integration.schema.rows import NOON, VALID, Connection, insert

# The driver sends these, and only these, as Postgres's infinities.
FOREVER = datetime.max  # noqa: DTZ901
NEVER = datetime.min  # noqa: DTZ901
BEFORE_1970 = datetime(1969, 12, 31, tzinfo=UTC)
LATER = NOON + timedelta(seconds=1)

# Table, what is wrong with the row, the constraint that says so.
WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("tenants", {"name": "Anna"}, "tenants_name_check"),
    ("tenants", {"name": "default"}, "tenants_name_key"),
    ("tenants", {"maximum_jobs": -1}, "tenants_maximum_jobs_check"),
    ("tenants", {"maximum_running": 0}, "tenants_maximum_running_check"),
    ("tenants", {"requests_per_second": 0}, "tenants_requests_per_second_check"),
    ("api_keys", {"tenant_id": 77}, "api_keys_tenant_id_fkey"),
    ("api_keys", {"name": ""}, "api_keys_name_check"),
    ("api_keys", {"role": "root"}, "api_keys_role_check"),
    ("api_keys", {"secret_hash": b"short"}, "api_keys_secret_hash_check"),
    ("audit", {"tenant_id": 77}, "audit_tenant_id_fkey"),
    ("audit", {"actor": ""}, "audit_actor_check"),
    ("audit", {"action": ""}, "audit_action_check"),
    ("audit", {"subject": ""}, "audit_subject_check"),
    ("shards", {"shard": -1}, "shards_shard_check"),
    ("shards", {"shard": 0}, "shards_pkey"),
    ("shards", {"epoch": -1}, "shards_epoch_check"),
    ("shards", {"fired_through": FOREVER}, "shards_fired_through_check"),
    ("shards", {"leader": ""}, "shards_leader_check"),
    ("shards", {"timeline": "00000001 "}, "shards_timeline_check"),
    ("cadences", {"shard": 8}, "cadences_shard_exists"),
    ("cadences", {"shard": -1}, "cadences_shard_exists"),
    ("cadences", {"kind": "at"}, "cadences_kind_check"),
    ("cadences", {"expression": ""}, "cadences_expression_check"),
    ("cadences", {"timezone": ""}, "cadences_timezone_check"),
    ("cadences", {"dst_gap": "both"}, "cadences_dst_gap_check"),
    ("cadences", {"dst_repeat": "run_after"}, "cadences_dst_repeat_check"),
    ("cadences", {"kind": "every", "phase": -1}, "cadences_check"),
    ("cadences", {"kind": "cron", "phase": 1}, "cadences_check"),
    ("cadences", {"max_jitter": -1}, "cadences_max_jitter_check"),
    ("jobs", {"id": 0}, "jobs_id_check"),
    ("jobs", {"id": -1}, "jobs_id_check"),
    ("jobs", {"tenant_id": 77}, "jobs_tenant_id_fkey"),
    ("jobs", {"shard": 8}, "jobs_shard_exists"),
    ("jobs", {"shard": -1}, "jobs_shard_exists"),
    ("jobs", {"name": ""}, "jobs_name_check"),
    ("jobs", {"name": "n" * 201}, "jobs_name_check"),
    ("jobs", {"status": "sleeping"}, "jobs_status_check"),
    ("jobs", {"status": "ACTIVE"}, "jobs_status_check"),
    ("jobs", {"version": 0}, "jobs_version_check"),
    ("jobs", {"kind": "once", "run_at": None}, "jobs_kind_check"),
    ("jobs", {"kind": "cron", "run_at": None}, "jobs_check"),  # without a cadence
    ("jobs", {"kind": "after"}, "jobs_check1"),  # with an instant
    ("jobs", {"run_at": None}, "jobs_check1"),  # `at` without one
    ("jobs", {"timezone": ""}, "jobs_timezone_check"),
    ("jobs", {"starts_at": NOON, "ends_at": NOON}, "jobs_check2"),
    ("jobs", {"jitter_seconds": -1}, "jobs_jitter_seconds_check"),
    ("jobs", {"jitter_seconds": 86_401}, "jobs_jitter_seconds_check"),
    ("jobs", {"handler": ""}, "jobs_handler_check"),
    ("jobs", {"handler": "h" * 201}, "jobs_handler_check"),
    ("jobs", {"pool": "a.b"}, "jobs_pool_check"),
    ("jobs", {"pool": "default\n"}, "jobs_pool_check"),
    ("jobs", {"priority": 10}, "jobs_priority_check"),
    ("jobs", {"priority": -1}, "jobs_priority_check"),
    ("jobs", {"missed_window": "RUN_TWICE"}, "jobs_missed_window_check"),
    ("jobs", {"max_missed": 0}, "jobs_max_missed_check"),
    ("jobs", {"grace_seconds": -1}, "jobs_grace_seconds_check"),
    ("jobs", {"overlap": "forbid"}, "jobs_overlap_check"),
    ("jobs", {"max_retries": -1}, "jobs_max_retries_check"),
    ("jobs", {"retry_backoff": "random"}, "jobs_retry_backoff_check"),
    ("jobs", {"timeout_seconds": 0}, "jobs_timeout_seconds_check"),
    ("jobs", {"idempotency_key_template": ""}, "jobs_idempotency_key_template_check"),
    ("jobs", {"on_failure": "fail"}, "jobs_on_failure_check"),
    ("jobs", {"labels": "[]"}, "jobs_labels_check"),
    ("jobs", {"body": b""}, "jobs_body_check"),
    ("jobs", {"body": bytes(1_000_001)}, "jobs_body_check"),
    ("jobs", {"paused_reason": "why"}, "jobs_check3"),  # but active
    ("jobs", {"resume_at": NOON}, "jobs_check4"),
    ("jobs", {"closed_at": NOON}, "jobs_check5"),
    ("jobs", {"status": "deleted"}, "jobs_check5"),  # since when?
    ("timers", {"shard": 8}, "timers_shard_exists"),
    ("timers", {"due_at": FOREVER}, "timers_due_at_check"),
    ("timers", {"due_at": NEVER}, "timers_due_at_check"),
    ("timers", {"job_id": 0}, "timers_job_id_check"),
    ("timers", {"scheduled_at": BEFORE_1970}, "timers_scheduled_at_check"),
    ("timers", {"scheduled_at": FOREVER}, "timers_scheduled_at_check"),
    ("timers", {"attempt": 0}, "timers_attempt_check"),
    ("timers", {"retries": -1}, "timers_retries_check"),
    ("timers", {"losses": -1}, "timers_losses_check"),
    ("timers", {"cause": "whim"}, "timers_cause_check"),
    ("ledger", {"shard": 8}, "ledger_shard_exists"),
    ("ledger", {"published": 0}, "ledger_published_check"),
    ("missed", {"gap_to": NOON}, "missed_check"),
    ("missed", {"skipped": 0}, "missed_skipped_check"),
    ("workers", {"id": "a b"}, "workers_id_check"),
    ("workers", {"id": "w" * 41}, "workers_id_check"),
    ("workers", {"pool": ""}, "workers_pool_check"),
    ("workers", {"lanes": []}, "workers_lanes_check"),
    ("workers", {"lanes": ["fast"]}, "workers_lanes_check"),
    ("workers", {"concurrency": 0}, "workers_concurrency_check"),
    ("workers", {"heartbeat": -1}, "workers_heartbeat_check"),
    ("claims", {"id": 0}, "claims_id_check"),
    ("claims", {"worker_id": ""}, "claims_worker_id_check"),
    ("claims", {"outcomes": b""}, "claims_outcomes_check"),
    ("claims", {"outcomes": b"\x0a"}, "claims_outcomes_check"),
    ("claims", {"outcomes": b"\x01\xff\x01"}, "claims_outcomes_check"),
    ("claims", {"started_ms": [5]}, "claims_check"),  # of two positions
    ("claims", {"ended_ms": [5, 6, 7]}, "claims_check1"),
    (
        "claims",
        {"tally_counts": [0], "tally_shards": [1], "tally_seconds": [NOON]},
        "claims_tally_counts_check",
    ),
    ("claims", {"tally_counts": [1], "tally_shards": [1]}, "claims_check2"),
    ("claims", {"tally_counts": [1], "tally_seconds": [NOON]}, "claims_check2"),
    ("runs", {"job_id": 0}, "runs_job_id_check"),
    ("runs", {"claim_id": 0}, "runs_claim_id_check"),
    ("runs", {"position": -1}, "runs_position_check"),
    ("runs", {"attempt": 0}, "runs_attempt_check"),
    ("failures", {"attempt": 0}, "failures_attempt_check"),
    ("failures", {"status": "succeeded"}, "failures_status_check"),
    ("results", {"attempt": 0}, "results_attempt_check"),
    ("results", {"value": '"' + "v" * 262_143 + '"'}, "results_value_check"),
    ("run_logs", {"attempt": 0}, "run_logs_attempt_check"),
    ("run_logs", {"line": -1}, "run_logs_line_check"),
    ("run_logs", {"level": "shout"}, "run_logs_level_check"),
    ("run_logs", {"message": "m" * 8193}, "run_logs_message_check"),
    ("effects", {"attempt": 0}, "effects_attempt_check"),
    ("dead_letters", {"attempt": 0}, "dead_letters_attempt_check"),
    ("dead_letters", {"pool": ""}, "dead_letters_pool_check"),
    ("dead_letters", {"reason": "bored"}, "dead_letters_reason_check"),
    ("dead_letters", {"fingerprint": ""}, "dead_letters_fingerprint_check"),
    ("dead_letters", {"tenant_id": None}, "dead_letters_check"),
    ("dead_letters", {"reason": "unreadable"}, "dead_letters_check1"),  # though its job is known
]


@pytest.mark.parametrize("table", VALID)
async def test_the_row_that_the_others_differ_from_is_accepted(undone: Connection, table: str) -> None:
    await insert(undone, table)


@pytest.mark.parametrize(
    ("table", "change", "constraint"),
    [pytest.param(*case, id=f"{case[0]}-{'-'.join(case[1])}-{number}") for number, case in enumerate(WRONG)],
)
async def test_a_wrong_row_is_refused(
    undone: Connection, table: str, change: dict[str, Any], constraint: str
) -> None:
    with pytest.raises(asyncpg.IntegrityConstraintViolationError) as refused:
        await insert(undone, table, **change)
    assert refused.value.constraint_name == constraint


async def test_the_highest_values_are_accepted(undone: Connection) -> None:
    await insert(undone, "jobs", priority=9, max_retries=32_767, body=bytes(1_000_000), jitter_seconds=86_400)
    await insert(undone, "runs", attempt=MAXIMUM_ATTEMPT)
    await insert(undone, "claims", outcomes=bytes(range(10)))


async def test_a_job_cannot_join_the_cadence_of_another_shard(undone: Connection) -> None:
    cadence = await insert(undone, "cadences", shard=3)
    member = {"kind": "cron", "run_at": None, "cadence_id": cadence["id"]}
    await insert(undone, "jobs", id=1, shard=3, **member)
    with pytest.raises(asyncpg.ForeignKeyViolationError) as refused:
        await insert(undone, "jobs", id=2, shard=4, **member)
    assert refused.value.constraint_name == "jobs_cadence_id_shard_fkey"


async def test_a_cadence_exists_once_per_shard(undone: Connection) -> None:
    await insert(undone, "cadences")
    await insert(undone, "cadences", shard=4)
    await insert(undone, "cadences", dst_gap="skip")
    with pytest.raises(asyncpg.UniqueViolationError):
        await insert(undone, "cadences")


async def test_a_name_is_taken_until_its_job_is_a_tombstone(undone: Connection) -> None:
    await insert(undone, "tenants", id=50)
    await insert(undone, "jobs", id=1, name="daily", status="deleted", closed_at=NOON)
    await insert(undone, "jobs", id=2, name="daily")
    await insert(undone, "jobs", id=3, name="daily", tenant_id=50)
    await insert(undone, "jobs", id=4)
    await insert(undone, "jobs", id=5)
    with pytest.raises(asyncpg.UniqueViolationError) as refused:
        await insert(undone, "jobs", id=6, name="daily", status="paused")
    assert refused.value.constraint_name == "jobs_by_name"


@pytest.mark.parametrize("table", ["runs", "failures", "results", "timers", "dead_letters"])
async def test_a_run_exists_once_per_attempt(undone: Connection, table: str) -> None:
    await insert(undone, table)
    await insert(undone, table, attempt=2)
    await insert(undone, table, scheduled_at=LATER)
    await insert(undone, table, job_id=2)
    with pytest.raises(asyncpg.UniqueViolationError):
        await insert(undone, table)


async def test_an_effect_exists_once_per_occurrence_whatever_the_attempt(undone: Connection) -> None:
    await insert(undone, "effects", attempt=1)
    with pytest.raises(asyncpg.UniqueViolationError):
        await insert(undone, "effects", attempt=2)


async def test_an_unreadable_message_is_a_dead_letter_without_a_run(undone: Connection) -> None:
    nobody = dict.fromkeys(("tenant_id", "job_id", "scheduled_at", "attempt"))
    await insert(undone, "dead_letters", reason="unreadable", **nobody)
    await insert(undone, "dead_letters", reason="unreadable", **nobody)
    with pytest.raises(asyncpg.CheckViolationError):
        await insert(undone, "dead_letters", reason="exhausted", **nobody)


async def test_a_job_does_not_depend_on_itself_nor_on_a_stranger(undone: Connection) -> None:
    await insert(undone, "jobs", id=1)
    await insert(undone, "jobs", id=2)
    await undone.execute("INSERT INTO dependencies VALUES (2, 1)")
    for child, parent, error in ((2, 2, "dependencies_check"), (2, 3, "dependencies_parent_id_fkey")):
        with pytest.raises(asyncpg.IntegrityConstraintViolationError) as refused:
            async with undone.transaction():
                await undone.execute("INSERT INTO dependencies VALUES ($1, $2)", child, parent)
        assert refused.value.constraint_name == error
    await undone.execute("DELETE FROM jobs WHERE id = 1")
    assert await undone.fetch("SELECT FROM dependencies") == []


@pytest.mark.parametrize(
    ("statement", "sentence"),
    [
        ("UPDATE cluster SET shards = 16", "cluster: the number of shards is written once"),
        ("DELETE FROM cluster", "cluster: the number of shards is written once"),
        ("TRUNCATE cluster", "cluster: the number of shards is written once"),
        ("UPDATE audit SET reason = 'another'", "audit: audit rows are never changed"),
        ("DELETE FROM audit", "audit: audit rows are never changed"),
        ("TRUNCATE audit", "audit: audit rows are never changed"),
        (
            "UPDATE shards SET fired_through = fired_through - interval '1 second' WHERE shard = 3",
            "shards: neither the mark nor the epoch moves back",
        ),
        (
            "UPDATE shards SET epoch = epoch - 1 WHERE shard = 3",
            "shards: neither the mark nor the epoch moves back",
        ),
        ("UPDATE cadences SET max_jitter = 29", "cadences: max_jitter only grows"),
    ],
)
async def test_what_is_written_once_or_only_grows(undone: Connection, statement: str, sentence: str) -> None:
    await insert(undone, "audit")
    await insert(undone, "cadences", max_jitter=30)
    await undone.execute("UPDATE shards SET epoch = 5")
    with pytest.raises(asyncpg.IntegrityConstraintViolationError) as refused:
        await undone.execute(statement)
    assert refused.value.message == sentence


async def test_forward_is_allowed(undone: Connection) -> None:
    await insert(undone, "cadences", max_jitter=30)
    await undone.execute("UPDATE cadences SET max_jitter = 31, next_at = now()")
    await undone.execute("UPDATE cadences SET max_jitter = 31, next_at = '-infinity'")
    moved = "UPDATE shards SET epoch = epoch + $1, fired_through = fired_through + $2 WHERE shard = 3"
    assert await undone.execute(moved, 1, timedelta(seconds=1)) == "UPDATE 1"
    assert await undone.execute(moved, 0, timedelta(0)) == "UPDATE 1"


@pytest.mark.parametrize("mark", ["infinity", "-infinity"])
async def test_a_mark_is_an_instant(undone: Connection, mark: str) -> None:
    with pytest.raises(asyncpg.IntegrityConstraintViolationError):
        await undone.execute(f"UPDATE shards SET fired_through = '{mark}' WHERE shard = 3")


async def test_there_is_one_cluster(undone: Connection) -> None:
    for only_row in ("true", "false"):
        with pytest.raises(asyncpg.IntegrityConstraintViolationError):
            async with undone.transaction():
                await undone.execute(f"INSERT INTO cluster (only_row, shards) VALUES ({only_row}, 8)")


async def test_a_new_cadence_is_looked_at_at_once(undone: Connection) -> None:
    await insert(undone, "cadences")
    assert await undone.fetchval("SELECT next_at = '-infinity' FROM cadences")


async def test_the_default_tenant_exists(undone: Connection) -> None:
    assert await undone.fetchval("SELECT id FROM tenants WHERE name = 'default'") == 1


async def test_every_table_with_a_shard_is_held_to_the_clusters_number(undone: Connection) -> None:
    """`shards` itself has exactly the cluster's rows; nobody else writes shard numbers."""
    tables = await undone.fetch(
        "SELECT relname FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid "
        "WHERE attname = 'shard' AND relkind IN ('r', 'p') AND NOT relispartition "
        "AND relnamespace = 'public'::regnamespace AND relname <> 'shards'"
    )
    assert {row["relname"] for row in tables} == set(_SHARDED)
    rows = await undone.fetch("SELECT shard FROM shards ORDER BY shard")
    assert [row["shard"] for row in rows] == list(range(8))
