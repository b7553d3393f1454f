"""docs/operations.md names every metric and event of the API, and no others: they are its interface."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import mainspring
from mainspring.api.metrics import Metrics
from mainspring.cli.api import command

PAGE = (Path(__file__).parents[3] / "docs" / "operations.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("\n## API\n")[2].partition("\n## ")[0]
PACKAGE = Path(mainspring.__file__).parent


def table(heading: str, column: int) -> set[str]:
    rows = SECTION.partition(heading)[2].partition("\n\n|")[2].partition("\n\n")[0].splitlines()[2:]
    return {name for row in rows for name in re.findall(r"`([a-z_]+)`", row.split("|")[column])}


def said_in_code() -> set[str]:
    """What is said, by `log` or by a method of it that was chosen before."""
    found = set()
    for source in [*(PACKAGE / "api").rglob("*.py"), PACKAGE / "cli" / "api.py"]:
        for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not node.args or not isinstance(node.args[0], ast.Constant):
                continue
            called = ast.unparse(node.func)
            if called == "tell" or re.search(r"(log|get_logger\(\))\.(debug|info|warning|error)$", called):
                found.add(str(node.args[0].value))
    return found


def test_the_page_names_every_metric_and_no_others() -> None:
    known = {family.name.removeprefix("mainspring_api_") for family in Metrics().registry.collect()}
    assert table("**Metrics.**", 1) == known


def test_the_page_names_every_event_and_no_others() -> None:
    assert table("**Events.**", 2) == said_in_code()


def test_the_page_names_every_option() -> None:
    assert all(option in SECTION for parameter in command.params for option in parameter.opts)
