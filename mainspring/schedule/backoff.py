"""How long a failed run waits before its next attempt. Pure: the same failure waits equally long anywhere.

    exponential   2^n s: 1 s, 2 s, 4 s, …, never more than an hour
    linear        10 s, 20 s, 30 s, …, never more than an hour
    fixed         10 s each time
    none          not at all: the next attempt is due at once

n is the number of retries spent before this failure. On top comes a jitter of up to a fifth of the wait: what
failed together, because something they all need was away, does not come back together. The cap is put on
before the jitter, or all who have reached it would return in one second again.

The jitter is a hash, not a die: a worker that repeats a flush after a lost answer, or a reaper that finishes
what a worker began, writes the very same timer. The hash is BLAKE2b with an 8-byte digest and the
personalisation `mainspringretry`, over job id, scheduled_at and n as big-endian integers of 8 bytes each.
Read as a big-endian number and divided by 2^64, it is the part of that fifth which is added. Vectors are in
docs/handlers.md and tested.
"""

from __future__ import annotations

import struct
from datetime import timedelta
from hashlib import blake2b

from mainspring.schema.states import Backoff

LONGEST_BACKOFF = timedelta(hours=1)
LARGEST_JITTER = 0.2
"""As a part of the wait it is added to."""

_STEP = timedelta(seconds=10)
_LARGEST_EXPONENT = 12  # 2^12 s is more than an hour; 2^1000 would be a number nobody can use
_KEY = struct.Struct(">qqq")


def retry_delay(backoff: Backoff, retries: int, job_id: int, scheduled_at: int) -> timedelta:
    """The wait before the next attempt, when `retries` were spent before this failure (0 at the first).

    `scheduled_at` is in microseconds, as in the message.
    """
    wait = min(_wait(backoff, retries), LONGEST_BACKOFF)
    return wait + wait * (LARGEST_JITTER * _fraction(job_id, scheduled_at, retries))


def _wait(backoff: Backoff, retries: int) -> timedelta:
    if backoff is Backoff.EXPONENTIAL:
        return timedelta(seconds=2 ** min(retries, _LARGEST_EXPONENT))
    if backoff is Backoff.LINEAR:
        return _STEP * (retries + 1)
    return _STEP if backoff is Backoff.FIXED else timedelta(0)


def _fraction(job_id: int, scheduled_at: int, retries: int) -> float:
    """Evenly spread from 0 to 1."""
    key = _KEY.pack(job_id, scheduled_at, retries)
    digest = blake2b(key, digest_size=8, person=b"mainspringretry").digest()
    return int.from_bytes(digest, "big") / 2**64
