"""Deterministic jitter: the same job is late by the same amount, on every machine and in every release.

Half a million jobs at midnight need not start in one second. A job may give a jitter; its occurrences are
then due some seconds after their nominal instant:

    offset = hash(job_id) mod min(jitter, seconds until the following occurrence)

The modulus, not a cut-off, is what bounds it: a jitter of an hour on a job that runs each minute spreads
over the minute instead of heaping everybody onto its last second. So `scheduled_at ≤ due < following`,
always: due times keep the order of their occurrences, and none passes the next one.

The hash is the first eight bytes, big-endian, of BLAKE2b with an eight-byte digest over the job id as
eight big-endian bytes, personalised with `mainspringjitter`. Python's own `hash` differs between releases,
and the hash that picks a job's shard would give all jobs of one shard like offsets. Vectors are in
docs/schedules.md and tested.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from hashlib import blake2b

from mainspring.schema.errors import InvalidInput

LONGEST_JITTER = timedelta(hours=24)
_SECOND = timedelta(seconds=1)


def check_jitter(jitter: timedelta) -> None:
    """Jitter is whole seconds from none to a day; raises InvalidInput("jitter", …)."""
    if jitter % _SECOND or not timedelta(0) <= jitter <= LONGEST_JITTER:
        raise InvalidInput(
            "jitter", f"{jitter.total_seconds():g} s is not a whole number of seconds in 0–86400"
        )


def jitter_hash(job_id: int) -> int:
    """A stable, evenly spread 64-bit number for a job id (0 to 2^63 - 1)."""
    digest = blake2b(job_id.to_bytes(8, "big"), digest_size=8, person=b"mainspringjitter").digest()
    return int.from_bytes(digest, "big")


def jitter_offset(
    job_id: int, jitter: timedelta, scheduled_at: datetime, following: datetime | None
) -> timedelta:
    """How long after `scheduled_at` this job is due; `following` is its cadence's next occurrence."""
    room = jitter if following is None else min(jitter, following - scheduled_at)
    seconds = room // _SECOND
    return timedelta(seconds=jitter_hash(job_id) % seconds) if seconds > 0 else timedelta(0)
