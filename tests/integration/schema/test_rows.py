"""What rows tell: who changed last, and how a run ended."""

from __future__ import annotations

from datetime import timedelta

import pytest

from mainspring.schema.states import Outcome
from tests.integration.schema.rows import CLAIM, NOON, Connection, insert


@pytest.mark.parametrize("table", ["jobs", "timers"])
async def test_an_insert_and_every_update_say_which_transaction_it_was(
    undone: Connection, table: str
) -> None:
    now = await undone.fetchval("SELECT pg_current_xact_id()")
    assert (await insert(undone, table))["changed"] == now
    await undone.execute(f"DELETE FROM {table}")
    columns = await undone.fetch(
        "SELECT attname FROM pg_attribute WHERE attrelid = $1::text::regclass "
        "AND attnum > 0 AND NOT attisdropped AND attidentity = ''",
        table,
    )
    assert {"changed", "job_id" if table == "timers" else "id"} < {row["attname"] for row in columns}
    for (column,) in columns:
        await insert(undone, table, changed=3)
        updated = await undone.fetchval(f"UPDATE {table} SET {column} = {column} RETURNING changed")
        assert updated == now, column
        await undone.execute(f"DELETE FROM {table}")


async def test_an_update_cannot_say_another_transaction(undone: Connection) -> None:
    await insert(undone, "jobs", changed=3)
    changed = await undone.fetchval("UPDATE jobs SET changed = '4' RETURNING changed")
    assert changed == await undone.fetchval("SELECT pg_current_xact_id()")


async def test_history_shows_each_outcome_by_its_word(undone: Connection) -> None:
    await insert(undone, "claims", outcomes=bytes(Outcome))
    for outcome in Outcome:
        await insert(undone, "runs", job_id=outcome + 1, position=outcome.value)
    rows = await undone.fetch("SELECT job_id, status FROM run_history ORDER BY job_id")
    assert [tuple(row) for row in rows] == [(outcome + 1, outcome.word) for outcome in Outcome]


async def test_history_shows_start_and_end_of_each_position(undone: Connection) -> None:
    await insert(
        undone,
        "claims",
        claimed_at=NOON,
        outcomes=bytes([Outcome.SUCCEEDED, Outcome.PENDING, Outcome.MISSED]),
        started_ms=[5, 1500, None],
        ended_ms=[3_600_005, None, None],
    )
    for position in range(3):
        await insert(undone, "runs", job_id=position + 1, position=position)
    rows = await undone.fetch("SELECT started_at, ended_at FROM run_history ORDER BY job_id")
    milliseconds = timedelta(milliseconds=1)
    assert [tuple(row) for row in rows] == [
        (NOON + 5 * milliseconds, NOON + 3_600_005 * milliseconds),
        (NOON + 1500 * milliseconds, None),
        (None, None),
    ]


async def test_history_of_a_claim_that_was_never_flushed(undone: Connection) -> None:
    await insert(undone, "claims", claimed_at=NOON, outcomes=b"\x00")
    await insert(undone, "runs")
    [row] = await undone.fetch("SELECT * FROM run_history")
    assert dict(row) == {
        "job_id": 1,
        "scheduled_at": NOON,
        "attempt": 1,
        "status": "running",
        "worker_id": "worker-1",
        "claimed_at": NOON,
        "started_at": None,
        "ended_at": None,
        "error": None,
        "result": None,
        "claim_id": CLAIM,
        "position": 0,
    }


async def test_history_has_the_error_and_the_result_of_the_same_attempt(undone: Connection) -> None:
    await insert(undone, "claims", outcomes=bytes([Outcome.FAILED, Outcome.SUCCEEDED]))
    await insert(undone, "runs", attempt=1, position=0)
    await insert(undone, "runs", attempt=2, position=1)
    await insert(undone, "failures", attempt=1, error="no paper")
    await insert(undone, "results", attempt=2, value='{"pages": 3}')
    rows = await undone.fetch("SELECT attempt, status, error, result FROM run_history ORDER BY attempt")
    assert [tuple(row) for row in rows] == [
        (1, "failed", "no paper", None),
        (2, "succeeded", None, '{"pages": 3}'),
    ]


async def test_history_of_a_position_the_claim_does_not_have_is_unknown_not_an_error(
    undone: Connection,
) -> None:
    await insert(undone, "claims", outcomes=b"\x01")
    await insert(undone, "runs", position=1)
    assert await undone.fetchval("SELECT status FROM run_history") is None
