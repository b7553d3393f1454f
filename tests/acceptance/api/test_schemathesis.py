"""The whole OpenAPI document against a real process: no 5xx, no answer that is not documented.

Every operation is asked with the examples, with each bound and each rule of its schema broken by itself,
and with generated cases. They are the same in every run, so that a failure is one for everybody. Data that
fits the schema may still be refused (an expression that is no schedule): whether it is accepted is not
asked here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from schemathesis.engine import events, from_schema

from mainspring.api.batch import MEDIA_TYPE
from tests.acceptance.api.conftest import ApiProcess

EXAMPLES = 8
"""Generated cases for each operation, beside those that cover its schema."""


@schemathesis.serializer(MEDIA_TYPE)
def _as_it_is(_: Any, value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "replace")


def configuration(key: str) -> Any:
    return schemathesis.Config.from_dict(
        {
            "headers": {"Authorization": f"Bearer {key}"},
            "workers": 1,
            "generation": {"max-examples": EXAMPLES, "deterministic": True},
            "checks": {"positive_data_acceptance": {"enabled": False}},
            "phases": {"stateful": {"enabled": False}},
        }
    )


def faults(event: Any) -> Iterator[str]:
    """What went wrong, with a line of curl that shows it."""
    if isinstance(event, events.FatalError | events.NonFatalError):
        yield str(getattr(event, "value", None) or getattr(event, "exception", event))
    if isinstance(event, events.ScenarioFinished):
        for checks in event.recorder.checks.values():
            for check in checks:
                if check.failure_info is not None:
                    yield f"{event.label}: {check.failure_info.failure}\n{check.failure_info.code_sample}"


@pytest.mark.filterwarnings("ignore")  # schemathesis's own; the process under test is another one
def test_no_answer_is_a_fault_or_undocumented(api: ApiProcess, admin_key: str) -> None:
    schema = schemathesis.openapi.from_url(f"{api.url()}/openapi.json", config=configuration(admin_key))
    asked, found = set[str | None](), list[str]()
    for event in from_schema(schema).execute():
        found += faults(event)
        if isinstance(event, events.ScenarioFinished) and event.recorder.cases:
            asked.add(event.label)
    assert not found, "\n\n".join(found[:10])
    operations = {
        f"{method.upper()} {path}"
        for path, methods in schema.raw_schema["paths"].items()
        for method in methods
    }
    assert asked >= operations
    assert "request_failed" not in api.log.read_text()
