"""The recall list: which jobs were changed since the messages about them were published.

A message carries how far its publisher had read the change feed: everything below that transaction id had
been applied to it. The worker reads the same feed inside each claim, and remembers every job that it
shows. So of a message whose position is not older than the list reaches, the list knows everything; an
older one is looked up in Postgres.

The list starts empty, and again when it has grown too long: then it reaches back to that moment only. It
is kept up also while nothing is claimed, so that the first bucket after a quiet hour is not looked up whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from mainspring.schema.messages import Message
from mainspring.schema.snapshot import Snapshot
from mainspring.schema.states import JobStatus

LONGEST = 200_000


class Changed(NamedTuple):
    """A job as the feed showed it last."""

    version: int
    status: JobStatus


class RecallList:
    """What one worker knows of changed jobs."""

    def __init__(self) -> None:
        self.snapshot: Snapshot | None = None
        self._timeline = ""
        self._reach = 0
        self._changed: dict[int, Changed] = {}

    def begin(self, now: Snapshot, timeline: str) -> None:
        """A claim begins: in another world of transaction ids nothing that is remembered counts."""
        other = self.snapshot is None or timeline != self._timeline or self.snapshot.xmax > now.xmax
        if other or len(self._changed) > LONGEST:
            self._changed.clear()
            self._reach = now.xmax
            self._timeline = timeline
            self.snapshot = now

    def add(self, job_id: int, changed: Changed) -> None:
        self._changed[job_id] = changed

    def concerned(self, messages: Sequence[Message]) -> list[Message]:
        """Those about whose job Postgres has to be asked what it is now."""
        reach, changed = self._reach, self._changed
        if not changed:
            return [message for message in messages if message.position < reach]
        return [
            message
            for message in messages
            if message.position < reach or self._is_another(changed.get(message.job.job_id), message)
        ]

    @staticmethod
    def _is_another(changed: Changed | None, message: Message) -> bool:
        return changed is not None and (
            changed.version != message.job.version or changed.status is not JobStatus.ACTIVE
        )
