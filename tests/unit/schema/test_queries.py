"""Named queries: what a file may hold, and what the check finds between names and uses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mainspring.schema import queries
from mainspring.schema.queries import BrokenQueryFile, Use, check, load, main, query, uses

GOOD = "-- name: one\nSELECT 1;\n"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "queries").mkdir()
    return tmp_path / "queries"


@pytest.fixture
def package(tmp_path: Path) -> Path:
    (tmp_path / "package").mkdir()
    return tmp_path / "package"


def write(directory: Path, /, **files: str) -> None:
    for name, text in files.items():
        (directory / f"{name}.sql").write_text(text, encoding="utf-8")


def problems(directory: Path, package: Path, python: str) -> list[str]:
    (package / "store.py").write_text(python, encoding="utf-8")
    return check(directory, package)


def test_queries_come_back_by_name_from_every_file(directory: Path) -> None:
    write(
        directory,
        a="-- What this file is for.\n\n-- name: one\nSELECT 1;\n\n-- About the second.\n-- name: two\n"
        "SELECT 2\n  + 2;\n",
        b="-- name: three\nSELECT 3",
    )
    assert load(directory) == {"one": "SELECT 1", "two": "SELECT 2\n  + 2", "three": "SELECT 3"}


def test_other_line_endings_make_the_same_queries(directory: Path) -> None:
    text = "-- name: one\nSELECT 1,\n  2;\n\n-- name: two\nSELECT 2;\n"
    write(directory, a=text)
    plain = load(directory)
    (directory / "a.sql").write_bytes(text.replace("\n", "\r\n").encode())
    assert load(directory) == plain


def test_an_indented_comment_stays_and_may_speak_of_a_name(directory: Path) -> None:
    write(directory, a="-- name: one\nSELECT name\n    -- name of the job\nFROM jobs;\n")
    assert load(directory)["one"] == "SELECT name\n    -- name of the job\nFROM jobs"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (GOOD + "-- name: one\nSELECT 2;\n", "a.sql: the query one exists already"),
        ("-- name: one\n\n-- name: two\nSELECT 2;\n", "a.sql: the query one is empty"),
        ("-- name: one\n-- only a comment\n;\n", "a.sql: the query one is empty"),
        ("SELECT 1;\n" + GOOD, "a.sql:1: SQL before the first `-- name:`"),
        ("-- a comment\n\n  SELECT 1;\n", "a.sql:3: SQL before the first `-- name:`"),
        ("--name: one\nSELECT 1;\n", "a.sql:1: '--name: one' is not `-- name: lower_case_name`"),
        (GOOD + "-- name: Two\nSELECT 2;\n", "a.sql:3: '-- name: Two' is not"),
        (GOOD + "-- name: two-three\nSELECT 2;\n", "a.sql:3: '-- name: two-three' is not"),
        (GOOD + "-- name: 2\nSELECT 2;\n", "a.sql:3: '-- name: 2' is not"),
        (GOOD + "-- name two\nSELECT 2;\n", "a.sql:3: '-- name two' is not"),
        (GOOD + "-- NAME: two\nSELECT 2;\n", "a.sql:3: '-- NAME: two' is not"),
        (GOOD + "  -- name: two\nSELECT 2;\n", "a.sql:3: '  -- name: two' is not"),
    ],
)
def test_a_file_that_could_be_misread_is_refused(directory: Path, text: str, reason: str) -> None:
    write(directory, a=text)
    with pytest.raises(BrokenQueryFile) as refused:
        load(directory)
    assert reason in str(refused.value)


def test_a_name_that_stands_in_two_files_is_refused(directory: Path) -> None:
    write(directory, a=GOOD, b=GOOD)
    with pytest.raises(BrokenQueryFile, match=r"^b\.sql: the query one exists already$"):
        load(directory)


def test_the_check_is_silent_when_names_and_uses_agree(directory: Path, package: Path) -> None:
    write(directory, a=GOOD)
    assert problems(directory, package, 'query("one")\n') == []


def test_the_check_finds_a_query_that_nobody_uses(directory: Path, package: Path) -> None:
    write(directory, a=GOOD + "-- name: two\nSELECT 2;\n")
    assert problems(directory, package, 'query("one")\n') == ["the query two is never used"]


def test_the_check_finds_a_use_of_what_does_not_exist(directory: Path, package: Path) -> None:
    write(directory, a=GOOD)
    found = problems(directory, package, 'query("one")\nqueries.query("two")\n')
    assert found == ["package/store.py:2: there is no query two"]


@pytest.mark.parametrize("call", ["query(name)", 'query("o" + "ne")', 'query(f"{x}")', "query(1)", "query()"])
def test_the_check_finds_a_name_that_is_not_a_literal(directory: Path, package: Path, call: str) -> None:
    write(directory, a=GOOD)
    found = problems(directory, package, f'query("one")\n{call}\n')
    assert found == ["package/store.py:2: the name of a query must be a literal"]


def test_the_check_reports_a_broken_file_instead_of_raising(directory: Path, package: Path) -> None:
    write(directory, a=GOOD + GOOD)
    assert problems(directory, package, "") == ["a.sql: the query one exists already"]


def test_uses_are_found_in_subpackages_too(directory: Path, package: Path) -> None:
    (package / "inner").mkdir()
    file = package / "inner" / "store.py"
    file.write_text("def load():\n    return query('one')\n", encoding="utf-8")
    assert list(uses([file], package.parent)) == [Use("one", "package/inner/store.py:2")]
    write(directory, a=GOOD)
    assert check(directory, package) == []


def test_a_query_is_asked_for_by_name() -> None:
    assert query("cluster_shards") == "SELECT shards FROM cluster"
    with pytest.raises(KeyError):
        query("no_such_query")


@pytest.mark.parametrize("arguments", [[], ["chek"], ["check", "more"]])
def test_the_command_says_how_it_is_used(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert capsys.readouterr().err == "usage: python -m mainspring.schema.queries check\n"


def test_the_command_lists_the_problems_and_fails(
    directory: Path, package: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(directory, a=GOOD)
    monkeypatch.setattr(queries, "_DIRECTORY", directory)
    monkeypatch.setattr(queries, "_PACKAGE", package)
    assert main(["check"]) == 1
    assert capsys.readouterr().err == "queries: the query one is never used\n"


def test_the_command_runs_as_a_module() -> None:
    command = [sys.executable, "-m", "mainspring.schema.queries", "check", "too", "much"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "usage: python -m mainspring.schema.queries check\n"
