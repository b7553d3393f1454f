"""Figures are shown as in the acceptance tests."""

from __future__ import annotations

from tests.acceptance.conftest import report

__all__ = ["report"]
