"""docs/operations.md names every variable and every option that the code knows, and no others."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import mainspring
from mainspring.api.settings import ApiSettings
from mainspring.cli.demo import command as demo
from mainspring.cli.local import command as local
from mainspring.cli.migrate import command as migrate
from mainspring.cli.up import command as up
from mainspring.cli.worker import command as worker
from mainspring.scheduler.settings import read_options as read_scheduler_options
from mainspring.settings import Settings
from mainspring.worker.settings import read_options as read_worker_options

PAGE = (Path(__file__).parents[3] / "docs" / "operations.md").read_text(encoding="utf-8")
VARIABLE = re.compile(r"MAINSPRING_[A-Z0-9_]*[A-Z0-9]")


class Recorder(dict[str, str]):
    """Variables that remember which of them were asked for."""

    def __init__(self, **given: str) -> None:
        super().__init__(given)
        self.asked: set[str] = set()

    def get(self, name: str, default: str | None = None) -> str | None:  # type: ignore[override]
        self.asked.add(name)
        return super().get(name, default)


def read_by_processes() -> set[str]:
    required = Recorder(
        MAINSPRING_POSTGRES_DSN="postgresql://somebody@db.example/jobs",
        MAINSPRING_KAFKA="k.example:9092",
        MAINSPRING_ETCD="e.example:2379",
    )
    Settings.from_environment(required)
    ApiSettings.from_environment(required)
    read_scheduler_options(required)
    read_worker_options(
        required, pool="default", lanes=None, concurrency=None, grace_seconds=None, status=None
    )
    return required.asked


def spelt_out_in_code() -> Iterator[str]:
    """Strings that are a variable's name and nothing else."""
    for source in Path(mainspring.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and VARIABLE.fullmatch(node.value)
            ):
                yield node.value


def test_the_page_names_the_variables_that_the_code_reads_and_no_others() -> None:
    named = set(VARIABLE.findall(PAGE))
    known = read_by_processes() | set(spelt_out_in_code())
    assert known - named == set(), "missing in docs/operations.md"
    assert named - known == set(), "in docs/operations.md, but read by nobody"


@pytest.mark.parametrize("group", [local, migrate, worker, up, demo], ids=lambda group: group.name)
def test_the_page_names_every_option(group: click.Command) -> None:
    commands = group.commands.values() if isinstance(group, click.Group) else [group]
    options = {option for each in commands for parameter in each.params for option in parameter.opts}
    assert {option for option in options if not re.search(rf"{option}\b", PAGE)} == set()


def test_the_page_names_every_local_command() -> None:
    assert isinstance(local, click.Group)
    assert {name for name in local.commands if f"mainspring local {name}" not in PAGE} == set()
