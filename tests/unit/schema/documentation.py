"""Reads the tables of pages in docs/, so that tests can hold them against the code and against Postgres."""

from __future__ import annotations

from itertools import takewhile
from pathlib import Path

import mainspring

_PAGES = Path(mainspring.__file__).parent.parent / "docs"


def rows(*head: str, page: str = "schema.md") -> list[list[str]]:
    """The cells, without the backquotes around them, of all tables with this head."""
    lines = [_cells(line) for line in (_PAGES / page).read_text(encoding="utf-8").splitlines()]
    starts = [number + 2 for number, cells in enumerate(lines) if cells == list(head)]
    found = [row for start in starts for row in takewhile(lambda cells: len(cells) > 1, lines[start:])]
    assert found, f"{page} has no table headed {head}"
    return found


def _cells(line: str) -> list[str]:
    if not line.startswith("|"):
        return []
    return [_bare(cell.strip()) for cell in line.removeprefix("|").removesuffix("|").split("|")]


def _bare(cell: str) -> str:
    return cell[1:-1] if cell.count("`") == 2 and cell.startswith("`") and cell.endswith("`") else cell
