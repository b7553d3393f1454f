"""One valid row for each table, to be changed in the one respect a test is about."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

import asyncpg

from mainspring.schema.ids import new_claim_id

Row = dict[str, Any]
Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

# Tomorrow's noon: its day exists, also if the tests run across midnight.
NOON = (datetime.now(UTC) + timedelta(days=1)).replace(hour=12, minute=0, second=0, microsecond=0)
CLAIM = new_claim_id(NOON)

RUN: Row = {"job_id": 1, "scheduled_at": NOON, "attempt": 1}

VALID: dict[str, Row] = {
    "tenants": {"name": "anna"},
    "api_keys": {"tenant_id": 1, "name": "key", "role": "viewer", "secret_hash": bytes(32)},
    "audit": {"tenant_id": 1, "actor": "anna", "action": "pause", "subject": "j_0000000000001"},
    "shards": {"shard": 8},
    "cadences": {"shard": 3, "kind": "cron", "expression": "0 0 * * *", "timezone": "UTC"},
    "jobs": {
        "id": 1,
        "tenant_id": 1,
        "shard": 3,
        "kind": "at",
        "schedule": NOON.isoformat(),
        "run_at": NOON,
        "handler": "report",
        "body": b"\x01",
    },
    "timers": RUN | {"shard": 3, "due_at": NOON, "cause": "retry"},
    "ledger": {"shard": 3, "second": NOON, "published": 5},
    "missed": {"cadence_id": 1, "gap_from": NOON, "gap_to": NOON.replace(hour=13), "skipped": 1},
    "workers": {"id": "worker-1", "pool": "default", "lanes": ["high", "low"], "concurrency": 8},
    "claims": {"id": CLAIM, "worker_id": "worker-1", "outcomes": b"\x00\x01"},
    "arrivals": {"job_id": 1, "scheduled_at": NOON},
    "runs": RUN | {"claim_id": CLAIM, "position": 0},
    "failures": RUN | {"tenant_id": 1, "status": "failed"},
    "results": RUN | {"value": '{"sum": 3}'},
    "run_logs": RUN | {"line": 0, "at": NOON, "level": "info", "message": "half done"},
    "effects": RUN,
    "dead_letters": RUN
    | {"tenant_id": 1, "pool": "default", "reason": "exhausted", "fingerprint": "f", "body": b"\x01"},
}


async def insert(connection: Connection, table: str, **changes: Any) -> asyncpg.Record:
    """Insert the valid row with these changes; the row as Postgres has it."""
    row = VALID[table] | changes
    places = ", ".join(f"${number}" for number in range(1, len(row) + 1))
    statement = f"INSERT INTO {table} ({', '.join(row)}) VALUES ({places}) RETURNING *"
    inserted = await connection.fetchrow(statement, *row.values())
    assert inserted is not None
    return inserted
