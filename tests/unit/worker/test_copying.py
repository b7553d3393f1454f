"""The bytes of a binary COPY, read by hand as Postgres's manual describes them."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from datetime import UTC, datetime

from mainspring.schema.messages import Message
from mainspring.worker.copying import RUN_COLUMNS, encode_runs, stream
from tests.unit.worker.runs import message

SIGNATURE = b"PGCOPY\n\xff\r\n\0"
EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
SIZES = {"job_id": 8, "scheduled_at": 8, "claim_id": 8, "position": 4, "attempt": 2}


class Reader:
    """Takes big-endian numbers off the front."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def bytes(self, size: int) -> bytes:
        taken, self.data = self.data[:size], self.data[size:]
        assert len(taken) == size
        return taken

    def integer(self, size: int) -> int:
        return int.from_bytes(self.bytes(size), "big", signed=True)


def read(data: bytes) -> list[dict[str, int]]:
    """Signature, flags and an empty extension; rows of lengths and values; -1, and nothing after it."""
    reader = Reader(data)
    assert reader.bytes(11) == SIGNATURE
    assert reader.integer(4) == 0
    assert reader.integer(4) == 0
    rows = []
    while (columns := reader.integer(2)) != -1:
        assert columns == len(RUN_COLUMNS)
        row = {}
        for name in RUN_COLUMNS:
            assert reader.integer(4) == SIZES[name]
            row[name] = reader.integer(SIZES[name])
        rows.append(row)
    assert reader.data == b""
    return rows


def encoded(messages: Sequence[Message], claim_id: int = 77) -> list[dict[str, int]]:
    return read(encode_runs(messages, claim_id))


def test_each_run_is_a_row_with_its_position_counted_from_zero() -> None:
    runs = [message(11), message(12, attempt=2), message(13, attempt=32_767)]
    rows = encoded(runs)
    assert [row["job_id"] for row in rows] == [11, 12, 13]
    assert [row["attempt"] for row in rows] == [1, 2, 32_767]
    assert [row["position"] for row in rows] == [0, 1, 2]
    assert {row["claim_id"] for row in rows} == {77}


def test_instants_are_counted_in_microseconds_since_2000() -> None:
    instant = datetime(2026, 11, 18, 12, 0, 0, 123_457, tzinfo=UTC)
    unix = (instant - datetime(1970, 1, 1, tzinfo=UTC)) // (instant.resolution)
    [row] = encoded([message()._replace(scheduled_at=unix)])
    assert row["scheduled_at"] == (instant - EPOCH) // instant.resolution


def test_an_instant_before_2000_is_negative() -> None:
    [row] = encoded([message()._replace(scheduled_at=0)])
    assert row["scheduled_at"] == -946_684_800_000_000


def test_the_largest_ids_fit() -> None:
    [row] = encoded([message(2**63 - 1)], claim_id=2**63 - 1)
    assert row["job_id"] == row["claim_id"] == 2**63 - 1


def test_no_runs_are_a_header_and_a_trailer() -> None:
    assert encode_runs([], 1) == SIGNATURE + struct.pack(">ii", 0, 0) + struct.pack(">h", -1)


async def test_the_stream_is_the_bytes_as_they_are() -> None:
    data = encode_runs([message()], 1)
    assert b"".join([part async for part in stream(data)]) == data
