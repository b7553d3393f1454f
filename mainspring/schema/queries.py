"""Named SQL: every statement lives in `queries/*.sql` under a name of its own, and is asked for by that name.

    -- name: cluster_shards
    SELECT shards FROM cluster;

`query("cluster_shards")` gives its text. Comments between two statements belong to the one below and stay
in the file. A name must be a literal where it is used, so that `python -m mainspring.schema.queries check`
(part of `make lint`) can compare names with uses without running anything: it fails on a query nobody uses,
on a use of one that does not exist, and on a name that stands twice.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

_PACKAGE = Path(__file__).resolve().parent.parent
_DIRECTORY = Path(__file__).resolve().parent / "queries"
_NAME = re.compile(r"-- name: *([a-z][a-z0-9_]*) *", re.ASCII)
# Indented, only with its colon: there it may be an ordinary comment about a column called name.
_LOOKS_LIKE_NAME = re.compile(r"--\s*name\b|\s+--\s*name\s*:", re.IGNORECASE)


class BrokenQueryFile(Exception):
    """A defect of this distribution, found when the file is read: not for callers to catch."""


class Use(NamedTuple):
    """One call of `query(…)`; the name is None where it is not a literal."""

    name: str | None
    place: str


def query(name: str) -> str:
    """The text of a named query."""
    return _queries()[name]


@cache
def _queries() -> Mapping[str, str]:
    return load(_DIRECTORY)


def load(directory: Path) -> dict[str, str]:
    """All queries of a directory by name; a duplicate, an empty one or SQL without a name is refused."""
    found: dict[str, str] = {}
    for file in sorted(directory.glob("*.sql")):
        for name, text in _split(file):
            if name in found:
                raise BrokenQueryFile(f"{file.name}: the query {name} exists already")
            if not text:
                raise BrokenQueryFile(f"{file.name}: the query {name} is empty")
            found[name] = text
    return found


def _split(file: Path) -> Iterator[tuple[str, str]]:
    name: str | None = None
    lines: list[str] = []
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        matched = _NAME.fullmatch(line)
        if matched:
            if name is not None:
                yield name, _statement(lines)
            name, lines = matched[1], []
        elif _LOOKS_LIKE_NAME.match(line):
            raise BrokenQueryFile(f"{file.name}:{number}: {line!r} is not `-- name: lower_case_name`")
        elif name is None and line.strip() and not line.startswith("--"):
            raise BrokenQueryFile(f"{file.name}:{number}: SQL before the first `-- name:`")
        elif not line.startswith("--"):
            lines.append(line)
    if name is not None:
        yield name, _statement(lines)


def _statement(lines: list[str]) -> str:
    return "\n".join(lines).strip().removesuffix(";")


def uses(files: Iterable[Path], root: Path) -> Iterator[Use]:
    """Every call of a function called `query` in these Python files."""
    for file in files:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"), str(file))):
            if isinstance(node, ast.Call) and _is_query(node.func):
                yield Use(_literal(node), f"{file.relative_to(root)}:{node.lineno}")


def _is_query(function: ast.expr) -> bool:
    return (isinstance(function, ast.Name) and function.id == "query") or (
        isinstance(function, ast.Attribute) and function.attr == "query"
    )


def _literal(call: ast.Call) -> str | None:
    if len(call.args) == 1 and isinstance(call.args[0], ast.Constant) and isinstance(call.args[0].value, str):
        return call.args[0].value
    return None


def check(directory: Path, package: Path) -> list[str]:
    """What is wrong between the queries of a directory and a package's Python; empty when all is well."""
    try:
        names = load(directory).keys()
    except BrokenQueryFile as error:
        return [str(error)]
    found = list(uses(sorted(package.rglob("*.py")), package.parent))
    used = {use.name for use in found}
    return [
        *(f"{use.place}: the name of a query must be a literal" for use in found if use.name is None),
        *(
            f"{use.place}: there is no query {use.name}"
            for use in found
            if use.name and use.name not in names
        ),
        *(f"the query {name} is never used" for name in names if name not in used),
    ]


def main(arguments: list[str]) -> int:
    """`python -m mainspring.schema.queries check`."""
    if arguments != ["check"]:
        sys.stderr.write("usage: python -m mainspring.schema.queries check\n")
        return 2
    problems = check(_DIRECTORY, _PACKAGE)
    for problem in problems:
        sys.stderr.write(f"queries: {problem}\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
