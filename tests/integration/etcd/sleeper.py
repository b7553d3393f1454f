"""A process that keeps a lease and is stopped by its test: `python -m … ENDPOINT`.

Prints the lease, and after its loss whether it had trusted the lease at any time after it woke up.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from datetime import timedelta

import structlog

from mainspring.etcd import LeaseKeeper
from mainspring.settings import EtcdSettings

SLEPT_SECONDS = 1.0


async def main(endpoint: str) -> None:
    keeper = LeaseKeeper(EtcdSettings(endpoints=(endpoint,)), ttl=timedelta(seconds=2))
    await keeper.start()
    # Looked at before the lease is told: the stop may follow at once.
    slept, trusted_after_waking, lost, before = False, False, False, time.monotonic()
    print(json.dumps({"lease": keeper.lease_id}), flush=True)  # noqa: T201
    while not lost:
        await asyncio.sleep(0.001)
        # Asked before the clock: a loss told just now must not hide the gap.
        lost = keeper.lost.is_set()
        now = time.monotonic()
        slept, before = slept or now - before > SLEPT_SECONDS, now
        trusted_after_waking = trusted_after_waking or (slept and keeper.is_trusted())
    print(json.dumps({"slept": slept, "trusted_after_waking": trusted_after_waking}), flush=True)  # noqa: T201


if __name__ == "__main__":
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    asyncio.run(main(sys.argv[1]))
