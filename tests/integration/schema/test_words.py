"""The words and codes that stand twice, in SQL and in Python, are the same."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pytest

from mainspring.schedule.dst import Gap, Repeat
from mainspring.schema.states import (
    HIGHEST_PRIORITY,
    LOWEST_PRIORITY,
    RECURRING,
    Backoff,
    DeadReason,
    JobKind,
    JobStatus,
    Lane,
    LogLevel,
    MissedPolicy,
    OnFailure,
    Outcome,
    Overlap,
    TimerCause,
    check_pool,
)
from tests.integration.schema.rows import Connection, insert
from tests.unit.schema.documentation import rows
from tests.unit.schema.test_states import NOT_POOLS, POOLS

NOT_A_FAILURE = {Outcome.PENDING, Outcome.SUCCEEDED, Outcome.VOID}

# Every CHECK against a list of words, by its name.
WORDS: dict[str, Iterable[str]] = {
    "cadences_kind_check": RECURRING,
    "cadences_dst_gap_check": Gap,
    "cadences_dst_repeat_check": Repeat,
    "jobs_status_check": JobStatus,
    "jobs_kind_check": JobKind,
    "jobs_check": RECURRING,  # has a cadence
    "jobs_check5": [JobStatus.COMPLETED, JobStatus.DELETED],  # has closed_at
    "jobs_missed_window_check": MissedPolicy,
    "jobs_overlap_check": Overlap,
    "jobs_retry_backoff_check": Backoff,
    "jobs_on_failure_check": OnFailure,
    "timers_cause_check": TimerCause,
    "workers_lanes_check": Lane,
    "failures_status_check": [outcome.word for outcome in Outcome if outcome not in NOT_A_FAILURE],
    # Nothing in Python names these yet; whoever does, puts the enum here.
    "api_keys_role_check": ["viewer", "operator", "admin"],
    "dead_letters_reason_check": DeadReason,
    "run_logs_level_check": LogLevel,
}


async def definitions(connection: Connection) -> dict[str, str]:
    """The CHECKs of all tables but the days, whose checks are copies."""
    found = await connection.fetch(
        "SELECT conname, pg_get_constraintdef(pg_constraint.oid) AS definition FROM pg_constraint "
        "JOIN pg_class ON pg_class.oid = conrelid WHERE contype = 'c' AND NOT relispartition"
    )
    return {row["conname"]: row["definition"] for row in found}


async def test_every_list_of_words_in_sql_is_the_one_in_python(undone: Connection) -> None:
    in_sql = {
        name: set(re.findall(r"'([^']*)'::text", definition))
        for name, definition in (await definitions(undone)).items()
        if re.search(r"ARRAY\['", definition)
    }
    assert in_sql == {name: set(map(str, words)) for name, words in WORDS.items()}


async def test_outcome_codes_mean_the_same_in_sql(undone: Connection) -> None:
    found = await undone.fetch(
        "SELECT code, outcome_word(code) AS word FROM generate_series(-1, 256) AS code"
    )
    assert {row["code"]: row["word"] for row in found if row["word"]} == {
        outcome.value: outcome.word for outcome in Outcome
    }


async def test_a_claim_takes_the_known_outcome_codes_and_no_others(undone: Connection) -> None:
    accepted = "SELECT btrim(set_byte('\\x00', 0, code), $1) = '' FROM generate_series(0, 255) AS code"
    definition = (await definitions(undone))["claims_outcomes_check"]
    [known] = re.findall(r"'\\x([0-9a-f]+)'::bytea", definition)
    found = await undone.fetch(accepted, bytes.fromhex(known))
    assert [code for code, (row,) in enumerate(found) if row] == [outcome.value for outcome in Outcome]


async def test_priorities_have_the_same_ends(undone: Connection) -> None:
    definition = (await definitions(undone))["jobs_priority_check"]
    assert re.findall(r"[0-9]+", definition) == [str(LOWEST_PRIORITY), str(HIGHEST_PRIORITY)]


@pytest.mark.parametrize("table", ["jobs", "workers"])
async def test_sql_and_python_agree_on_what_a_pool_is(undone: Connection, table: str) -> None:
    definition = (await definitions(undone))[f"{table}_pool_check"]
    expression = definition.removeprefix("CHECK ").replace("pool", "$1::text")
    assert [check_pool(pool) for pool in POOLS] == POOLS
    for pool in POOLS + NOT_POOLS:
        assert await undone.fetchval(f"SELECT {expression}", pool) == (pool in POOLS), pool


async def test_a_job_may_have_every_word(undone: Connection) -> None:
    columns = {
        "missed_window": MissedPolicy,
        "overlap": Overlap,
        "retry_backoff": Backoff,
        "on_failure": OnFailure,
    }
    number = 0
    for column, words in columns.items():
        for word in words:
            number += 1
            assert (await insert(undone, "jobs", id=number, **{column: word}))[column] == word


async def test_the_documentation_names_every_table_and_no_other(undone: Connection) -> None:
    tables = await undone.fetch(
        "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace "
        "AND relkind IN ('r', 'p') AND NOT relispartition"
    )
    assert sorted(name for name, _ in rows("table", "one row is")) == sorted(row["relname"] for row in tables)
