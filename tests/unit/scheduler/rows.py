"""Rows as a leader reads them, and buckets as a reader of Kafka would see them.

Seconds everywhere: a row's instants are given in seconds since 1970, with a fraction where it matters.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple

from mainspring.schedule import Cadence, MissedPolicy
from mainspring.scheduler.expansion import Bucket, Moment, Parcel, Timer
from mainspring.scheduler.rosters import JobRow
from mainspring.schema.messages import JobDefinition, decode, encode_job

MIDNIGHT = 1_767_225_600
"""2026-01-01T00:00:00Z: aligned to a minute, an hour and a day."""
MINUTE, HOUR, DAY = 60, 3600, 86_400
SHARD, EPOCH, POSITION = 3, 5, 900
CADENCE_ID = 7
OLD = MIDNIGHT - 30 * DAY
"""When a job was made that has nothing new about it."""

EVERY_MINUTE = Cadence.parse("* * * * *")
EVERY_SECOND = Cadence.parse("every 1s")
HOURLY = Cadence.parse("0 * * * *")
DAILY = Cadence.parse("0 0 * * *")


class Message(NamedTuple):
    """One message, in seconds; `following` is None where none follows."""

    job_id: int
    scheduled: int
    due: int
    topic: str
    following: int | None
    attempt: int
    version: int


def micros(seconds: float) -> int:
    return round(seconds * 1_000_000)


@lru_cache(maxsize=4096)
def body_of(job_id: int, tenant_id: int = 1, version: int = 1) -> bytes:
    return encode_job(JobDefinition(job_id, tenant_id, version, "handler"))


def job(
    job_id: int = 1,
    *,
    valid_from: float = OLD,
    updated_at: float | None = None,
    starts_at: float | None = None,
    ends_at: float | None = None,
    version: int = 1,
    tenant_id: int = 1,
    **others: Any,
) -> JobRow:
    """A row; everything not named is as a plain new job has it."""
    values: dict[str, Any] = {
        "shard": SHARD,
        "cadence_id": CADENCE_ID,
        "active": True,
        "changed": 100 + version,
        "jitter_seconds": 0,
        "pool": "default",
        "priority": 5,
        "missed_window": MissedPolicy.RUN_ONCE,
        "grace_seconds": 60,
        "max_missed": 100,
        "body": body_of(job_id, tenant_id, version),
    }
    return JobRow(
        job_id=job_id,
        tenant_id=tenant_id,
        version=version,
        valid_from=micros(valid_from),
        updated_at=micros(valid_from if updated_at is None else updated_at),
        starts_at=None if starts_at is None else micros(starts_at),
        ends_at=None if ends_at is None else micros(ends_at),
        **values | others,
    )


def timer(timer_id: int = 1, *, due: int, job_id: int = 1, changed: int = 100, **others: Any) -> Timer:
    values: dict[str, Any] = {
        "shard": SHARD,
        "scheduled_at": micros(due),
        "attempt": 1,
        "retries": 0,
        "losses": 0,
        "tenant_id": 1,
        "pool": "default",
        "priority": 5,
        "grace_seconds": 60,
        "body": body_of(job_id),
    }
    return Timer(id=timer_id, due=due, job_id=job_id, changed=changed, **values | others)


def at(now: float, gap_to: int | None = None) -> Moment:
    return Moment(now=now, gap_to=gap_to, shard=SHARD, epoch=EPOCH, position=POSITION)


def messages(parcels: Iterable[Parcel]) -> list[Message]:
    """What a reader of Kafka would find, in the order of the parcels."""
    return [_read(parcel, body) for parcel in parcels for body in parcel.bodies]


def sent(bucket: Bucket) -> list[tuple[int, int]]:
    """The runs of a bucket as (job, scheduled), sorted."""
    return sorted((message.job_id, message.scheduled) for message in messages(bucket.parcels))


def _read(parcel: Parcel, body: bytes) -> Message:
    found = decode(parcel.prefix + body)
    assert (found.shard, found.epoch, found.position) == (parcel.shard, EPOCH, POSITION)
    assert found.second == parcel.second
    following = found.following // 1_000_000 if found.following else None
    scheduled = found.scheduled_at // 1_000_000
    return Message(
        found.job.job_id,
        scheduled,
        found.second,
        parcel.topic,
        following,
        found.attempt,
        found.job.version,
    )
