"""Reads many jobs that are alike: what they have in common is checked once.

The jobs of a batch mostly differ in name and payload. Everything else of a body is its *pattern*, and the
request that came of a pattern before is copied, with the name and the payload checked anew. What depends on
the name (the default of the handler, a template that uses it) is part of what is decided anew, so a reader
never answers anything but what `JobRequest.from_mapping` would; a property test holds the two against each
other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mainspring.registry import values
from mainspring.registry.definition import JobRequest

MEMORY = 1000
"""Patterns; a batch that has more is read without their help."""
LONGEST_PATTERN = 10_000

_NULL = b"null"


class RequestReader:
    """One batch's reader."""

    def __init__(self) -> None:
        self._known: dict[str, JobRequest] = {}

    def read(self, given: Mapping[str, Any]) -> JobRequest:
        """What from_mapping makes of it, or refuses."""
        rest = dict(given)
        name, payload = rest.pop("name", None), rest.pop("payload", None)
        pattern = repr((name is None, rest))  # 1, 1.0, true and "1" have four representations
        known = self._known.get(pattern)
        if known is None:
            request = JobRequest.from_mapping(given)
            if len(self._known) < MEMORY and len(pattern) <= LONGEST_PATTERN:
                self._known[pattern] = request
            return request
        return known.another(
            None if name is None else values.check_name(name),
            _NULL if payload is None else values.write_payload(payload),
            handler_is_name=rest.get("handler") is None,
        )
