"""Identifiers: one value, one spelling, and text that sorts as the numbers do."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.schema.errors import InvalidInput
from mainspring.schema.ids import (
    MAXIMUM_ID,
    MAXIMUM_MICROSECONDS,
    JobIds,
    RunKey,
    first_claim_id,
    format_job_id,
    format_run_id,
    from_microseconds,
    new_claim_id,
    parse_job_id,
    parse_run_id,
    to_microseconds,
)
from mainspring.schema.states import MAXIMUM_ATTEMPT

MIDNIGHT = datetime(2026, 11, 18, tzinfo=UTC)
LAST_INSTANT = datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)

job_ids = st.integers(1, MAXIMUM_ID)
keys = st.builds(
    RunKey,
    job_ids,
    st.integers(0, MAXIMUM_MICROSECONDS).map(from_microseconds),
    st.integers(1, MAXIMUM_ATTEMPT),
)


@given(job_ids)
def test_a_job_id_reads_back(job_id: int) -> None:
    assert parse_job_id(format_job_id(job_id)) == job_id


@given(keys)
def test_a_run_id_reads_back(key: RunKey) -> None:
    assert parse_run_id(format_run_id(key)) == key


@given(job_ids, job_ids)
def test_job_ids_sort_as_their_numbers(one: int, other: int) -> None:
    assert (format_job_id(one) < format_job_id(other)) == (one < other)


@given(keys, keys)
def test_run_ids_sort_as_their_keys(one: RunKey, other: RunKey) -> None:
    assert (format_run_id(one) < format_run_id(other)) == (one < other)


@given(keys, keys)
def test_run_ids_that_share_key_parts_sort_as_their_keys(one: RunKey, other: RunKey) -> None:
    for shared in ({"job_id": one.job_id}, {"job_id": one.job_id, "scheduled_at": one.scheduled_at}):
        near = other._replace(**shared)
        assert (format_run_id(one) < format_run_id(near)) == (one < near)


@given(st.text(alphabet="0123456789abcdefghjkmnpqrstvwxyzILOU_j- \u0660", min_size=1, max_size=16))
def test_what_parses_is_the_one_spelling(body: str) -> None:
    for text in (body, f"j_{body}", f"j_{body:0>13}"):
        try:
            job_id = parse_job_id(text)
        except InvalidInput:
            continue
        assert format_job_id(job_id) == text


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("", "'' is not j_ and 13 characters"),
        ("j_", "'j_' is not j_ and 13 characters"),
        ("0000000000001", "is not j_ and 13 characters"),
        ("J_0000000000001", "is not j_ and 13 characters"),
        ("j-0000000000001", "is not j_ and 13 characters"),
        ("r_0000000000001", "is not j_ and 13 characters"),
        ("j_000000000001", "is not j_ and 13 characters"),
        ("j_00000000000001", "is not j_ and 13 characters"),
        ("j_0000000000001\n", "is not j_ and 13 characters"),
        (" j_0000000000001", "is not j_ and 13 characters"),
        ("j_000000000000A", "'A' is not one of 0123456789abcdefghjkmnpqrstvwxyz"),
        ("j_000000000000i", "'i' is not one of"),
        ("j_000000000000l", "'l' is not one of"),
        ("j_000000000000o", "'o' is not one of"),
        ("j_000000000000u", "'u' is not one of"),
        ("j_000000000000\u0661", "is not one of"),
        ("j_000000000000 ", "' ' is not one of"),
        ("j_0000000000000", "0 is not in 1–2^63-1"),
        ("j_8000000000000", "9223372036854775808 is not in 1–2^63-1"),
        ("j_zzzzzzzzzzzzz", "is not in 1–2^63-1"),
    ],
)
def test_any_other_spelling_of_a_job_id_is_refused(text: str, rule: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_job_id(text)
    assert refused.value.field == "job_id"
    assert rule in refused.value.rule


@pytest.mark.parametrize(
    ("text", "field", "rule"),
    [
        ("r_", "run_id", "is not r_ and 28 characters"),
        ("j_0000000000001", "run_id", "is not r_ and 28 characters"),
        ("r_0000000000001000000000000001\n", "run_id", "is not r_ and 28 characters"),
        ("r_000000000000I000000000000001", "run_id", "'I' is not one of"),
        ("r_0000000000001-00000000000001", "run_id", "'-' is not one of"),
        ("r_0000000000000000000000000001", "job_id", "0 is not in 1–2^63-1"),
        ("r_8000000000000000000000000001", "job_id", "is not in 1–2^63-1"),
        ("r_000000000000171241k676r00001", "run_id", "is not between the years 1970 and 9999"),
        ("r_0000000000001zzzzzzzzzzzz001", "run_id", "is not between the years 1970 and 9999"),
        ("r_0000000000001000000000000000", "attempt", "0 is not in 1–32767"),
    ],
)
def test_any_other_spelling_of_a_run_id_is_refused(text: str, field: str, rule: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_run_id(text)
    assert refused.value.field == field
    assert rule in refused.value.rule


def test_the_ends_of_the_ranges_are_inside() -> None:
    assert format_job_id(1) == "j_0000000000001"
    assert format_job_id(MAXIMUM_ID) == "j_7zzzzzzzzzzzz"
    first = RunKey(1, from_microseconds(0), 1)
    last = RunKey(MAXIMUM_ID, LAST_INSTANT, MAXIMUM_ATTEMPT)
    assert parse_run_id(format_run_id(first)) == first
    assert parse_run_id(format_run_id(last)) == last


@pytest.mark.parametrize(
    ("key", "field"),
    [
        (RunKey(0, MIDNIGHT, 1), "job_id"),
        (RunKey(MAXIMUM_ID + 1, MIDNIGHT, 1), "job_id"),
        (RunKey(1, datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC), 1), "scheduled_at"),
        (RunKey(1, datetime(2026, 11, 18), 1), "instant"),  # noqa: DTZ001  (that is the fault)
        (RunKey(1, MIDNIGHT, 0), "attempt"),
        (RunKey(1, MIDNIGHT, MAXIMUM_ATTEMPT + 1), "attempt"),
    ],
)
def test_a_key_out_of_range_has_no_run_id(key: RunKey, field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        format_run_id(key)
    assert refused.value.field == field


def test_a_run_id_does_not_depend_on_the_zone_the_instant_is_written_in() -> None:
    elsewhere = MIDNIGHT.astimezone(timezone(timedelta(hours=13, minutes=45)))
    assert format_run_id(RunKey(7, elsewhere, 1)) == format_run_id(RunKey(7, MIDNIGHT, 1))


@given(st.integers(0, MAXIMUM_MICROSECONDS))
def test_microseconds_are_exact_both_ways(microseconds: int) -> None:
    instant = from_microseconds(microseconds)
    assert instant.utcoffset() == timedelta(0)
    assert to_microseconds(instant) == microseconds


def test_the_last_microsecond_is_the_end_of_the_year_9999() -> None:
    assert from_microseconds(MAXIMUM_MICROSECONDS) == LAST_INSTANT


def test_new_ids_are_in_range_and_never_the_same() -> None:
    ids = JobIds()
    taken = [ids.take() for _ in range(1000)] + list(ids.take_many(200_000)) + [ids.take()]
    assert len(set(taken)) == len(taken)
    assert min(taken) >= 1
    assert max(taken) <= MAXIMUM_ID


def test_new_ids_are_consecutive_within_a_range() -> None:
    ids = JobIds()
    first = ids.take()
    assert list(ids.take_many(3)) == [first + 1, first + 2, first + 3]
    assert ids.take() == first + 4


def test_a_range_that_cannot_hold_a_batch_is_left_for_a_new_one() -> None:
    ids = JobIds()
    first = ids.take()
    batch = ids.take_many(65_536)
    assert len(batch) == 65_536
    assert first + 1 != batch[0]


def test_the_highest_and_the_lowest_draw_stay_in_range(monkeypatch: pytest.MonkeyPatch) -> None:
    for size in (1, 65_536, 1_000_000):
        monkeypatch.setattr("secrets.randbelow", lambda limit: limit - 1)
        assert JobIds().take_many(size)[-1] <= MAXIMUM_ID
        monkeypatch.setattr("secrets.randbelow", lambda limit: 0)
        assert JobIds().take_many(size)[0] == 1


def test_two_processes_draw_different_ranges() -> None:
    one, other = JobIds(), JobIds()
    assert abs(one.take() - other.take()) > 65_536  # by chance false once in 7e13 times


FORK = """
import os
from mainspring.schema.ids import JobIds
ids = JobIds()
print(ids.take(), flush=True)
if child := os.fork():
    os.waitpid(child, 0)  # the child speaks first: two writers would mix their lines
print(ids.take(), flush=True)
"""


def test_a_fork_does_not_go_on_in_its_parents_range() -> None:
    # In a process of its own: this one may have threads, which do not survive a fork.
    done = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, check=True)
    first, childs, next_of_parent = map(int, done.stdout.split())
    assert next_of_parent == first + 1
    assert abs(childs - first) > 65_536


def test_claim_ids_grow_with_the_millisecond_and_differ_within_it() -> None:
    later = MIDNIGHT + timedelta(milliseconds=1)
    same = {new_claim_id(MIDNIGHT) for _ in range(100)}
    assert len(same) > 90
    assert first_claim_id(MIDNIGHT) <= min(same)
    assert max(same) < first_claim_id(later) <= new_claim_id(later)


def test_claim_ids_fit_a_bigint_until_the_year_2109() -> None:
    assert 0 < first_claim_id(datetime(2109, 1, 1, tzinfo=UTC)) <= MAXIMUM_ID
