"""A worker's own settings.

    MAINSPRING_STATUS                 host:port of /healthz, /readyz and /metrics (default: a free port)
    MAINSPRING_WORKER_CONCURRENCY     runs at the same time (default 100)
    MAINSPRING_WORKER_GRACE_SECONDS   how long a stop waits for what is running (default 30)
    MAINSPRING_WORKER_TRANSACTIONS    connections for handlers' own transactions (default 10)

The topics' variables are the scheduler's: whoever comes first makes the topics.
"""

from __future__ import annotations

from collections.abc import Mapping

from mainspring.kafka.topic_settings import read_topic_settings
from mainspring.schema.errors import InvalidInput
from mainspring.schema.states import Lane, check_pool
from mainspring.serving import SETTING, parse_address
from mainspring.settings import Environment
from mainspring.worker.process import WorkerOptions


def read_options(
    variables: Mapping[str, str],
    *,
    pool: str,
    lanes: str | None,
    concurrency: int | None,
    grace_seconds: float | None,
    status: str | None,
) -> WorkerOptions:
    """The options from the command line, then the variables; every refusal names the field and the rule."""
    environment = Environment(variables)
    address = status or environment.text("STATUS") or WorkerOptions.status_address
    parse_address(address, "--status" if status else SETTING)
    if concurrency is None:
        concurrency = environment.integer("WORKER_CONCURRENCY", 1, 10_000) or WorkerOptions.concurrency
    if grace_seconds is None:
        found = environment.integer("WORKER_GRACE_SECONDS", 0, 86_400)
        grace_seconds = WorkerOptions.grace_seconds if found is None else float(found)
    return WorkerOptions(
        pool=check_pool(pool),
        lanes=WorkerOptions.lanes if lanes is None else read_lanes(lanes),
        concurrency=concurrency,
        grace_seconds=grace_seconds,
        status_address=address,
        transactions=environment.integer("WORKER_TRANSACTIONS", 1, 1000) or WorkerOptions.transactions,
        topics=read_topic_settings(environment),
    )


def read_lanes(text: str) -> tuple[Lane, ...]:
    """`high,normal` as lanes."""
    names = [name.strip() for name in text.split(",")]
    wrong = [name for name in names if name not in set(Lane)]
    if wrong:
        raise InvalidInput("lanes", f"{wrong[0]!r} is not one of {', '.join(Lane)}")
    return tuple(dict.fromkeys(Lane(name) for name in names))
