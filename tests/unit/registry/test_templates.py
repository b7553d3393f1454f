"""Idempotency keys: counted by hand."""

from __future__ import annotations

from datetime import timedelta

import pytest

from mainspring.registry import PLACEHOLDERS, render
from mainspring.registry.templates import check_template
from mainspring.schedule import parse_instant
from mainspring.schema.errors import InvalidInput

INSTANT = parse_instant("2027-01-01T04:30:00Z")  # still 2026 in New York, and the 53rd week


def filled(template: str, instant: str = "2027-01-01T04:30:00Z", timezone: str = "America/New_York") -> str:
    return render(template, job_id=1, name="report", scheduled_at=parse_instant(instant), timezone=timezone)


@pytest.mark.parametrize(
    ("template", "key"),
    [
        ("report-{{week}}", "report-2026-W53"),
        ("{{date}}", "2026-12-31"),
        ("{{month}}/{{year}}", "2026-12/2026"),
        ("{{hour}}", "2026-12-31T23-0500"),
        ("{{minute}}", "2026-12-31T23:30-0500"),
        ("{{unix}}", "1798777800"),
        ("{{job}}:{{name}}", "j_0000000000001:report"),
        ("{{ week }}", "2026-W53"),
        ("{a} {{date}} {b}", "{a} 2026-12-31 {b}"),
        ("constant", "constant"),
        ("", "j_0000000000001:1798777800"),
    ],
)
def test_placeholders_are_filled_in_from_the_occurrence(template: str, key: str) -> None:
    assert check_template(template) == template
    assert filled(template) == key


def test_the_week_belongs_to_the_year_of_its_thursday() -> None:
    assert filled("{{week}}", "2027-01-03T12:00:00Z", "UTC") == "2026-W53"
    assert filled("{{week}}", "2027-01-04T12:00:00Z", "UTC") == "2027-W01"


@pytest.mark.parametrize("placeholder", ["{{hour}}", "{{minute}}", "{{unix}}"])
def test_a_repeated_hour_has_two_keys(placeholder: str) -> None:
    first, second = filled(placeholder, "2026-11-01T05:30:00Z"), filled(placeholder, "2026-11-01T06:30:00Z")
    assert first != second


def test_triggers_in_one_second_have_keys_of_their_own() -> None:
    def key(microseconds: int) -> str:
        instant = INSTANT + timedelta(microseconds=microseconds)
        return render("", job_id=1, name=None, scheduled_at=instant, timezone="UTC")

    assert key(1) == "j_0000000000001:1798777800.000001"
    assert len({key(0), key(1), key(2)}) == 3


def test_a_name_with_braces_is_not_a_template() -> None:
    assert render("{{name}}", job_id=1, name="{{week}}", scheduled_at=INSTANT, timezone="UTC") == "{{week}}"


@pytest.mark.parametrize(
    ("template", "rule"),
    [
        ("{{weak}}", "{{weak}} is not known; did you mean {{week}}?"),
        ("{{}}", "is not known; known: job, name, year"),
        ("{{WEEK}}", "did you mean {{week}}?"),
        ("{{attempt}}", "the key must be the same for every attempt"),
        ("{{week", "{{ or }} without its partner"),
        ("week}}", "{{ or }} without its partner"),
        ("x" * 201, "is longer than 200 characters"),
    ],
)
def test_a_bad_template_is_refused(template: str, rule: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        check_template(template)
    assert refusal.value.field == "idempotency_key_template"
    assert rule in refusal.value.rule


def test_every_placeholder_can_be_rendered() -> None:
    for word in PLACEHOLDERS:
        assert "{" not in filled(f"{{{{{word}}}}}")
