"""Waiting for a run: when to ask again, and which run to ask for. Pure; the clients ask and sleep.

A run that nobody has taken yet is not found, so that is no error here. After `failed` and `lost` the next
attempt follows, and it is that one which is waited for, unless one attempt is all that was asked about.
"""

from __future__ import annotations

from collections.abc import Callable

from mainspring.client.errors import StillGoing
from mainspring.client.models import ENDED, Run
from mainspring.schema.ids import format_run_id, parse_run_id

_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 2.0
_LAST_ATTEMPT_ONLY = frozenset({"failed", "lost"})


class Waiting:
    """One wait: `run_id` is the run to ask for."""

    def __init__(
        self, run_id: str, timeout: float | None, *, retries: bool, now: Callable[[], float]
    ) -> None:
        parse_run_id(run_id)
        self.run_id = run_id
        self._timeout = timeout
        self._retries = retries
        self._now = now
        self._deadline = None if timeout is None else now() + timeout
        self._pause = _FIRST_PAUSE

    def is_over(self, run: Run | None) -> bool:
        """Whether this is how it ended; otherwise `run_id` is what to ask for next."""
        if run is None or run.status not in ENDED | _LAST_ATTEMPT_ONLY:
            return False
        if run.status in ENDED or not self._retries:
            return True
        key = parse_run_id(run.run_id)
        self.run_id = format_run_id(key._replace(attempt=key.attempt + 1))
        return False

    def pause(self, run: Run | None) -> float:
        """Seconds until it is worth asking again; StillGoing when the time is up."""
        pause, self._pause = self._pause, min(_LONGEST_PAUSE, self._pause * 1.5)
        if self._deadline is None:
            return pause
        left = self._deadline - self._now()
        if left <= 0:
            assert self._timeout is not None
            raise StillGoing(self.run_id, run, self._timeout)
        return min(pause, left)
