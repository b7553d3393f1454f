"""Runs as Postgres's binary COPY wants them: one `pack` per row, nothing else in the hot second."""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator, Iterable

from mainspring.schema.messages import Message

RUN_COLUMNS = ("job_id", "scheduled_at", "claim_id", "position", "attempt")

_HEADER = b"PGCOPY\n\xff\r\n\x00" + struct.pack(">ii", 0, 0)
_TRAILER = struct.pack(">h", -1)
# The number of columns, then each value behind its length: bigint, timestamptz, bigint, integer, smallint.
_ROW = struct.Struct(">hiqiqiqiiih")
_POSTGRES_EPOCH = 946_684_800_000_000  # 2000-01-01 in microseconds since 1970


def encode_runs(messages: Iterable[Message], claim_id: int) -> bytes:
    """The rows of one claim, positions counted from 0."""
    pack = _ROW.pack
    rows = [
        pack(
            5, 8, message.job.job_id, 8, message.scheduled_at - _POSTGRES_EPOCH, 8, claim_id, 4, position,
            2, message.attempt,
        )
        for position, message in enumerate(messages)
    ]  # fmt: skip
    return b"".join((_HEADER, *rows, _TRAILER))


async def stream(data: bytes) -> AsyncIterator[bytes]:
    """What `copy_to_table` takes as a source."""
    yield data
