"""A run's name as one number: three million of them in a set must fit into memory."""

from __future__ import annotations


def run_key(job_id: int, scheduled_at: int) -> int:
    """Of a job and an instant in microseconds since 1970."""
    return job_id << 64 | scheduled_at
