"""docs/schema.md says what the code does."""

from __future__ import annotations

import struct
from datetime import datetime
from itertools import accumulate

import pytest

from mainspring.schema import messages
from mainspring.schema.ids import RunKey, format_job_id, format_run_id, parse_job_id, parse_run_id
from mainspring.schema.messages import _BACKOFFS, _BODY, _MISSED_POLICIES, _OVERLAPS, _PREFIX
from mainspring.schema.partitions import PARENTS
from mainspring.schema.sharding import shard_of, splitmix64
from mainspring.schema.states import Outcome
from tests.unit.schema.documentation import rows


def test_the_shard_vectors_are_true() -> None:
    vectors = rows("job id", "splitmix64", "of 64", "of 100")
    assert len(vectors) >= 8
    for row in vectors:
        job_id = int(row[0])
        assert row[1:] == [
            f"{splitmix64(job_id):#018x}",
            str(shard_of(job_id, 64)),
            str(shard_of(job_id, 100)),
        ]


def test_the_ids_are_true() -> None:
    examples = rows("inside", "outside")
    assert {outside[:2] for _, outside in examples} == {"j_", "r_"}
    for inside, outside in examples:
        job_id, *rest = inside.split(", ")
        if rest:
            key = RunKey(int(job_id), datetime.fromisoformat(rest[0]), int(rest[1]))
            assert format_run_id(key) == outside
            assert parse_run_id(outside) == key
        else:
            assert format_job_id(int(job_id)) == outside
            assert parse_job_id(outside) == int(job_id)


def test_the_outcome_codes_are_true() -> None:
    codes = rows("code", "word", "meaning")
    assert [(int(code), word) for code, word, _ in codes] == [(each.value, each.word) for each in Outcome]


@pytest.mark.parametrize(("layout", "field"), [(_PREFIX, "prefix field"), (_BODY, "body field")])
def test_the_offsets_are_true(layout: struct.Struct, field: str) -> None:
    fields = [row for row in rows("at", "bytes", field, "") if row[1]]
    sizes = [struct.calcsize(f">{code}") for code in layout.format.removeprefix(">")]
    assert [int(row[1]) for row in fields] == sizes
    assert [int(row[0]) for row in fields] == [0, *accumulate(sizes)][:-1]


def test_the_policy_codes_are_true() -> None:
    said = {row[2]: row[3] for row in rows("at", "bytes", "body field", "")}
    codes = {"missed window": _MISSED_POLICIES, "overlap": _OVERLAPS, "backoff": _BACKOFFS}
    for field, words in codes.items():
        assert said[field] == ", ".join(f"{code} `{word}`" for code, word in enumerate(words))
    assert said["version"].partition(";")[0] == str(messages.BODY_VERSION)


def test_the_tables_cut_by_day_are_the_parents() -> None:
    by_day = {table for table, what in rows("table", "one row is") if what.endswith("by day")}
    assert by_day == set(PARENTS)
