"""docs/operations.md names every metric and event of a worker, and no others: they are its interface."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import mainspring
from mainspring.worker.metrics import Metrics

PAGE = (Path(__file__).parents[3] / "docs" / "operations.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("## Workers")[2].partition("\n## ")[0]
ROOT = Path(mainspring.__file__).parent
SOURCES = [*sorted((ROOT / "worker").rglob("*.py")), ROOT / "cli" / "worker.py"]
LEVELS = ("debug", "info", "warning", "error", "exception")
MEASURED_BY_LOOKING = ("gauges", "lanes")


def named_in_table(heading: str, column: int) -> set[str]:
    table = SECTION.partition(heading)[2].partition("\n\n|")[2].partition("\n\n")[0]
    rows = [line.split("|") for line in table.splitlines()[2:]]
    return {name for row in rows for name in re.findall(r"`([a-z_]+)`", row[column])}


def nodes() -> Iterator[tuple[str, ast.AST]]:
    for source in SOURCES:
        for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
            yield f"{source}:{getattr(node, 'lineno', 0)}", node


def said_in_code() -> Iterator[str]:
    """The first argument of every call of a logger's method."""
    for place, node in nodes():
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            logger = ast.unparse(node.func.value)
            if node.func.attr in LEVELS and re.search(r"\blog\b|_log\b|get_logger", logger):
                assert isinstance(node.args[0], ast.Constant), place
                yield str(node.args[0].value)


def measured_in_code() -> Iterator[str]:
    """What is set as `metrics.gauges["…"]` or `metrics.lanes["…"]`."""
    for place, node in nodes():
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Subscript) and _is_measured(target.value):
                    assert isinstance(target.slice, ast.Constant), place
                    yield str(target.slice.value)


def _is_measured(table: ast.expr) -> bool:
    return isinstance(table, ast.Attribute) and table.attr in MEASURED_BY_LOOKING


def counted_in_code() -> set[str]:
    return {family.name.removeprefix("mainspring_worker_") for family in Metrics().samples()}


def test_the_page_names_every_metric_and_no_others() -> None:
    assert "All begin with `mainspring_worker_`" in SECTION
    assert named_in_table("**Metrics.**", 1) == counted_in_code() | set(measured_in_code())


def test_the_page_names_every_event_and_no_others() -> None:
    assert named_in_table("**Events.**", 2) == set(said_in_code())


def test_the_rules_find_what_they_look_for() -> None:
    """A table that cannot be found, or a source, would make two empty sets agree."""
    assert "runs_running" in set(measured_in_code())
    assert "runs_claimed" in counted_in_code()
    assert {"worker_began", "handler_abandoned", "settings"} <= set(said_in_code())
