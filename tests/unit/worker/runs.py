"""Messages, batches and the hour they are due, for tests that need no server."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from mainspring.schema.messages import JobDefinition, Message
from mainspring.schema.states import Outcome
from mainspring.worker.batches import Batch, Run

NOON = datetime(2026, 11, 18, 12, tzinfo=UTC)
SECOND = int(NOON.timestamp())


def message(
    job_id: int = 1,
    *,
    handler: str = "h",
    tenant: int = 1,
    second: int = SECOND,
    shard: int = 0,
    attempt: int = 1,
    retries: int = 0,
    losses: int = 0,
    following: int = 0,
    position: int = 100,
    **of_job: Any,
) -> Message:
    job = JobDefinition(job_id, tenant, of_job.pop("version", 1), handler, **of_job)
    return Message(
        attempt, retries, losses, shard, second, second * 1_000_000, following, 1, position, None, job
    )


def batch_of(messages: Sequence[Message], *, claim_id: int = 1, monotonic: float = 0.0) -> Batch:
    """A claim in which every message won its position, taken at noon."""
    batch = Batch(claim_id, NOON, monotonic, bytes([Outcome.PENDING]) * len(messages))
    batch.runs = [Run(batch, position, each) for position, each in enumerate(messages)]
    return batch
