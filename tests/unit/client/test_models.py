"""Answers as objects."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from mainspring.client import UnreadableAnswer
from mainspring.client.models import Backfill, DeadLetter, Explanation, Forecast, Key, Run, read, read_page

RUN: dict[str, Any] = {
    "run_id": "r_1",
    "job_id": "j_1",
    "scheduled_at": "2026-11-18T09:00:00Z",
    "attempt": 1,
    "status": "running",
    "worker": "w",
    "claimed_at": "2026-11-18T09:00:00Z",
    "started_at": None,
    "finished_at": None,
    "duration_ms": 1500,
    "error": None,
    "result": {"rows": 3},
}


def test_instants_are_aware_and_lists_are_tuples() -> None:
    found = read(Backfill, {"count": 1, "instants": ["2026-11-18T09:00:00Z"], "dry_run": True})
    assert found.instants == (datetime(2026, 11, 18, 9, tzinfo=UTC),)


def test_objects_inside_are_models_too() -> None:
    answer = {
        "job_id": "j_1",
        "at": "2026-11-18T09:00:00Z",
        "verdict": "running",
        "text": "it is running",
        "facts": {"attempts": 1},
        "runs": [RUN],
    }
    found = read(Explanation, answer)
    assert isinstance(found.runs[0], Run)
    assert found.runs[0].started_at is None
    assert str(found.runs[0].duration) == "0:00:01.500000"


def test_what_this_version_does_not_know_is_ignored() -> None:
    assert read(Run, {**RUN, "mood": "sunny"}) == read(Run, RUN)


def test_a_field_may_have_another_name_on_the_wire() -> None:
    whole = {
        "from": "2026-11-18T09:00:00Z",
        "to": "2026-11-18T09:01:00Z",
        "seconds": [{"at": "2026-11-18T09:00:30Z", "jobs": 4}],
        "is_complete": True,
    }
    assert read(Forecast, whole).seconds[0].jobs == 4


def test_a_key_for_every_handler_has_none_listed() -> None:
    answer = {
        "id": 1,
        "name": "ci",
        "role": "viewer",
        "created_at": "2026-11-18T09:00:00Z",
        "revoked_at": None,
    }
    assert read(Key, {**answer, "handlers": None}).handlers is None
    assert read(Key, {**answer, "handlers": ["a"]}).handlers == ("a",)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ([], "Run is not an object"),
        ({}, "Run has no run_id"),
        ({**RUN, "scheduled_at": "soon"}, "scheduled_at of Run"),
        ({**RUN, "scheduled_at": "2026-11-18T09:00:00"}, "has no offset"),
        ({**RUN, "scheduled_at": 7}, "scheduled_at of Run"),
    ],
)
def test_what_cannot_be_read_is_said_at_once(answer: object, reason: str) -> None:
    with pytest.raises(UnreadableAnswer, match=reason):
        read(Run, answer)


def test_a_page_has_its_items_its_cursor_and_a_total_where_there_is_one() -> None:
    page = read_page(Run, {"items": [RUN], "next_cursor": "x"})
    assert ([run.run_id for run in page.items], page.next_cursor, page.total) == (["r_1"], "x", None)
    assert read_page(DeadLetter, {"items": [], "next_cursor": None, "total": 7}).total == 7
    with pytest.raises(UnreadableAnswer, match="no items"):
        read_page(Run, {"next_cursor": None})
