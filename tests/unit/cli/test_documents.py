"""Jobs in files, read as people mean them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mainspring.cli.jobs.documents import read_documents, read_value
from mainspring.schema.errors import InvalidInput


def fields(path: Path, text: str) -> list[dict[str, Any]]:
    path.write_text(text)
    return [dict(document.fields) for document in read_documents([str(path)])]


@pytest.mark.parametrize(
    "text",
    [
        "name: a\n---\nname: b\n",
        "- name: a\n- name: b\n",
        "jobs:\n  - name: a\n  - name: b\n",
        '[{"name": "a"},\t{"name": "b"}]',
        '{"jobs": [{"name": "a"}, {"name": "b"}]}',
        "---\nname: a\n---\n# nothing\n---\n- name: b\n",
    ],
)
def test_one_job_many_jobs_several_documents(tmp_path: Path, text: str) -> None:
    assert fields(tmp_path / "jobs.yaml", text) == [{"name": "a"}, {"name": "b"}]


def test_yaml_is_read_as_it_was_written(tmp_path: Path) -> None:
    text = """\
schedule: 0 9 * * 1
starts_at: 2026-12-24T18:00:00
max_retries: 07
payload: {on: no, at: 1:30, day: 2026-12-24, half: 0.5, none: null, yes: true}
"""
    assert fields(tmp_path / "a.yml", text) == [
        {
            "schedule": "0 9 * * 1",
            "starts_at": "2026-12-24T18:00:00",
            "max_retries": 7,
            "payload": {
                "on": "no",
                "at": "1:30",
                "day": "2026-12-24",
                "half": 0.5,
                "none": None,
                "yes": True,
            },
        }
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("name: a\nname: b\n", "name stands twice, at line 2"),
        ('{"name": "a", "name": "b"}', "stands twice"),
        ("a: [\n", "neither YAML nor JSON"),
        ("just a text", "is not a job"),
        ("- a\n- b\n", "job 1: is not a job"),
        ("!!python/object/apply:os.system [ls]", "neither YAML nor JSON"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_place(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        fields(tmp_path / "a.yaml", text)


def test_a_directory_is_its_files_in_order_and_those_below(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    for name in ("b/c.json", "a.yaml", "notes.txt", "z.yml"):
        (tmp_path / name).write_text(f'{{"name": "{name}"}}')
    found = read_documents([str(tmp_path)])
    assert [document.fields["name"] for document in found] == ["a.yaml", "b/c.json", "z.yml"]
    assert found[0].source == str(tmp_path / "a.yaml")


@pytest.mark.parametrize("place", ["missing.yaml", "empty"])
def test_a_place_without_jobs_is_refused(tmp_path: Path, place: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidInput):
        read_documents([str(tmp_path / place)])


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("high", "high"),
        ("[a, 1]", ["a", 1]),
        ("{gap: skip}", {"gap": "skip"}),
        ("null", None),
        ("no", "no"),
    ],
)
def test_a_value_on_the_command_line(text: str, value: object) -> None:
    assert read_value(text, "--set x") == value
