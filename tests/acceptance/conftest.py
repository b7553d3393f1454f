"""What all acceptance tests share."""

from __future__ import annotations

import sys

import pytest

from tests.acceptance.reports import Report


@pytest.fixture
def report(capsys: pytest.CaptureFixture[str]) -> Report:
    """Shows a line in the output of the run."""

    def show(line: str) -> None:
        with capsys.disabled():
            sys.stdout.write(f"\n    {line}\n")

    return show
