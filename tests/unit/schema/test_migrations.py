"""The migration files: their names, their order, and what counts as an edit."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pytest

from mainspring.schema.errors import MigrationRefused
from mainspring.schema.migrate import load_migrations


def write(directory: Path, *names: str) -> None:
    for name in names:
        (directory / name).write_text(f"SELECT '{name}';\n", encoding="utf-8")


def test_files_are_loaded_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    write(tmp_path, "0002_b.sql", "0001_a.sql", "0003_c_2.sql")
    loaded = load_migrations(tmp_path)
    assert [(migration.version, migration.name) for migration in loaded] == [
        (1, "0001_a"),
        (2, "0002_b"),
        (3, "0003_c_2"),
    ]
    assert loaded[0].sql == "SELECT '0001_a.sql';\n"
    assert loaded[0].sha256 == sha256(b"SELECT '0001_a.sql';\n").hexdigest()


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (["0001_a.sql", "0003_c.sql"], "0003_c stands where 0002 should"),
        (["0002_b.sql"], "0002_b stands where 0001 should"),
        (["0000_zero.sql"], "0000_zero stands where 0001 should"),
        (["0001_a.sql", "0001_b.sql"], "0001_b stands where 0002 should"),
        (["1_a.sql"], "1_a.sql is not named like 0001_what_it_does.sql"),
        (["00001_a.sql"], "00001_a.sql is not named like"),
        (["0001_.sql"], "0001_.sql is not named like"),
        (["0001_A.sql"], "0001_A.sql is not named like"),
        (["0001-a.sql"], "0001-a.sql is not named like"),
        (["0001_a.sql", "notes.sql"], "notes.sql is not named like"),
        (["٠٠٠١_a.sql"], "is not named like"),
    ],
)
def test_a_gap_or_a_bad_name_is_refused(tmp_path: Path, names: list[str], reason: str) -> None:
    write(tmp_path, *names)
    with pytest.raises(MigrationRefused) as refused:
        load_migrations(tmp_path)
    assert reason in refused.value.reason


def test_files_that_are_no_sql_are_none_of_its_business(tmp_path: Path) -> None:
    write(tmp_path, "0001_a.sql", "README.md")
    assert len(load_migrations(tmp_path)) == 1


@pytest.mark.parametrize("ending", ["\r\n", "\r"])
def test_a_checkout_with_other_line_endings_is_not_an_edit(tmp_path: Path, ending: str) -> None:
    file = tmp_path / "0001_a.sql"
    file.write_bytes(b"SELECT 1;\n-- and\nSELECT 2;\n")
    [plain] = load_migrations(tmp_path)
    file.write_bytes(plain.sql.replace("\n", ending).encode())
    assert load_migrations(tmp_path) == [plain]
    file.write_bytes(b"SELECT 1;\n-- and \nSELECT 2;\n")
    assert load_migrations(tmp_path)[0].sha256 != plain.sha256


def test_our_own_files_are_numbered_and_no_transaction_control_hides_in_them() -> None:
    migrations = load_migrations()
    assert [migration.version for migration in migrations] == list(range(1, len(migrations) + 1))
    for migration in migrations:
        statements = {line.strip().upper().rstrip(";") for line in migration.sql.splitlines()}
        assert not statements & {"COMMIT", "ROLLBACK", "START TRANSACTION"}
