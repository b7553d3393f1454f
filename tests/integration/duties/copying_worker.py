"""A worker that its test stops inside COPY: `python -m … DSN WORKER JOB SCHEDULED_AT CLAIM`.

Writes its claim, then sends enough rows that the server has put the first of them into the index, and never
ends the COPY. Prints a line when the rows are sent.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator

import asyncpg

ROWS = 5000  # the server inserts what COPY brings a thousand rows at a time


async def main(dsn: str, worker: str, job_id: int, scheduled_at: str, claim: int) -> None:
    connection = await asyncpg.connect(
        dsn, server_settings={"application_name": f"mainspring worker {worker} claims"}
    )

    async def rows() -> AsyncIterator[bytes]:
        lines = [f"{job_id + place}\t{scheduled_at}\t{claim}\t{place}\t1\n" for place in range(ROWS)]
        yield "".join(lines).encode()
        print("sent", flush=True)  # noqa: T201
        await asyncio.Event().wait()

    async with connection.transaction():
        await connection.execute(
            "INSERT INTO claims (id, worker_id, outcomes) VALUES ($1, $2, $3)", claim, worker, bytes(ROWS)
        )
        columns = ["job_id", "scheduled_at", "claim_id", "position", "attempt"]
        await connection.copy_to_table("runs", source=rows(), columns=columns)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4], int(sys.argv[5])))
