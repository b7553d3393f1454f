"""The Python client of the HTTP API: `Client`, and `AsyncClient` for an event loop. docs/client.md shows it
by example.

    from mainspring.client import Client

    with Client() as client:
        client.jobs.put("send-weekly-report", schedule="0 9 * * 1", timezone="America/New_York")
        run = client.jobs.trigger("send-weekly-report", wait=True)

Where to read: `core` (what is tried again, why that is safe, how long), `errors` and `models` (what comes
back), `routes/` (what each route is asked), `submission` (many jobs at once), `waiting`; `binding` makes
the methods of both clients of one definition. It loads httpx, and no driver of Postgres, Kafka or etcd.
"""

from __future__ import annotations

from mainspring.client import models
from mainspring.client.awaiting import AsyncClient
from mainspring.client.blocking import Client
from mainspring.client.errors import (
    ApiError,
    Conflict,
    Contended,
    InvalidInput,
    NameTaken,
    NoAnswer,
    NotAllowed,
    NotFound,
    QuotaExceeded,
    RateLimited,
    RedriveRefused,
    RunEnded,
    StillGoing,
    SubmissionBroken,
    Unauthenticated,
    Unavailable,
    UnreadableAnswer,
    VersionMismatch,
    WrongStatus,
)
from mainspring.client.settings import ClientSettings
from mainspring.schema.errors import MainspringError

__all__ = [
    "ApiError",
    "AsyncClient",
    "Client",
    "ClientSettings",
    "Conflict",
    "Contended",
    "InvalidInput",
    "MainspringError",
    "NameTaken",
    "NoAnswer",
    "NotAllowed",
    "NotFound",
    "QuotaExceeded",
    "RateLimited",
    "RedriveRefused",
    "RunEnded",
    "StillGoing",
    "SubmissionBroken",
    "Unauthenticated",
    "Unavailable",
    "UnreadableAnswer",
    "VersionMismatch",
    "WrongStatus",
    "models",
]
