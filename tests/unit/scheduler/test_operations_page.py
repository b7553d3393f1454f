"""docs/operations.md names every metric and event of the scheduler, and no others: they are its interface."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import mainspring
from mainspring.scheduler.metrics import Metrics

PAGE = (Path(__file__).parents[3] / "docs" / "operations.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("## Schedulers")[2].partition("\n## ")[0]
PACKAGES = ("scheduler", "etcd", "kafka", "registry", "serving.py", "cli/scheduler.py")
LEVELS = ("debug", "info", "warning", "error", "exception")


def named_in_table(heading: str, column: int) -> set[str]:
    table = SECTION.partition(heading)[2].partition("\n\n|")[2].partition("\n\n")[0]
    rows = [line.split("|") for line in table.splitlines()[2:]]
    return {name for row in rows for name in re.findall(r"`([a-z_]+)`", row[column])}


def said_in_code() -> Iterator[str]:
    """The first argument of every call of a logger's method."""
    root = Path(mainspring.__file__).parent
    sources = [file for name in PACKAGES for file in _files(root / name)]
    for source in sources:
        for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                logger = ast.unparse(node.func.value)
                if node.func.attr in LEVELS and re.search(r"\blog\b|_log\b|get_logger", logger):
                    assert isinstance(node.args[0], ast.Constant), f"{source}:{node.lineno}"
                    yield str(node.args[0].value)


def _files(path: Path) -> list[Path]:
    return [path] if path.is_file() else sorted(path.rglob("*.py"))


def test_the_page_names_every_metric_and_no_others() -> None:
    known = {family.name.removeprefix("mainspring_scheduler_") for family in Metrics().registry.collect()}
    assert named_in_table("**Metrics.**", 1) == known


def test_the_page_names_every_event_and_no_others() -> None:
    assert named_in_table("**Events.**", 2) == set(said_in_code())
