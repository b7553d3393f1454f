"""How a built-in handler fails.

NotRetryable            (signals.py) trying again cannot mend it: a dead letter at once, with this text
├── InvalidPayload      the job's payload breaks a rule: .field, .rule
└── Refused             the address may not be connected to (addresses.py): .address, .kind
RequestFailed           an ordinary failure: the job's retries apply, as they do to any other exception
"""

from __future__ import annotations

from mainspring.worker.signals import NotRetryable


class InvalidPayload(NotRetryable):
    """The payload breaks a rule of its handler; nothing has been sent."""

    def __init__(self, field: str, rule: str) -> None:
        super().__init__(f"payload: {field}: {rule}")
        self.field = field
        self.rule = rule


class RequestFailed(Exception):
    """What was asked of another system did not succeed; it may the next time."""
