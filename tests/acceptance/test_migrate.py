"""`mainspring migrate` as a person or a deploy script runs it: a process, against a real Postgres."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from mainspring.schema.migrate import load_migrations

MAINSPRING = Path(sys.executable).with_name("mainspring")
DSN = "MAINSPRING_POSTGRES_DSN"
NAMES = [migration.name for migration in load_migrations()]
VERSION = f"{len(NAMES):04}"


def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    bare = {name: value for name, value in os.environ.items() if not name.startswith("MAINSPRING_")}
    command = [str(MAINSPRING), "migrate", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=120, env=bare | variables
    )


def assert_refused(done: subprocess.CompletedProcess[str], code: int, line: str) -> None:
    """One line on stderr that holds this text, and nothing on stdout."""
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.startswith("mainspring: ")
    assert line in done.stderr
    assert done.stderr.count("\n") == 1


async def ask(database: str, statement: str) -> Any:
    connection = await asyncpg.connect(database)
    try:
        return await connection.fetchval(statement)
    finally:
        await connection.close()


async def is_empty(database: str) -> bool:
    count = "SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace"
    return bool(await ask(database, count) == 0)


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port of this machine on which nobody listens, and nobody else can."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


async def test_it_says_what_it_did_and_the_second_time_that_there_was_nothing_to_do(database: str) -> None:
    first = run("--shards", "8", **{DSN: database})
    assert (first.returncode, first.stderr) == (0, "")
    *applied, cluster, days, state = first.stdout.splitlines()
    assert applied == [f"applied {name}" for name in NAMES]
    assert cluster == "created a cluster of 8 shards"
    assert re.fullmatch(r"made 8 days of run tables, \d{4}-\d\d-\d\d to \d{4}-\d\d-\d\d", days)
    assert state == f"the schema is at {VERSION}, with 8 shards"

    second = run(**{DSN: database})
    assert (second.returncode, second.stderr) == (0, "")
    # One day more is made if midnight has passed in between.
    what, state = second.stdout.splitlines()
    assert what == "nothing to do" or what.startswith("made a day of run tables, ")
    assert state == f"the schema is at {VERSION}, with 8 shards"


async def test_json_is_one_object_and_nothing_else(database: str) -> None:
    first = run("--json", **{DSN: database})
    assert (first.returncode, first.stderr) == (0, "")
    report = json.loads(first.stdout)
    assert len(report.pop("created_days")) == 8
    assert report == {"applied": NAMES, "version": len(NAMES), "shards": 64, "created_cluster": True}
    report = json.loads(run("--json", **{DSN: database}).stdout)
    assert (report["applied"], report["created_cluster"], report["shards"]) == ([], False, 64)


async def test_a_dry_run_says_what_would_be_applied_and_changes_nothing(database: str) -> None:
    done = run("--dry-run", **{DSN: database})
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [f"would apply {name}" for name in NAMES]
    assert json.loads(run("--dry-run", "--json", **{DSN: database}).stdout) == {"pending": NAMES}
    assert await is_empty(database)
    run(**{DSN: database})
    assert run("--dry-run", **{DSN: database}).stdout == "nothing to apply\n"
    assert json.loads(run("--dry-run", "--json", **{DSN: database}).stdout) == {"pending": []}


async def test_another_number_of_shards_is_refused(migrated: str) -> None:
    sentence = "this process expects 16 shards, but the cluster was created with 64"
    assert_refused(run("--shards", "16", **{DSN: migrated}), 1, sentence)
    assert_refused(run(MAINSPRING_SHARDS="16", **{DSN: migrated}), 1, sentence)
    assert_refused(run("--dry-run", "--shards", "16", **{DSN: migrated}), 1, sentence)
    assert run("--shards", "64", MAINSPRING_SHARDS="16", **{DSN: migrated}).returncode == 0


async def test_a_number_that_is_none_is_refused_before_anything_is_done(database: str) -> None:
    refused = run(MAINSPRING_SHARDS="many", **{DSN: database})
    assert_refused(refused, 2, "MAINSPRING_SHARDS: 'many' is not a whole number in 1–4096")
    for number in ("0", "4097", "x"):
        done = run("--shards", number, **{DSN: database})
        assert (done.returncode, done.stdout) == (2, "")
        assert "Invalid value for '--shards'" in done.stderr
    assert await is_empty(database)


async def test_a_database_that_differs_is_refused_in_one_line(migrated: str) -> None:
    await ask(migrated, "UPDATE schema_migrations SET sha256 = repeat('0', 64) WHERE version = 2")
    refused = f"migration refused: {NAMES[1]} was edited after the database had {NAMES[1]}"
    assert_refused(run(**{DSN: migrated}), 1, refused)
    assert_refused(run("--dry-run", **{DSN: migrated}), 1, refused)


async def test_a_table_of_somebody_else_in_the_way_is_one_line(database: str) -> None:
    await ask(database, "CREATE TABLE audit ()")
    refused = f'{NAMES[0]} failed and was undone: relation "audit" already exists'
    assert_refused(run(**{DSN: database}), 1, refused)


def test_without_a_dsn_it_names_the_variable() -> None:
    assert_refused(run(), 2, f"{DSN}: is required and not set")


def test_a_dsn_of_another_kind_is_refused_without_showing_it() -> None:
    refused = run("--dsn", "mysql://anna:s3cr3t@localhost/x")
    assert_refused(refused, 2, f"{DSN}: must start with postgresql://")
    assert "s3cr3t" not in refused.stderr


def test_a_server_that_is_not_there_is_one_line_without_the_password(closed_port: int) -> None:
    done = run(**{DSN: f"postgresql://anna:s3cr3t@127.0.0.1:{closed_port}/x"})
    assert_refused(done, 1, f"postgres at postgresql://anna:***@127.0.0.1:{closed_port}/x cannot be used")
    assert "s3cr3t" not in done.stderr


async def test_a_login_that_is_refused_is_one_line_without_the_password(database: str) -> None:
    parts = urlsplit(database)
    stranger = f"stranger:s3cr3t@{parts.hostname}:{parts.port}"
    done = run("--dsn", urlunsplit(parts._replace(netloc=stranger)))
    assert_refused(done, 1, "postgres at postgresql://stranger:***@")
    assert "s3cr3t" not in done.stderr


async def test_a_database_that_does_not_exist_is_one_line(database: str) -> None:
    done = run("--dsn", urlunsplit(urlsplit(database)._replace(path="/no_such_database")))
    assert_refused(done, 1, 'database "no_such_database" does not exist')


async def test_the_dsn_may_come_from_an_option_or_a_file(
    database: str, tmp_path: Path, closed_port: int
) -> None:
    wrong = f"postgresql://127.0.0.1:{closed_port}/x"
    assert run("--dsn", database, "--dry-run", **{DSN: wrong}).returncode == 0
    file = tmp_path / "dsn"
    file.write_text(f"{database}\n")
    assert run("--dry-run", **{f"{DSN}_FILE": str(file)}).returncode == 0
    file.write_text(wrong)
    assert run("--dsn", database, "--dry-run", **{f"{DSN}_FILE": str(file)}).returncode == 0


def test_help_names_the_variables_and_the_options() -> None:
    done = run("--help")
    assert (done.returncode, done.stderr) == (0, "")
    for word in (DSN, "MAINSPRING_SHARDS", "--dsn", "--shards", "--dry-run", "--json"):
        assert word in done.stdout
