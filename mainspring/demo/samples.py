"""The sample jobs: one of every kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum, auto
from typing import Any

MARCH_SECONDS = 20
RETRIES = 1
# Late enough for the newcomer to see it wait, early enough for the shortest demo.
_ONE_OFF_AFTER, _MARCH_AFTER = timedelta(seconds=8), timedelta(seconds=2)


class Promise(Enum):
    """What a sample is to show."""

    ONCE = auto()
    """Each occurrence runs exactly once."""
    RELEASED = auto()
    """It runs exactly once for each occurrence of its parent."""
    DEAD = auto()
    """Each occurrence uses up its retries and becomes a dead letter."""
    MARCHES = auto()
    """It takes long, and says how far it is."""


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A job to register; `schedule` says when it is due, which of a dependent is its parent's."""

    name: str
    promise: Promise
    schedule: str
    request: Mapping[str, Any]

    @property
    def when(self) -> str:
        """Its schedule for people."""
        if "after" in self.request:
            return f"after {self.request['after'][0]}"
        return self.schedule if self.promise is Promise.DEAD or "T" not in self.schedule else "once"


def samples(now: datetime) -> list[Sample]:
    """All of them, parents before dependents."""
    return [
        _greeting("every-second", "every 1s", "Good second"),
        _greeting("every-2-seconds", "every 2s", "Good day"),
        Sample(
            name="its-dependent",
            promise=Promise.RELEASED,
            schedule="every 2s",
            request={
                "handler": "demo.greet",
                "after": ["every-2-seconds"],
                "payload": {"greeting": "And you"},
            },
        ),
        _greeting("every-minute", "* * * * *", "Good minute"),
        _greeting("one-off", _instant(now + _ONE_OFF_AFTER), "Only now"),
        _scheduled(
            "always-fails",
            Promise.DEAD,
            "every 10s",
            {"handler": "demo.fail", "max_retries": RETRIES, "retry_backoff": "none"},
        ),
        _scheduled(
            "marches",
            Promise.MARCHES,
            _instant(now + _MARCH_AFTER),
            {"handler": "demo.march", "payload": {"seconds": MARCH_SECONDS}},
        ),
    ]


def _greeting(name: str, schedule: str, greeting: str) -> Sample:
    return _scheduled(
        name, Promise.ONCE, schedule, {"handler": "demo.greet", "payload": {"greeting": greeting}}
    )


def _scheduled(name: str, promise: Promise, schedule: str, fields: Mapping[str, Any]) -> Sample:
    # RUN_ALL: nothing may be left out, however long a takeover lasts on a machine that is busy.
    request = {"schedule": schedule, "missed_window": "RUN_ALL", **fields}
    return Sample(name=name, promise=promise, schedule=schedule, request=request)


def _instant(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"
